package modeltest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// checkCommit is P4: a load that began before a Delete, Set or Expire of its key, or before another load
// whose value stands, never overwrites what is there.
func (w *world) checkCommit(k *register, c *command, v *version) {
	at := slices.IndexFunc(k.loads, func(l *load) bool { return l.grant.stamp == c.lease })
	if at < 0 {
		w.fail("a commit of %s under a lease that no load had", k.name)
		return
	}
	l := k.loads[at]
	if k.changed > l.grant.step {
		w.fail("P4: load %d, elected in step %d, commits over the Delete, Set or Expire of step %d", l.n, l.grant.step, k.changed)
	}
	if k.cur != nil && k.cur.load != nil && k.cur.load.n > l.n {
		w.fail("P4: load %d commits over load %d, which began later", l.n, k.cur.load.n)
	}
	if k.cur != nil && k.cur.src > l.source {
		w.fail("P4: load %d commits source %d over source %d", l.n, l.source, k.cur.src)
	}
	if c.began.Sub(w.start)-l.begunAt > w.cfg.opts.LoadTimeout {
		w.fail("P7: load %d was given up, and its value is committed", l.n)
	}
	if v == nil {
		return
	}
	v.load, v.src = l, l.source
	if n := v.value; n != 0 && w.values[n].unstored {
		w.fail("P10: value %d may not be stored, and is", n)
	}
}

// checkMarked is P4 for a load that began without a lease, under a marker.
func (w *world) checkMarked(k *register, c *command, v *version) {
	if v == nil {
		return
	}
	w.saw(sawMarked)
	for _, l := range slices.Backward(w.all) {
		if l.call.pod != c.pod || l.call.key != k || l.grant != nil || l.ended < 0 || v.value != 0 && l.value != v.value {
			continue
		}
		if k.changed > l.begun {
			w.fail("P4: load %d, begun in step %d, commits over the Delete, Set or Expire of step %d", l.n, l.begun, k.changed)
		}
		if k.cur != nil && k.cur.load != nil && k.cur.load.n > l.n {
			w.fail("P4: load %d commits over load %d, which began later", l.n, k.cur.load.n)
		}
		if n := v.value; n != 0 && w.values[n].unstored {
			w.fail("P10: value %d may not be stored, and is", n)
		}
		v.load, v.src = l, l.source
		return
	}
	w.fail("a commit of %s under a marker, and no load was", k.name)
}

// checkLoads is P1.
func (w *world) checkLoads() {
	for _, l := range w.loads {
		if !l.timedOut && w.now()-l.begunAt >= w.cfg.opts.LoadTimeout {
			l.timedOut = true
			l.call.pod.quieten(l.call.key)
		}
	}
	if len(w.loads) < 2 {
		return
	}
	for _, k := range w.keys {
		leased, oldest := 0, w.step
		for _, l := range w.loads {
			if l.call.key == k && l.grant != nil && !w.givenUp(l) {
				leased++
				oldest = min(oldest, l.grant.step)
			}
		}
		if leased < 2 {
			continue
		}
		allowed := 1
		for _, step := range k.allows {
			if step > oldest {
				allowed++
			}
		}
		if leased > allowed {
			w.fail("P1: %d loads of %s at once, %d allowed since the oldest was elected in step %d", leased, k.name, allowed, oldest)
		}
	}
	for i, l := range w.loads {
		for _, m := range w.loads[:i] {
			if l.call.pod != m.call.pod || l.call.key != m.call.key || w.givenUp(l) || w.givenUp(m) {
				continue
			}
			// Where loads do not share, callers load for themselves; never two of them under a lease.
			if !w.cfg.private || l.grant != nil && m.grant != nil {
				w.fail("P1: loads %d and %d of %s in pod %d at once", m.n, l.n, l.call.key.name, l.call.pod.n)
			}
		}
	}
}

// checkUnleased looks for the reason why a load runs without a lease.
func (w *world) checkUnleased(l *load) {
	c, k := l.call, l.call.key
	p := c.pod
	switch {
	case w.cfg.private: // a caller may have to load for itself
	case c.marked, p.toldAt[k.n] >= c.begun: // the last load's value was not stored
	case p.failedAt[k.n] >= c.begun, p.slowAt[k.n] >= c.begun: // the store does not answer
	case k.orphaned(c): // nor has it taken back a lease of the pod's own
	case w.committing(p, k): // nor does it say what became of a value
	case w.mayHedge(c): // the other load takes too long
		w.saw(sawHedge)
	case w.waitTime() <= w.now()-c.begunAt: // it has waited for long enough
	default:
		w.fail("P1: load %d of %s runs without a lease, and pod %d had its answers", l.n, k.name, p.n)
	}
}

