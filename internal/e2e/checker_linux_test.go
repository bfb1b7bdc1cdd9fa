package e2e_test

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// The judge of histories that sees what callers see, and nothing else.
//
// Each load and each Set has a value of its own. That x goes before y means: if both took effect in the store then x did so
// first, and x is gone once y has taken effect. It is so
//
//   - if x was loaded and its load began before y did: the lease of x was granted before that, and whatever y is, it ends the
//     lease, if the commit of x did not do so before. For two loads that is the order of the beginnings of their loads.
//   - if x was set and had taken effect before y began.
//
// So after y surely took effect (its call returned nil, or somebody was given its value from the store), no call that begins
// then may return x, unless the load of x began during the call, and then x does not go before y. After an Expire it may, but
// not as fresh. What did not return nil may have taken effect at any time, or never, and orders nothing.

const never = time.Duration(math.MaxInt64)

// deed is something that changes an entry: a load, a Set, a Delete, an Expire.
type deed struct {
	what  string // "load", "set", "delete", "expire", "expiretag"
	key   string
	value string
	begun time.Duration // not before
	sure  time.Duration // it has taken effect by then; never: if at all, nobody knows when
	by    string        // who knows
}

// tagged says whether its value has the tag that is expired with its key.
func (d *deed) tagged() bool { return d.what == "load" && strings.Contains(d.value, ".l") }

// got is a Get that returned.
type got struct {
	record
	begun time.Duration
}

// sort sorts records into deeds and Gets.
func sortOut(records []record) (deeds []*deed, gets []got, faults []string) {
	type id struct {
		pod  string
		call int
	}
	begun := map[id]record{}
	back := map[id]record{}
	for _, r := range records {
		switch r.Kind {
		case invoked:
			begun[id{r.Pod, r.Call}] = r
		case returned:
			back[id{r.Pod, r.Call}] = r
		case loadBegan:
			deeds = append(deeds, &deed{what: "load", key: r.Key, value: r.Value, begun: r.At, sure: never})
		}
	}
	for i, r := range begun {
		end, ok := back[i]
		switch {
		case r.Op != "get":
			d := &deed{what: r.Op, key: r.Key, value: r.Value, begun: r.At, sure: never}
			if ok && end.Err == "" {
				d.sure, d.by = end.At, "it returned nil"
			}
			deeds = append(deeds, d)
		case !ok: // its pod was killed
		case end.Err == "":
			gets = append(gets, got{end, r.At})
		case !strings.Contains(end.Err, errSource.Error()):
			faults = append(faults, fmt.Sprintf("%s: Get of %s returned %q, which is not its loader's error", r.Pod, r.Key, end.Err))
		}
	}
	return deeds, gets, faults
}

// judgeCalls returns what is wrong with a history.
func judgeCalls(records []record) (faults []string) {
	deeds, gets, faults := sortOut(records)
	byValue := map[string]*deed{}
	byKey := map[string][]*deed{}
	for _, d := range deeds {
		byKey[d.key] = append(byKey[d.key], d)
		if d.value != "" {
			byValue[d.value] = d
		}
	}
	for _, g := range gets {
		d := byValue[g.Value]
		switch {
		case d == nil || d.key != g.Key:
			faults = append(faults, fmt.Sprintf("%s: Get of %s returned %q, a value from nowhere", g.Pod, g.Key, g.Value))
		case d.begun > g.At:
			faults = append(faults, fmt.Sprintf("%s: Get of %s returned %q before that was made", g.Pod, g.Key, g.Value))
		case g.Stored && g.At < d.sure:
			d.sure, d.by = g.At, fmt.Sprintf("%s got it in call %d", g.Pod, g.Call)
		}
	}
	gone, notFresh := map[*deed]*deed{}, map[*deed]*deed{}
	for _, same := range byKey {
		for _, x := range same {
			if x.value != "" {
				gone[x], notFresh[x] = endsOf(x, same)
			}
		}
	}
	for _, g := range gets {
		d := byValue[g.Value]
		if d == nil {
			continue
		}
		if y := gone[d]; y != nil && g.begun > y.sure {
			faults = append(faults, fmt.Sprintf("%s: Get %d of %s, begun at %v, returned %q (%s, begun at %v), though a %s %s, begun at %v, took effect by %v: %s",
				g.Pod, g.Call, g.Key, g.begun, g.Value, d.what, d.begun, y.what, y.value, y.begun, y.sure, y.by))
		}
		if y := notFresh[d]; y != nil && g.Fresh && g.begun > y.sure {
			faults = append(faults, fmt.Sprintf("%s: Get %d of %s, begun at %v, returned %q as fresh, though an expire, begun at %v, took effect by %v",
				g.Pod, g.Call, g.Key, g.begun, g.Value, y.begun, y.sure))
		}
	}
	return faults
}

// endsOf returns the first deed after which x is surely gone, and the first after which it is surely not fresh.
func endsOf(x *deed, deeds []*deed) (gone, notFresh *deed) {
	for _, y := range deeds {
		if y == x || y.sure == never || !before(x, y) {
			continue
		}
		if y.what == "expiretag" && !x.tagged() {
			continue
		}
		if y.what == "expire" || y.what == "expiretag" {
			if notFresh == nil || y.sure < notFresh.sure {
				notFresh = y
			}
		} else if gone == nil || y.sure < gone.sure {
			gone = y
		}
	}
	return gone, notFresh
}

// before says that x goes before y.
func before(x, y *deed) bool {
	if x.what == "load" {
		return x.begun < y.begun
	}
	return x.sure < y.begun
}
