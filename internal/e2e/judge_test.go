package e2e_test

import (
	"fmt"
	"testing"
	"time"
)

// judge compares what happened around a trouble with what is promised.
type judge struct {
	t   *testing.T
	tr  *trouble
	c   *callers
	fo  *follows
	src *source

	began, broken, healing, healed, end time.Time
}

// calls checks that each call was answered rightly, and in time.
func (j *judge) calls() {
	faults := 0
	for _, x := range j.c.calls("", j.c.begun, j.end) {
		what := x.fault(j.bound(&x))
		if what == "" {
			continue
		}
		if faults++; faults <= 10 {
			j.t.Errorf("%v after the trouble began (it took %v): %s: Fetch of %s, begun %v before its end, from %v: %s",
				x.ended.Sub(j.broken), j.healed.Sub(j.broken), x.pod, x.key, x.took(), x.result.From, what)
		}
	}
	if faults > 10 {
		j.t.Errorf("and %d more calls", faults-10)
	}
	for _, kind := range []string{hot, stale, cold, nothing} {
		if n := len(j.c.calls(kind, j.broken, j.healing)); n < 10 && !machine.busy(j.broken, j.healing) {
			j.t.Errorf("only %d calls for %s keys during the trouble", n, kind)
		}
	}
}

// bound is what a call may take: who can be served with a copy does not wait for Redis longer than that is worth; who has
// nothing waits for the load besides. Who follows another pod's load may not be told of its end, or not that it was stored. That is like
// the end of a leader that died: its lease is waited for, then Redis is asked once more, and then the pod loads.
func (j *judge) bound(x *called) time.Duration {
	known := (x.kind == hot || x.kind == stale) && !x.begun.Before(j.began)
	if known && !(j.tr.losesData && x.ended.After(j.healing)) {
		return copyBudget
	}
	if j.fo.took(x) {
		return storeBudget + leaseLength + storeBudget + loadTook
	}
	return storeBudget + loadTook
}

// loads checks that the source was protected all the time.
func (j *judge) loads() {
	if n := j.src.atOnce(); n > 1 {
		j.t.Errorf("%d loads of a key at once in one pod", n)
	}
	if top, _ := j.src.most(cold, j.began, j.broken); len(top) > 1 && machine.between(j.began, j.broken) < storeBudget/2 {
		j.t.Errorf("before the trouble: %d loads of one pod: %s", len(top), j.when(top))
	}
	if machine.busy(j.began, j.end) {
		j.t.Logf("the machine was too busy to judge rates: late by %v in %v", machine.between(j.began, j.end), j.end.Sub(j.began))
		return
	}
	// Values that every pod has seen: twice as many loads as before, or as their TTL asks for, and one per key for chance.
	normal := max(float64(j.src.count(stale, j.began, j.broken))/j.broken.Sub(j.began).Seconds(), keysOfAKind/staleTTL.Seconds())
	for _, part := range []struct {
		name     string
		from, to time.Time
	}{{"during the trouble", j.broken, j.healing}, {"after it", j.healed, j.end}} {
		got := j.src.count(stale, part.from, part.to)
		most := 2*normal*part.to.Sub(part.from).Seconds() + keysOfAKind
		if float64(got) > most {
			j.t.Errorf("%s: %d loads of stale keys in %v, want at most %.0f; it is %.1f a second otherwise",
				part.name, got, part.to.Sub(part.from), most, normal)
		}
	}
	got, most := j.src.count(hot, j.broken, j.end), 0
	if j.tr.losesData {
		most = keysOfAKind // in the fleet
		if machine.between(j.healing, j.end) > storeBudget/2 {
			most *= podsInTrouble // an election that is not answered in time leaves each pod to itself
		}
	}
	if got > most {
		j.t.Errorf("%d loads of hot keys, want at most %d", got, most)
	}
	// A key that no pod has seen is loaded by each pod, for all its callers. A second time if its copy was not kept, since keys
	// that are changed meanwhile take others along.
	top, distinct := j.src.most(cold, j.broken, j.healing)
	if got := j.src.count(cold, j.broken, j.healing); got > distinct*3/2 {
		j.t.Errorf("during the trouble: %d loads of %d cold keys (that of each pod counted by itself); %s", got, distinct, j.when(top))
	}
}

// when describes loads of a key.
func (j *judge) when(loads []loaded) string {
	text := loads[0].pod + " " + loads[0].key
	for _, l := range loads {
		text += fmt.Sprintf(", %v after it began (leased: %v)", l.begun.Sub(j.broken), l.leased)
	}
	return text
}

// report says what was measured.
func (j *judge) report(back, oldest time.Duration) {
	count := func(prefix string, from, to time.Time) float64 {
		return float64(j.src.count(prefix, from, to)) / to.Sub(from).Seconds()
	}
	var copyable []called
	copyable = append(copyable, j.c.calls(hot, j.broken, j.healing)...)
	copyable = append(copyable, j.c.calls(stale, j.broken, j.healing)...)
	coldCalls := j.c.calls(cold, j.broken, j.healing)
	j.t.Logf("recovered %v after Redis was back; trouble %v; calls during it: with copies %d, p99 %v, slowest %v; cold %d, p99 %v, slowest %v; "+
		"loads/s before, during, after: stale %.1f %.1f %.1f, cold %.1f %.1f %.1f, not found %.1f %.1f %.1f; oldest lease %v; machine late %v",
		back, j.healed.Sub(j.broken), len(copyable), percentile(copyable, 0.99), percentile(copyable, 1),
		len(coldCalls), percentile(coldCalls, 0.99), percentile(coldCalls, 1),
		count(stale, j.began, j.broken), count(stale, j.broken, j.healing), count(stale, j.healed, j.end),
		count(cold, j.began, j.broken), count(cold, j.broken, j.healing), count(cold, j.healed, j.end),
		count(nothing, j.began, j.broken), count(nothing, j.broken, j.healing), count(nothing, j.healed, j.end),
		oldest, machine.between(j.began, j.end))
}