// orphaned says whether a call was told to follow a lease that is granted to nobody: of an attempt of its own pod whose load
// has ended, or that was not answered. A late copy of the command may have been granted another one.
func (k *register) orphaned(c *call) bool {
	return slices.ContainsFunc(c.follows, func(s stampede.Stamp) bool {
		return slices.Contains(c.pod.lost, s.Token()) || slices.ContainsFunc(k.loads, func(l *load) bool {
			return l.call.pod == c.pod && l.ended >= 0 && l.grant.stamp.Token() == s.Token()
		})
	})
}

// committing says whether the pod waits for the answer of a commit.
func (w *world) committing(p *pod, k *register) bool {
	waits := func(c *command) bool { return c.op == opCommit && c.pod == p && c.keys[0] == k && !c.orphan }
	return slices.ContainsFunc(w.unrun, waits) || slices.ContainsFunc(w.unsaid, waits) || slices.ContainsFunc(w.silent, waits)
}

func (w *world) waitTime() time.Duration {
	if d := w.cfg.opts.WaitTimeout; d > 0 {
		return d
	}
	return w.cfg.opts.LoadTimeout
}

// slack is for what rounds to milliseconds.
const slack = 2 * time.Millisecond

// writeTime is how long Set, Delete and Expire may take.
const writeTime = time.Second

// checkCalls looks at the calls that have not returned. P6: whose ctx has ended is back at once, or one
// budget later when it was reading.
func (w *world) checkCalls() {
	now := w.now()
	for _, c := range w.calls {
		if c.what > doRefresh {
			if now-c.begunAt > writeTime+slack {
				w.fail("P5: call %d, a %s, goes on after %v", c.id, methodNames[c.what], now-c.begunAt)
			}
			continue
		}
		if !c.hasEnd || now < c.overAt {
			continue
		}
		late := now - c.overAt
		reading := c.reading+c.asides > 0 || w.cfg.seated() && c.reads > 0 // see sent
		if late > w.cfg.opts.StoreBudget+slack || late > slack && !reading || !c.cancelled && late > slack {
			w.fail("P6: call %d goes on %v after its ctx has ended", c.id, late)
		}
	}
}

// checkWrite looks at what Refresh, Set, Delete and Expire return: their errors are true, and say so.
func (w *world) checkWrite(c *call) {
	if c.what == doRefresh {
		if c.err != nil && !errors.Is(c.err, context.Canceled) && !errors.Is(c.err, context.DeadlineExceeded) {
			w.fail("call %d: Refresh returned %v", c.id, c.err)
		}
		return
	}
	if c.what == doExpireTag {
		if c.err != nil {
			return
		}
		c.pod.expired = append(c.pod.expired, ownExpiry{c.tag, c.begun, w.step})
		if !slices.ContainsFunc(w.expiries, func(x expiry) bool { return x.tag == c.tag && x.step >= c.begun }) {
			w.fail("call %d: ExpireTag returned nil, and nothing was done", c.id)
		}
		return
	}
	c.pod.dropped[c.key.n] = w.step
	if c.more != nil {
		c.pod.dropped[c.more.n] = w.step
	}
	if c.err == nil && c.key.changed < c.begun {
		w.fail("call %d: %s returned nil, and nothing was done", c.id, methodNames[c.what])
	}
	if c.what == doSet && c.err != nil && c.ctx.Err() == nil && !errors.Is(c.err, stampede.ErrOutcomeUnknown) {
		w.fail("call %d: Set returned %v", c.id, c.err)
	}
}

