package modeltest

import (
	"slices"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// action is a kind of thing that the scheduler may do next.
type action uint8

const (
	actRun action = iota
	actAnswer
	actCall
	actWrite
	actLoad
	actWatch
	actTime
	actCancel
	actHint
	actLong // a long time passes
	actCalm // everything comes to an end, but for loads perhaps
	firstFault
)

const (
	actDuplicate action = firstFault + iota // an earlier command runs once more
	actLose                                 // an answer, or a command
	actHold                                 // a pod is held up, or goes on
	actCrash
	actRestart
	actUnwatch // a subscription is lost
	actGarbage // somebody writes what nobody can read
	actMisload // a load fails, panics, exits or does not share
	actFull    // the store cannot write
	actForget  // the store loses its record of tags
	numActions
)

var weights = [numActions]int{
	actRun: 300, actAnswer: 300, actCall: 130, actWrite: 30, actLoad: 120, actWatch: 150, actTime: 20, actCancel: 8, actHint: 10, actLong: 4,
	actDuplicate: 40, actLose: 25, actHold: 15, actCrash: 4, actRestart: 4, actUnwatch: 8, actGarbage: 6, actMisload: 30, actCalm: 12, actFull: 10, actForget: 4,
}

// passTime is how long markers last that say "load, do not follow".
const passTime = 500 * time.Millisecond

// act does one step.
func (w *world) act() {
	total := 0
	for _, n := range w.cfg.weights {
		total += n
	}
	for range 50 {
		n, a := w.rng.IntN(total), action(0)
		for n >= w.cfg.weights[a] {
			n -= w.cfg.weights[a]
			a++
		}
		if w.try(a) {
			w.settleStep()
			return
		}
	}
	w.pass(10 * time.Millisecond)
	w.settleStep()
}

// roll says whether a fault that is not an action of its own happens now.
func (w *world) roll(a action) bool {
	return w.cfg.weights[a] > 0 && w.rng.IntN(100) < w.cfg.weights[a]
}

func pickOf[T any](w *world, list []T, ok func(T) bool) (x T, found bool) {
	if len(list) == 0 {
		return x, false
	}
	at := w.rng.IntN(len(list))
	for i := range list {
		if y := list[(at+i)%len(list)]; ok(y) {
			return y, true
		}
	}
	return x, false
}

// try does an action if there is something that it can be done to.
func (w *world) try(a action) bool {
	switch a {
	case actRun:
		c, ok := pickOf(w, w.unrun, func(c *command) bool { return !c.pod.held || c.orphan })
		if ok {
			w.runCommand(c)
		}
		return ok
	case actAnswer:
		c, ok := pickOf(w, w.unsaid, func(c *command) bool { return !c.pod.held })
		if ok {
			w.deliver(c)
		}
		return ok
	case actCall:
		return w.newCall()
	case actWrite:
		return w.newWrite()
	case actLoad:
		l, ok := pickOf(w, w.loads, func(l *load) bool { return !l.call.pod.held && !l.call.pod.crashed })
		if ok {
			w.moveLoad(l)
		}
		return ok
	case actWatch:
		x, ok := pickOf(w, w.watches, func(x *watch) bool { return x.moves() && !x.pod.held && !x.pod.crashed })
		if ok {
			x.move()
		}
		return ok
	case actTime:
		times := [...]int{1, 5, 20, 50, 100, 200}
		w.pass(time.Duration(times[w.rng.IntN(len(times))]) * time.Millisecond)
		return true
	case actLong:
		times := [...]int{300, 600, 1100, 2100}
		w.pass(time.Duration(times[w.rng.IntN(len(times))]) * time.Millisecond)
		return true
	case actCancel:
		c, ok := pickOf(w, w.calls, func(c *call) bool { return !c.cancelled && !c.pod.crashed })
		if ok {
			w.note("call %d is cancelled", c.id)
			c.cancelled = true
			if !c.hasEnd || c.overAt > w.now() {
				c.hasEnd, c.overAt = true, w.now()
			}
			c.cancel()
		}
		return ok
	case actHint:
		return w.hear()
	default:
		return w.disturb(a)
	}
}

func remove[T comparable](list []T, x T) []T {
	return slices.DeleteFunc(list, func(y T) bool { return x == y })
}

// runCommand lets the store do the next step of a command.
func (w *world) runCommand(c *command) {
	w.note("store: runs %v of %s from pod %d for call %d", c.op, c.keys[0].name, c.pod.n, c.callID())
	if !w.exec(c) {
		return
	}
	w.unrun = remove(w.unrun, c)
	if !c.orphan && !c.muted {
		w.unsaid = append(w.unsaid, c)
	}
	if !c.op.reads() && c.op != opGhost {
		w.past = append(w.past, c)
	}
}

// deliver hands an answer to the pod that waits for it.
func (w *world) deliver(c *command) {
	w.note("pod %d: gets the answer of %v of %s for call %d", c.pod.n, c.op, c.keys[0].name, c.callID())
	w.unsaid = remove(w.unsaid, c)
	if c.op == opElect && c.call != nil {
		el := &c.answer.election
		switch fr := el.Entry.Freshness(); {
		case !c.unread:
		case el.Role == stampede.RoleFresh:
			w.saw(sawUnreadFresh)
		case fr == stampede.Stale:
			w.saw(sawUnreadStale)
		}
		switch el.Role {
		case stampede.RoleLeader:
			c.call.leads = c.answer.grant
			if c.unread {
				w.saw(sawUnreadLed)
			}
		case stampede.RoleFollower:
			c.call.follows = append(c.call.follows, el.Lease)
			c.call.mustLoad = c.told && el.Entry.Freshness() == stampede.Dead && c.call.what.reads()
		case stampede.RolePass, stampede.RoleBackOff:
			c.call.marked = true
		}
	}
	if c.op == opRenew && c.answer.holding == stampede.Taken {
		for _, l := range w.loads {
			l.taken = l.taken || l.grant != nil && l.grant.stamp == c.lease
		}
	}
	if c.answer.err == nil {
		c.took = time.Since(c.began)
		w.endStep(c)
	}
	c.said <- c.answer
}

func (w *world) hear() bool {
	if len(w.hints) == 0 {
		return false
	}
	h := w.hints[0]
	w.hints = w.hints[1:]
	if h.pod.crashed {
		return false
	}
	if h.tag != "" {
		w.note("pod %d: hears of the expiry of tag %s", h.pod.n, h.tag)
		h.pod.tagDrops(h.tag)
		return true
	}
	w.note("pod %d: hears of a drop of %s", h.pod.n, h.key.name)
	h.pod.drops(h.key.name)
	return true
}

const maxCalls = 9

func (w *world) newCall() bool {
	p, ok := pickOf(w, w.pods, func(p *pod) bool { return !p.crashed })
	if !ok || len(w.calls) >= maxCalls {
		return false
	}
	what, deadline := doFetch, time.Duration(0)
	switch w.rng.IntN(12) {
	case 0:
		what = doGet
	case 1:
		what = doGetter
	case 2:
		what = doRefresh
	}
	if w.rng.IntN(10) == 0 {
		deadline = time.Duration(1+w.rng.IntN(500)) * time.Millisecond
	}
	w.begin(p, w.keys[w.rng.IntN(len(w.keys))], what, deadline)
	return true
}

func (w *world) newWrite() bool {
	p, ok := pickOf(w, w.pods, func(p *pod) bool { return !p.crashed })
	if !ok || len(w.calls) >= maxCalls {
		return false
	}
	w.begin(p, w.keys[w.rng.IntN(len(w.keys))], w.cfg.writes[w.rng.IntN(len(w.cfg.writes))], 0)
	return true
}

// moveLoad lets a load read the source, or end with a value.
func (w *world) moveLoad(l *load) {
	if !l.read {
		w.readSource(l)
		return
	}
	o := order{}
	if l.about != nil {
		n, has := l.about.Previous()
		switch w.rng.IntN(12) {
		case 0:
			if has && w.values[n].src == l.source && w.values[n].owner == nil && !l.released {
				o.how = endSame
			}
		case 1:
			o.brief = true
		}
	}
	if w.cfg.failing && w.rng.IntN(6) > 0 {
		o = order{how: endError, err: &loadError{l}}
	}
	w.endLoad(l, o)
}

// disturb does an action that is a fault.
func (w *world) disturb(a action) bool {
	switch a {
	case actDuplicate:
		c, ok := pickOf(w, w.past, func(c *command) bool { return c.op != opSet || !c.twice })
		if ok {
			c.twice = true
			d := *c
			d.stage, d.orphan, d.call, d.said = 0, true, nil, nil
			w.note("a duplicate of:")
			c.keys[0].lost = w.step
			w.unrun = append(w.unrun, &d)
			w.runCommand(&d)
		}
		return ok
	case actLose:
		return w.lose()
	case actHold:
		p := w.pods[w.rng.IntN(len(w.pods))]
		p.held = !p.held
		w.note("pod %d is held up: %v", p.n, p.held)
		return true
	case actCrash:
		return w.crash()
	case actRestart:
		w.note("store: restarts empty")
		w.emptied = w.step
		w.restart()
		return true
	case actUnwatch:
		x, ok := pickOf(w, w.watches, func(x *watch) bool { return x.subscribed && !x.pod.crashed })
		if !ok {
			return false
		}
		if len(x.queue) > 0 && w.rng.IntN(2) == 0 {
			w.note("pod %d: does not hear of %s", x.pod.n, x.key.name)
			x.queue, x.deaf = x.queue[1:], true
			return true
		}
		w.note("pod %d: watch of %s is lost", x.pod.n, x.key.name)
		x.lose()
		return true
	case actForget:
		if !w.cfg.opts.Tags {
			return false
		}
		w.forget()
		return true
	case actGarbage:
		k := w.keys[w.rng.IntN(len(w.keys))]
		w.note("store: somebody writes garbage to %s", k.name)
		e := stampede.Entry{Type: 1, TTL: time.Second, StaleFor: time.Second, Value: 0, Data: []byte{0xc1}}
		v := w.newVersion(e, w.ownStamp())
		v.value = 0
		w.put(k, v)
		return true
	case actMisload:
		return w.misload()
	case actCalm:
		w.note("calm, until %s", "nothing moves but loads")
		w.settle(false)
		p, ok := pickOf(w, w.pods, func(p *pod) bool { return !p.crashed })
		if k := w.keys[w.rng.IntN(len(w.keys))]; ok && w.fault == "" {
			switch w.rng.IntN(3) {
			case 0:
				w.probeServed(p, k)
			case 1:
				w.settle(true)
				w.probeGet(p, k)
			}
		}
		return true
	}
	return false
}

// lose loses an answer, or a command: before the store runs it, for good or for a while.
func (w *world) lose() bool {
	if w.rng.IntN(2) == 0 {
		c, ok := pickOf(w, w.unsaid, func(*command) bool { return true })
		if !ok {
			return false
		}
		w.note("pod %d: the answer of %v of %s is lost", c.pod.n, c.op, c.keys[0].name)
		w.unsaid = remove(w.unsaid, c)
		w.loseTo(c)
		return true
	}
	c, ok := pickOf(w, w.unrun, func(*command) bool { return true })
	if !ok || c.op == opGhost && !c.pod.crashed {
		return false
	}
	orphan := c.orphan
	if !orphan {
		w.loseTo(c)
	}
	if c.stage == 0 && (orphan || w.rng.IntN(2) == 0) {
		w.note("pod %d: its %v of %s is lost", c.pod.n, c.op, c.keys[0].name)
		w.unrun = remove(w.unrun, c)
	} else {
		w.note("pod %d: its %v of %s is delayed", c.pod.n, c.op, c.keys[0].name)
	}
	return true
}

// loseTo tells the pod at once that its connection is lost, or nothing until its ctx ends.
func (w *world) loseTo(c *command) {
	if c.orphan || c.muted {
		return
	}
	c.muted = true
	c.keys[0].lost = w.step
	if w.rng.IntN(2) == 0 {
		c.said <- answer{err: errLost}
		return
	}
	w.silent = append(w.silent, c)
}

func (w *world) crash() bool {
	alive := w.alive()
	if len(alive) == 0 {
		return false
	}
	p := alive[w.rng.IntN(len(alive))]
	w.note("pod %d crashes", p.n)
	p.crashed = true
	for _, k := range w.keys {
		k.lost = w.step
	}
	close(p.crash)
	for _, c := range slices.Concat(w.unrun, w.unsaid) {
		c.orphan = c.orphan || c.pod == p
	}
	w.calls = slices.DeleteFunc(w.calls, func(c *call) bool { return c.pod == p })
	w.loads = slices.DeleteFunc(w.loads, func(l *load) bool { return l.call.pod == p })
	if len(w.pods) < 6 {
		w.newPod() // in its place
	}
	return true
}

// misload lets a load end in another way than with a value to store and to share.
func (w *world) misload() bool {
	l, ok := pickOf(w, w.loads, func(l *load) bool { return !l.call.pod.held && !l.call.pod.crashed })
	if !ok {
		return false
	}
	o := order{}
	switch w.rng.IntN(9) {
	case 0:
		o.how = endPanic
	case 1:
		o.how = endGoexit
	case 2, 3:
		o.how = endNotFound
	case 4, 5:
		o.how = endError
	default:
		if l.about == nil {
			return false
		}
		o.unsaved = true
		if w.cfg.private && w.rng.IntN(2) == 0 {
			o.private = true
		}
		if w.cfg.private && !l.released && w.rng.IntN(3) == 0 {
			w.note("load %d lets go who waits for it", l.n)
			l.released = true
			l.orders <- order{release: true}
			return true
		}
	}
	o.err = &loadError{l}
	w.endLoad(l, o)
	return true
}
