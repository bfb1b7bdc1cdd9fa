package redisstore

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// Watch implements [stampede.Store]: a subscription to the channel of key, on the one connection that all
// watches of the Store share. In a cluster too: a message is passed on to all nodes.
func (s *Store) Watch(key stampede.Key) stampede.Watch {
	n, err := namesOf(key)
	if err != nil || s.closed.Load() {
		return idleWatch{ready: make(chan struct{}), c: make(chan stampede.Change)}
	}
	w := &watch{hub: s.hub, c: make(chan stampede.Change, pendingChanges)}
	w.topic = s.hub.join(n.channel(), w)
	return w
}

// Drops implements [stampede.Store].
func (s *Store) Drops(space string, fn func(key string)) (stop func()) {
	if space == "" || strings.ContainsAny(space, "{}") || s.closed.Load() {
		return func() {}
	}
	d := &drops{fn: fn}
	t := s.hub.join(dropChannel(space), d)
	return sync.OnceFunc(func() { s.hub.leave(t, d) })
}

// pendingChanges is how many changes wait in a Watch's channel. A plain change need not be told when
// another one waits: who takes that will look at the store after this one has happened.
const pendingChanges = 4

// listener is told what is published on a topic. Its methods must not block.
type listener interface {
	message(payload string)
	lost() // the subscription was lost, messages with it
}

// watch is a stampede.Watch.
type watch struct {
	hub   *hub
	topic *topic
	c     chan stampede.Change
	once  sync.Once
}

func (w *watch) Ready() <-chan struct{}    { return w.hub.ready(w.topic) }
func (w *watch) C() <-chan stampede.Change { return w.c }
func (w *watch) Close()                    { w.once.Do(func() { w.hub.leave(w.topic, w) }) }
func (w *watch) lost()                     { w.tell(stampede.Change{}) }