// checkGet looks at what a Get has returned.
func (w *world) checkGet(c *call) {
	if c.spent > w.cfg.opts.StoreBudget+slack {
		w.fail("P5: steps of the store cost call %d %v, its budget is %v", c.id, c.spent, w.cfg.opts.StoreBudget)
	}
	if c.err != nil {
		w.checkError(c)
		return
	}
	n := c.result.Value
	if n <= 0 || n >= len(w.values) || w.values[n].key != c.key {
		w.fail("P7: call %d got %d, which nobody has loaded", c.id, n)
		return
	}
	v := w.values[n]
	if v.owner != nil && v.owner != c {
		w.fail("P10: call %d got value %d, which is for call %d alone", c.id, n, v.owner.id)
	}
	w.checkTags(c, v.loads)
	if c.result.From == stampede.FromStore && c.reads+c.elects == 0 {
		w.saw(sawUnreadJoined)
	}
	if c.result.From == stampede.FromCopy {
		w.checkCopy(c, v)
		return
	}
	if c.result.From == stampede.FromLocal || c.what != doFetch {
		if w.mayBeLocal(c, func(x *version) bool { return x.value == n }) {
			if c.result.From == stampede.FromLocal {
				w.saw(sawLocal)
			}
			return
		}
	}
	if c.result.From != stampede.FromStore {
		for _, l := range v.loads {
			if l.begun >= c.begun && l.call.pod == c.pod {
				return
			}
		}
		if c.result.From == stampede.FromLoad {
			w.saw(sawOlderLoad)
		}
	}
	if c.what != doFetch && c.pod.failedAt[c.key.n] >= c.begun && w.cfg.encoded {
		w.checkCopy(c, v) // it may be one
		return
	}
	if !c.found(func(x *version) bool { return x.value == n }) {
		w.fail("P9: call %d, begun in step %d, got value %d, which was not in the store since, nor loaded", c.id, c.begun, n)
	}
}

// found says whether a version for which ok stood in the store while the call went on, and was as fresh
// at some moment of that as the call's result says.
func (c *call) found(ok func(*version) bool) bool {
	for _, x := range slices.Backward(c.key.past) {
		if x.to <= c.begun {
			return false // and so it is with all before
		}
		if !ok(x) {
			continue
		}
		end := x.end
		switch c.result.Freshness {
		case stampede.Fresh:
			end = x.fresh
		case stampede.Stale:
			end = x.stale
		}
		if max(x.since, c.begunAt) < end {
			return true
		}
	}
	return false
}

// mayBeLocal says whether the pod may have a copy of such a version to serve without asking: one that was
// in the store when the pod last read it, no longer than Local.TTL ago, and that no change of its own was
// about.
func (w *world) mayBeLocal(c *call, is func(*version) bool) bool {
	ttl := w.cfg.opts.Local.TTL
	dropped := min(c.pod.dropped[c.key.n], c.begun)
	if c.pod.dropped[c.key.n] > c.begun {
		dropped = -1 // it returned during the call: the copy may be from before
	}
	for _, x := range slices.Backward(c.key.past) {
		if ttl <= 0 || x.gone <= c.begunAt-ttl {
			return false
		}
		end := x.end
		switch c.result.Freshness {
		case stampede.Fresh:
			end = x.fresh
		case stampede.Stale:
			end = x.stale
		}
		if is(x) && c.begunAt < end && x.to > dropped {
			return true
		}
	}
	return false
}

// checkCopy looks at a value that is from the pod's memory: only for who was not answered, only until
// its own end, and never one that this pod's own Delete was about.
func (w *world) checkCopy(c *call, v *value) {
	w.saw(sawCopy)
	if !w.cfg.encoded {
		w.fail("call %d got a copy, and there are none", c.id)
	}
	if c.pod.failedAt[c.key.n] < c.begun {
		w.fail("P9: call %d got a copy, and no command of pod %d failed meanwhile", c.id, c.pod.n)
	}
	p := &w.cfg.opts.Policy
	window := max(p.StaleFor, p.StaleIfError, 0)
	if !w.mayBeCopy(c, func(x *version) bool { return x.value == v.n }, v.loads, func(l *load) time.Duration { return l.ttl + window }) {
		w.fail("P9: call %d got value %d, a copy that has outlived its end or a Delete of this pod", c.id, v.n)
	}
}

// mayBeCopyOfNothing says whether the pod may have ErrNotFound from its memory: as a value from there.
func (w *world) mayBeCopyOfNothing(c *call) bool {
	if !w.cfg.encoded || c.pod.failedAt[c.key.n] < c.begun {
		return false
	}
	return w.mayBeCopy(c, func(x *version) bool { return x.entry.NotFound }, w.all, func(l *load) time.Duration {
		if l.call.key != c.key || l.how != endNotFound {
			return 0
		}
		return max(w.cfg.opts.Policy.NotFoundTTL, 0)
	})
}

