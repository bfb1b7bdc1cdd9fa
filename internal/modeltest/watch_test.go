package modeltest

import (
	"slices"

	"github.com/herdgate/herdgate/stampede"
)

// watch is a pod's subscription to a key. It stands at the store some time before the pod hears so, and
// what the store tells is under way for a while.
type watch struct {
	pod        *pod
	key        *register
	subscribed bool              // at the store
	confirmed  bool              // at the pod
	queue      []stampede.Change // told, not yet arrived
	deaf       bool              // something was lost, and the pod was not told so

	// Protected by world.mu.
	ready  chan struct{}
	closed bool

	changes chan stampede.Change
}

func (p *pod) Watch(k stampede.Key) stampede.Watch {
	x := &watch{pod: p, key: p.key(k)[0], ready: make(chan struct{}), changes: make(chan stampede.Change, 8)}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.w.inbox.watches = append(p.w.inbox.watches, x)
	return x
}

func (x *watch) Ready() <-chan struct{} {
	x.pod.w.mu.Lock()
	defer x.pod.w.mu.Unlock()
	return x.ready
}

func (x *watch) C() <-chan stampede.Change { return x.changes }

func (x *watch) Close() {
	x.pod.w.mu.Lock()
	defer x.pod.w.mu.Unlock()
	x.closed = true
}

func (x *watch) isClosed() bool {
	x.pod.w.mu.Lock()
	defer x.pod.w.mu.Unlock()
	return x.closed
}

// moves says whether the watch has something to do by itself.
func (x *watch) moves() bool { return !x.confirmed || len(x.queue) > 0 }

// move lets the subscription stand, its confirmation arrive, or what was told.
func (x *watch) move() {
	w := x.pod.w
	switch {
	case !x.subscribed:
		w.note("pod %d: watch of %s stands at the store", x.pod.n, x.key.name)
		x.subscribed = true
	case len(x.queue) > 0:
		w.note("pod %d: hears of %s", x.pod.n, x.key.name)
		c := x.queue[0]
		x.queue = x.queue[1:]
		x.tell(c)
	default:
		w.note("pod %d: watch of %s is confirmed", x.pod.n, x.key.name)
		x.confirmed = true
		close(x.ready)
	}
}

// tell hands over a change. Who has many unread will look anyway, so that only reasons are kept.
func (x *watch) tell(c stampede.Change) {
	w := x.pod.w
	if c.Unstored != (stampede.Stamp{}) {
		x.pod.toldAt[x.key.n] = w.step
		for _, call := range w.calls {
			call.told = call.told || call.pod == x.pod && call.key == x.key && slices.Contains(call.follows, c.Unstored)
		}
	}
	for {
		select {
		case x.changes <- c:
			return
		default:
		}
		if c.Unstored == (stampede.Stamp{}) {
			return
		}
		<-x.changes
	}
}

// unread says whether a pod may not have read yet all that it was told of a key.
func (w *world) unread(p *pod, k *register) bool {
	return slices.ContainsFunc(w.watches, func(x *watch) bool { return x.pod == p && x.key == k && len(x.changes) > 0 })
}

// lose ends the subscription with all that is under way. That it was lost is told like a change.
func (x *watch) lose() {
	w := x.pod.w
	x.subscribed, x.queue = false, nil
	if x.confirmed {
		x.confirmed = false
		w.mu.Lock()
		x.ready = make(chan struct{})
		w.mu.Unlock()
		x.tell(stampede.Change{})
	}
}

// publish tells all who watch k.
func (w *world) publish(k *register, c stampede.Change) {
	for _, x := range w.watches {
		if x.key == k && x.subscribed {
			x.queue = append(x.queue, c)
		}
	}
}
