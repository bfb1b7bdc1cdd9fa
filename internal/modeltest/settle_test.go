package modeltest

import (
	"context"
	"slices"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// settle lets everything come to an end that can without time passing: faults stop, commands run and are
// answered, subscriptions stand, and loads end too if loads says so. Who waits then must have a reason.
func (w *world) settle(loads bool) {
	for _, p := range w.pods {
		p.held = false
	}
	for i := 0; w.fault == ""; i++ {
		if i > 2000 {
			w.fail("P3: no end of commands, and no time passes")
			return
		}
		if !w.settleOne(loads) {
			break
		}
		w.settleStep()
	}
	for _, c := range w.calls {
		if w.fault == "" && !w.mayWait(c) {
			w.fail("P3: call %d waits, and nobody loads", c.id)
		}
	}
}

func (w *world) settleOne(loads bool) bool {
	if len(w.silent) > 0 {
		c := w.silent[0]
		w.silent = w.silent[1:]
		if !c.orphan {
			w.note("pod %d: is told that its %v of %s is lost", c.pod.n, c.op, c.keys[0].name)
			c.said <- answer{err: errLost}
		}
		return true
	}
	// In any order: where nothing is late, there is still no telling what is first.
	movers := w.movers[:0]
	for _, x := range w.watches {
		if !x.pod.crashed && x.moves() {
			movers = append(movers, x)
		}
	}
	w.movers = movers
	if n := len(w.unrun) + len(w.unsaid) + len(movers); n > 0 {
		switch i := w.rng.IntN(n); {
		case i < len(w.unrun):
			w.runCommand(w.unrun[i])
		case i < len(w.unrun)+len(w.unsaid):
			w.deliver(w.unsaid[i-len(w.unrun)])
		default:
			movers[i-len(w.unrun)-len(w.unsaid)].move()
		}
		return true
	}
	for len(w.hints) > 0 {
		if w.hear() {
			return true
		}
	}
	if loads {
		for _, l := range w.loads {
			w.endLoad(l, order{})
			return true
		}
	}
	return false
}

// mayWait says whether there is a reason for a call to wait when nothing moves: a load of its pod, a
// lease (of a pod that has crashed, say) or one that has just ended by itself, a message that was lost.
func (w *world) mayWait(c *call) bool {
	if c.what > doRefresh {
		return false
	}
	k := c.key
	if w.cfg.seated() { // for its turn
		return true
	}
	if k.lease.role == stampede.RoleFollower && w.ownerless(k) || w.justUp(k) {
		return true
	}
	for _, l := range w.loads {
		if l.call.pod == c.pod && l.call.key == k {
			return true
		}
	}
	for _, x := range w.watches {
		if x.pod == c.pod && x.key == k && x.deaf {
			return true
		}
	}
	return false
}

// doze is how long a follower may sleep beyond the end of the lease that it follows: a little by its own
// dice, and as long as the answer took that told it of the lease.
func (w *world) doze() time.Duration { return w.cfg.opts.Lease/20 + w.cfg.opts.StoreBudget + slack }

// ownerless says whether there is a reason for a lease to stand: a load, or something that went wrong
// since it was granted.
func (w *world) ownerless(k *register) bool {
	return k.lost >= k.lease.grant.step || slices.ContainsFunc(w.loads, func(l *load) bool { return l.grant == k.lease.grant })
}

// justUp says whether a lease of k has ended by itself so lately that a follower need not have noticed.
func (w *world) justUp(k *register) bool {
	return k.leaseTimeUp > 0 && w.now()-k.leaseTimeUp <= w.doze()
}

// finish ends a run: the faults stop, and all calls return; time passes only for leases that nobody
// gives back.
func (w *world) finish() {
	w.note("no more faults, for %s", "good")
	w.cfg.weights[actFull] = 0
	w.settle(true)
	longest := w.now() + w.cfg.opts.Lease + w.doze()
	if w.cfg.seated() { // seats of pods that have crashed, then one after the other
		longest += w.cfg.opts.Lease + 10*time.Second
	}
	for w.fault == "" && (len(w.calls) > 0 || w.anyLease()) {
		if w.now() > longest {
			for _, c := range w.calls {
				w.fail("P3: call %d goes on for more than a lease after the last fault", c.id)
			}
			w.fail("a lease has no owner and does not end")
			return
		}
		w.pass(10 * time.Millisecond)
		w.settleStep()
		w.settle(true)
	}
	if w.fault == "" { // who followed a lease that ended by itself looks again a little later
		w.pass(w.doze())
		if w.cfg.seated() { // nor does who waits for his turn notice at once that nobody waits for him
			w.pass(500 * time.Millisecond)
		}
		w.settleStep()
		w.settle(true)
		if !w.cfg.seated() {
			w.probe()
		}
	}
	if w.fault == "" {
		w.closeAll()
	}
}

func (w *world) anyLease() bool {
	for _, k := range w.keys {
		if k.lease.role == stampede.RoleFollower {
			return true
		}
	}
	return false
}

// probe looks whether a calm fleet does what it should for each key: a Get returns without time passing,
// and what is stale is loaded behind.
func (w *world) probe() {
	for _, k := range w.keys {
		for _, p := range w.alive() {
			if w.fault == "" {
				w.probeGet(p, k)
			}
		}
		w.probeRefresh(k)
	}
}

// probeServed looks whether a Get is served with what the store holds, whoever may be loading.
func (w *world) probeServed(p *pod, k *register) {
	e := w.judged(k.at(w.now()))
	// Who waits for a load is joined for a moment without a look, and only a hint says not to.
	if w.cfg.unheard || e.Freshness() < stampede.Stale || k.cur.value == 0 && !e.NotFound {
		return
	}
	// Nor is a pod that loads told that the store has lost its lease.
	if slices.ContainsFunc(w.loads, func(l *load) bool {
		return l.call.pod == p && l.call.key == k && l.grant != nil && w.emptied >= l.grant.step
	}) {
		return
	}
	w.saw(sawServed)
	c := w.begin(p, k, doFetch, 0)
	w.settleStep()
	w.settle(false)
	if w.fault == "" && !c.over {
		w.fail("P2: call %d waits, and could be served", c.id)
	}
}

func (w *world) probeGet(p *pod, k *register) {
	before, quiet := w.loadSeq, w.mayStayStale(p, k)
	e := k.at(w.now())
	c := w.begin(p, k, doFetch, 0)
	w.settleStep()
	w.settle(true)
	behind := e.Freshness() == stampede.Stale && k.cur != nil && k.cur.value != 0 && !quiet &&
		c.result.From != stampede.FromLocal // who serves a copy looks now and then
	if behind {
		w.saw(sawStaleCalm)
	}
	switch {
	case w.fault != "":
	case !c.over && !w.mayWait(c):
		w.fail("P3: call %d waits, in a calm fleet", c.id)
	case behind && w.loadSeq == before:
		w.fail("P2: pod %d does not load %s behind, which is stale", p.n, k.name)
	}
}

// mayStayStale says whether a pod may know of a reason not to load a stale key behind: a marker, or a
// lease that is not there any more, learnt of with the entry that still stands.
func (w *world) mayStayStale(p *pod, k *register) bool {
	if k.cur == nil || k.taken(w.now()) || w.cfg.seated() {
		return true
	}
	now, lease := w.now(), w.cfg.opts.Lease
	recent := func(step int, at, hold time.Duration) bool { return step >= k.cur.from && now < at+hold }
	return w.justUp(k) || recent(k.softStep, k.softAt, max(lease, passTime)) ||
		recent(p.hush[k.n], p.hushAt[k.n], max(passTime, 2*lease)) ||
		p.failedAt[k.n] >= k.cur.from
}

// probeRefresh looks whether Refresh replaces what is fresh.
func (w *world) probeRefresh(k *register) {
	alive := w.alive()
	if len(alive) == 0 || k.taken(w.now()) || w.fault != "" {
		return
	}
	before := w.loadSeq
	p := alive[w.rng.IntN(len(alive))]
	w.begin(p, k, doRefresh, 0)
	w.settleStep()
	w.settle(true)
	if w.fault == "" && w.loadSeq == before {
		w.fail("pod %d: Refresh of %s loads nothing, in a calm fleet", p.n, k.name)
	}
}

// closeAll closes the guards. Nothing may be left of their work.
func (w *world) closeAll() {
	if n := len(w.loads); n > 0 {
		w.fail("%d loads are left", n)
	}
	for _, x := range w.watches {
		if !x.pod.crashed && !x.isClosed() {
			w.fail("pod %d still watches %s", x.pod.n, x.key.name)
		}
	}
	for _, p := range w.alive() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		begun := w.now()
		if err := p.guard.Close(ctx); err != nil || w.now() != begun {
			w.fail("Close of pod %d: %v, after %v", p.n, err, w.now()-begun)
		}
		cancel()
		if s := p.guard.Stats(); s.Loading != 0 || s.Abandoned != 0 {
			w.fail("pod %d: %d loading, %d abandoned, in the end", p.n, s.Loading, s.Abandoned)
		}
	}
}