// message reads "c", a change, or "u" and a stamp: that lease's load ended without a stored value.
// Anything else is from a later version, and a change as well.
func (w *watch) message(payload string) {
	var c stampede.Change
	if len(payload) == 1+len(c.Unstored) && payload[0] == 'u' {
		copy(c.Unstored[:], payload[1:])
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
		if c == (stampede.Change{}) {
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

func (d *drops) message(payload string) { d.fn(payload) }
func (d *drops) lost()                  {}

// idleWatch never tells anything: its key cannot be stored, or the Store is closed.
type idleWatch struct {
	ready chan struct{}
	c     chan stampede.Change
}

func (w idleWatch) Ready() <-chan struct{}    { return w.ready }
func (w idleWatch) C() <-chan stampede.Change { return w.c }
func (idleWatch) Close()                      {}

// topic is a channel that somebody listens to. Its fields are protected by hub.mu.
type topic struct {
	channel   string
	listeners []listener
	ready     chan struct{} // closed while the subscription stands
	stands    bool
}

// line is what was sent to Redis about a channel, on the connection that is in use. Confirmations come
// in the order in which it was sent, so a subscription stands when all are in and the last was to
// subscribe.
type line struct {
	subscribed bool // by the last command
	awaited    int  // confirmations
}

// hub keeps the subscriptions of a Store. Channels are joined and left at once; a goroutine, which lives
// from the first join to Close, brings Redis in line with that.
type hub struct {
	store *Store
	wake  chan struct{} // something to bring in line
	again chan struct{} // Redis is back: no need to wait any longer

	mu     sync.Mutex // protects what follows
	topics map[string]*topic
	lines  map[string]*line
	dirty  map[string]struct{} // channels whose line may have to change
	linger *time.Timer
	runs   bool
}

func newHub(s *Store) *hub {
	return &hub{
		store: s, wake: make(chan struct{}, 1), again: make(chan struct{}, 1),
		topics: map[string]*topic{}, lines: map[string]*line{}, dirty: map[string]struct{}{},
	}
}

func (h *hub) join(channel string, l listener) *topic {
	h.mu.Lock()
	t := h.topics[channel]
	if t == nil {
		t = &topic{channel: channel, ready: make(chan struct{})}
		h.topics[channel] = t
		h.touch(channel)
	}
	t.listeners = append(t.listeners, l)
	if !h.runs {
		h.runs = h.store.spawn(h.run)
	}
	h.mu.Unlock()
	poke(h.wake)
	return t
}

func (h *hub) leave(t *topic, l listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// A new slice: the old one may be in use by those who tell.
	kept := make([]listener, 0, len(t.listeners))
	for _, x := range t.listeners {
		if x != l {
			kept = append(kept, x)
		}
	}
	t.listeners = kept
	if len(kept) == 0 && h.topics[t.channel] == t {
		delete(h.topics, t.channel)
		h.touch(t.channel)
		// Redis is told by and by, of many channels at once; with the next that is joined, at the latest
		// after lingerFor. Until then whoever joins it again finds it subscribed.
		if h.linger == nil {
			h.linger = time.AfterFunc(lingerFor, func() { poke(h.wake) })
		} else {
			h.linger.Reset(lingerFor)
		}
	}
}

// lingerFor is how long a channel stays subscribed after the last listener left.
const lingerFor = time.Second

// unlinger is for when the hub ends.
func (h *hub) unlinger() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.linger != nil {
		h.linger.Stop()
	}
}

// stir tells all who listen to look for themselves: Redis has stopped answering, and whoever follows a
// lease need not wait for its end to find out.
func (h *hub) stir() {
	h.mu.Lock()
	var to []listener
	for _, t := range h.topics {
		to = append(to, t.listeners...)
	}
	h.mu.Unlock()
	for _, l := range to {
		l.lost()
	}
}

func (h *hub) ready(t *topic) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return t.ready
}

// touch notes that channel's line may have to change, or already stands. The caller holds mu.
func (h *hub) touch(channel string) {
	h.dirty[channel] = struct{}{}
	h.settle(channel)
}

// settle brings a topic's ready channel in line with its line. The caller holds mu.
func (h *hub) settle(channel string) {
	t, l := h.topics[channel], h.lines[channel]
	if t != nil && !t.stands && l != nil && l.subscribed && l.awaited == 0 {
		t.stands = true
		close(t.ready)
	}
	if t == nil && l != nil && !l.subscribed && l.awaited == 0 {
		delete(h.lines, channel)
	}
}

// changes returns what must be sent to Redis, and notes it as sent.
func (h *hub) changes() (subscribe, unsubscribe []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for channel := range h.dirty {
		wanted := h.topics[channel] != nil
		l := h.lines[channel]
		switch {
		case wanted && (l == nil || !l.subscribed):
			if l == nil {
				l = &line{}
				h.lines[channel] = l
			}
			l.subscribed = true
			l.awaited++
			subscribe = append(subscribe, channel)
		case !wanted && l != nil && l.subscribed:
			l.subscribed = false
			l.awaited++
			unsubscribe = append(unsubscribe, channel)
		}
	}
	clear(h.dirty)
	return subscribe, unsubscribe
}

// confirmed notes that Redis confirmed a command about channel.
func (h *hub) confirmed(channel string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l := h.lines[channel]; l != nil && l.awaited > 0 {
		l.awaited--
		h.settle(channel)
	}
}

// published passes a message on.
func (h *hub) published(channel, payload string) {
	h.mu.Lock()
	var to []listener
	if t := h.topics[channel]; t != nil {
		to = t.listeners[:len(t.listeners):len(t.listeners)]
	}
	h.mu.Unlock()
	for _, l := range to {
		l.message(payload)
	}
}

// lost forgets what stood on a connection that is gone, and tells everybody.
func (h *hub) lost() {
	h.mu.Lock()
	clear(h.lines)
	var to []listener
	for channel, t := range h.topics {
		h.dirty[channel] = struct{}{}
		if t.stands {
			t.stands, t.ready = false, make(chan struct{})
		}
		to = append(to, t.listeners...)
	}
	to = slices.Clip(to)
	h.mu.Unlock()
	for _, l := range to {
		l.lost()
	}
}

// retry cuts short the wait for the next attempt to connect.
func (h *hub) retry() { poke(h.again) }

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
