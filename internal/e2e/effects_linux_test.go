package e2e_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/herdgate/herdgate/internal/redisproc"
)

// The judge of histories that also sees what Redis did, in the order in which it did it (MONITOR). It is exact where the other
// one has to guess when something took effect.

// effect is a change of an entry.
type effect struct {
	at    time.Duration // on the clock of the records
	key   string
	value string        // written; empty for the others
	life  time.Duration // of what is written
	stale bool          // by Expire
}

// clockSkew is how far apart the two clocks may be.
const clockSkew = 5 * time.Millisecond

// judgeEffects returns what is wrong with a history of which the effects are known.
func judgeEffects(records []record, effects []effect) (faults []string) {
	deeds, gets, _ := sortOut(records)
	byValue := map[string]*deed{}
	for _, d := range deeds {
		if d.value != "" {
			byValue[d.value] = d
		}
	}
	faults = judgeOrder(byValue, effects)
	there, fresh := presences(effects)
	for _, g := range gets {
		d := byValue[g.Value]
		if d == nil || d.what == "load" && d.begun >= g.begun {
			continue // from nowhere is the other judge's; a load during the call needs no store
		}
		if !overlaps(there[g.Value], g) {
			faults = append(faults, fmt.Sprintf("%s: Get %d of %s from %v to %v returned %q, which was in the store at no such time: %v",
				g.Pod, g.Call, g.Key, g.begun, g.At, g.Value, there[g.Value]))
		} else if g.Fresh && !overlaps(fresh[g.Value], g) {
			faults = append(faults, fmt.Sprintf("%s: Get %d of %s from %v to %v returned %q as fresh, which it was at no such time: %v",
				g.Pod, g.Call, g.Key, g.begun, g.At, g.Value, fresh[g.Value]))
		}
	}
	return faults
}

// judgeOrder checks that each load whose value was accepted began after the change before it.
func judgeOrder(byValue map[string]*deed, effects []effect) (faults []string) {
	last := map[string]effect{}
	for _, e := range effects {
		if e.value == "" {
			last[e.key] = e
			continue
		}
		d, prev := byValue[e.value], last[e.key]
		last[e.key] = e
		switch {
		case d == nil:
			faults = append(faults, fmt.Sprintf("Redis wrote %q, a value from nowhere", e.value))
		case e.at < d.begun-clockSkew:
			faults = append(faults, fmt.Sprintf("Redis wrote %q before that was made", e.value))
		case d.what == "load" && prev != (effect{}) && d.begun < prev.at-clockSkew:
			faults = append(faults, fmt.Sprintf("a late write won: %q of %s, loaded from %v on, was accepted at %v over what happened at %v: %+v",
				e.value, e.key, d.begun, e.at, prev.at, prev))
		}
	}
	return faults
}

type span struct{ from, to time.Duration }

// presences returns when each value was in the store, and when it was fresh there.
func presences(effects []effect) (there, fresh map[string][]span) {
	there, fresh = map[string][]span{}, map[string][]span{}
	now := map[string]*effect{} // by key
	freshTo := map[string]time.Duration{}
	endOf := func(key string, at time.Duration) {
		e := now[key]
		if e == nil {
			return
		}
		there[e.value] = append(there[e.value], span{e.at, min(at, e.at+e.life)})
		fresh[e.value] = append(fresh[e.value], span{e.at, min(at, freshTo[key])})
		delete(now, key)
	}
	for i, e := range effects {
		switch {
		case e.stale:
			freshTo[e.key] = min(freshTo[e.key], e.at)
		default:
			endOf(e.key, e.at)
			if e.value != "" {
				now[e.key], freshTo[e.key] = &effects[i], e.at+playedTTL
			}
		}
	}
	for key := range now {
		endOf(key, never)
	}
	return there, fresh
}

func overlaps(spans []span, g got) bool {
	return slices.ContainsFunc(spans, func(s span) bool {
		return s.from-clockSkew <= g.At && g.begun <= s.to+clockSkew
	})
}

// monitor collects the effects of a server.
type monitor struct {
	conn   net.Conn
	done   chan struct{}
	offset time.Duration // from the clock of the records to that of the server

	mu      sync.Mutex // protects effects
	effects []effect
}

func wallOffset() time.Duration { return time.Duration(time.Now().UnixNano()) - sinceBoot() }

func startMonitor(t testing.TB, s *redisproc.Server) *monitor {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Addr())
	must(t, err)
	m := &monitor{conn: conn, done: make(chan struct{}), offset: wallOffset()}
	_, err = conn.Write([]byte("MONITOR\r\n"))
	must(t, err)
	r := bufio.NewReaderSize(conn, 1<<16)
	line, err := r.ReadString('\n')
	must(t, err)
	if !strings.HasPrefix(line, "+OK") {
		t.Fatalf("MONITOR: %s", line)
	}
	go func() {
		defer close(m.done)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			if e, ok := parseEffect(line, m.offset); ok {
				m.mu.Lock()
				m.effects = append(m.effects, e)
				m.mu.Unlock()
			}
		}
	}()
	return m
}

// stop returns what was seen. It fails if the clocks have drifted apart.
func (m *monitor) stop(ctx context.Context, s *redisproc.Server) ([]effect, error) {
	// What was executed before this is on its way already.
	if _, err := s.Do(ctx, "PING"); err != nil {
		return nil, err
	}
	pause(ctx, 100*time.Millisecond)
	_ = m.conn.Close()
	<-m.done
	if drift := wallOffset() - m.offset; drift.Abs() > time.Millisecond {
		return nil, errors.New("somebody has set the clock")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.effects, nil
}

// Scripts' commands are shown like all others, marked "lua".
var (
	effectLine = regexp.MustCompile(`^\+(\d+)\.(\d{6}) \[[^\]]+\] "(?i:(set|unlink|setrange))" "e2e:\{[^}]*\}:v:([^"]*)"(.*)$`)
	valueText  = regexp.MustCompile(`<[\w-]+\.[lms]\d+>`)
	lifeText   = regexp.MustCompile(`"(?i:px)" "(\d+)"`)
)

func parseEffect(line string, offset time.Duration) (e effect, ok bool) {
	m := effectLine.FindStringSubmatch(strings.TrimSpace(line))
	if m == nil {
		return e, false
	}
	sec, _ := strconv.ParseInt(m[1], 10, 64)
	micro, _ := strconv.ParseInt(m[2], 10, 64)
	e.at = time.Duration(sec)*time.Second + time.Duration(micro)*time.Microsecond - offset
	e.key = m[4]
	switch strings.ToLower(m[3]) {
	case "set":
		e.value = valueText.FindString(m[5])
		if life := lifeText.FindStringSubmatch(m[5]); life != nil {
			ms, _ := strconv.ParseInt(life[1], 10, 64)
			e.life = time.Duration(ms) * time.Millisecond
		}
	case "setrange":
		e.stale = true
	}
	return e, true
}
