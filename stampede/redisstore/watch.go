package redisstore

import (
	"strings"
	"sync"

	"github.com/herdgate/herdgate/internal/entry"
	"github.com/herdgate/herdgate/internal/subs"
	"github.com/herdgate/herdgate/stampede"
)

// Watch implements [stampede.Store]: a subscription to the channel of key, on the one connection that all
// watches of the Store share. In a cluster too: a message is passed on to all nodes.
func (s *Store) Watch(key stampede.Key) stampede.Watch {
	n, err := namesOf(key)
	if err != nil || s.closed.Load() {
		return idleWatch{ready: make(chan struct{}), c: make(chan stampede.Change)}
	}
	w := &watch{hub: s.hub, check: n.Check, c: make(chan stampede.Change, pendingChanges)}
	w.topic = s.hub.Join(n.channel(), w)
	return w
}

// Drops implements [stampede.Store].
func (s *Store) Drops(space string, fn func(key string)) (stop func()) {
	if space == "" || strings.ContainsAny(space, "{}") || s.closed.Load() {
		return func() {}
	}
	d := &drops{fn: fn}
	t := s.hub.Join(dropChannel(space), d)
	return sync.OnceFunc(func() { s.hub.Leave(t, d) })
}

// pendingChanges is how many changes wait in a Watch's channel. A plain change need not be told when
// another one waits: who takes that will look at the store after this one has happened.
const pendingChanges = 4

// watch is a stampede.Watch.
type watch struct {
	hub   *subs.Hub
	topic *subs.Topic
	check uint64
	c     chan stampede.Change
	once  sync.Once
}

func (w *watch) Ready() <-chan struct{}    { return w.hub.Ready(w.topic) }
func (w *watch) C() <-chan stampede.Change { return w.c }
func (w *watch) Close()                    { w.once.Do(func() { w.hub.Leave(w.topic, w) }) }

// Lost implements [subs.Listener].
func (w *watch) Lost() { w.tell(stampede.Change{}) }

// Message implements [subs.Listener]. It reads "c", a change; "u" and a stamp: that lease's load ended
// without a stored value; "v" and an entry: that was committed. Anything else is from a later version,
// and a change as well.
func (w *watch) Message(payload string) {
	var c stampede.Change
	switch {
	case len(payload) == 1+len(c.Unstored) && payload[0] == 'u':
		copy(c.Unstored[:], payload[1:])
	case len(payload) > 1 && payload[0] == 'v':
		e := entry.Decode([]byte(payload[1:]), w.check)
		e.Left = e.TTL + e.Window()
		if e.Fault == nil {
			c.Stored = &e
		}
	}
	w.tell(c)
}

func (w *watch) tell(c stampede.Change) {
	for {
		select {
		case w.c <- c:
			return
		default:
		}
		if c.Unstored == (stampede.Stamp{}) {
			return
		}
		select { // an unstored load must be told: make room
		case <-w.c:
		default:
		}
	}
}

// drops is a listener of a drop channel.
type drops struct{ fn func(key string) }

// Message implements [subs.Listener].
func (d *drops) Message(payload string) { d.fn(payload) }

// Lost implements [subs.Listener].
func (d *drops) Lost() { d.fn("") }

// idleWatch never tells anything: its key cannot be stored, or the Store is closed.
type idleWatch struct {
	ready chan struct{}
	c     chan stampede.Change
}

func (w idleWatch) Ready() <-chan struct{}    { return w.ready }
func (w idleWatch) C() <-chan stampede.Change { return w.c }
func (idleWatch) Close()                      {}