// mayBeCopy says whether the pod of c may have a copy of such a version, or of what such loads of its own
// brought, given how long that lives from the beginning of the load on.
func (w *world) mayBeCopy(c *call, is func(*version) bool, loads []*load, life func(*load) time.Duration) bool {
	dropped := min(c.pod.dropped[c.key.n], c.begun)
	if c.pod.dropped[c.key.n] > c.begun {
		dropped = -1 // it returned during the call: the copy may be from before
	}
	for _, x := range c.key.past {
		if is(x) && c.begunAt < x.end && (dropped < 0 || x.to > dropped) {
			return true
		}
	}
	for _, l := range loads {
		if l.call.pod == c.pod && c.begunAt < l.begunAt+life(l) && l.begun >= dropped {
			return true
		}
	}
	return false
}

// checkError looks at the error of a Get.
func (w *world) checkError(c *call) {
	err := c.err
	if c.result.Value != 0 {
		w.fail("call %d got value %d and error %v", c.id, c.result.Value, err)
	}
	over := c.ctx.Err() != nil && c.hasEnd && c.overAt <= w.now()
	var own *loadError
	isOwn := errors.As(err, &own)
	var panicked *stampede.PanicError
	switch {
	case over && err == c.cause():
		return
	case errors.Is(err, stampede.ErrLeaseLost):
		w.fail("P8: call %d got %v", c.id, err)
	case errors.As(err, &panicked) && !isOwn:
		w.fail("P7: call %d got a panic that is no loader's: %v", c.id, panicked)
	case isOwn:
		l := own.load
		if l.call.pod != c.pod || l.call.key != c.key || l.ended < c.begun {
			w.fail("P7: call %d, begun in step %d, got the error of load %d of pod %d, ended in step %d", c.id, c.begun, l.n, l.call.pod.n, l.ended)
		}
		if (l.how == endPanic) != (panicked != nil) {
			w.fail("P7: call %d got the error of load %d in a wrong form: %v", c.id, l.n, err)
		}
	case err == stampede.ErrGoexit:
		w.saidSo(c, "goexit", func(l *load) bool { return l.how == endGoexit && l.ended >= c.begun })
	case errors.Is(err, stampede.ErrNotFound):
		if !w.anyLoad(c, func(l *load) bool { return l.how == endNotFound && l.begun >= c.begun }) &&
			!c.found(func(x *version) bool { return x.entry.NotFound && (x.load == nil || !w.tagExpired(x.load, c)) }) && !w.mayBeCopyOfNothing(c) &&
			!w.mayBeLocal(c, func(x *version) bool { return x.entry.NotFound }) {
			w.fail("P9: call %d got %v, which was not in the store since, nor loaded", c.id, err)
		}
	case errors.Is(err, stampede.ErrLoadTimeout):
		w.saidSo(c, "timeout", func(l *load) bool {
			return c.returnedAt >= l.begunAt+w.cfg.opts.LoadTimeout && (l.ended < 0 || l.ended >= c.begun)
		})
	case errors.Is(err, stampede.ErrWaitTimeout):
		if w.cfg.opts.OnWaitTimeout != stampede.FailWait {
			w.fail("call %d got %v", c.id, err)
		}
	case errors.Is(err, stampede.ErrOverloaded):
		turn := w.cfg.seated() && w.now() >= w.waitTime() // that of who started the flight did not come
		if w.cfg.opts.MaxAbandoned == 0 && !turn {
			w.fail("call %d got %v", c.id, err)
		}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		w.fail("P6: call %d got %v, and its own ctx is not over", c.id, err)
	default:
		w.fail("P5: call %d got %v", c.id, err)
	}
}

// cause is the error that c's ctx ended with.
func (c *call) cause() error {
	if c.cancelled {
		return c.ctx.Err()
	}
	return context.DeadlineExceeded
}

func (w *world) anyLoad(c *call, ok func(*load) bool) bool {
	return slices.ContainsFunc(w.all, func(l *load) bool { return l.call.pod == c.pod && l.call.key == c.key && ok(l) })
}

func (w *world) saidSo(c *call, what string, ok func(*load) bool) {
	if !w.anyLoad(c, ok) {
		w.fail("P7: call %d got an error, and no load said so: %s", c.id, what)
	}
}
