// Package subs shares one connection among all subscriptions to Redis channels, and notices when messages
// may have been lost.
package subs

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Listener is told what is published on a channel. Its methods must not block.
type Listener interface {
	Message(payload string)
	Lost() // the subscription was lost, messages with it
}

// Config says where a Hub belongs to. All fields are needed.
type Config struct {
	// Ctx ends the Hub.
	Ctx context.Context
	// Redis is where to subscribe.
	Redis redis.UniversalClient
	// Spawn runs a goroutine of the owner's, or returns false when there will be none any more.
	Spawn func(func()) bool
	// Lost is told of each connection that was lost or could not be had.
	Lost func(error)
}

// Topic is a channel that somebody listens to. Its fields are protected by Hub.mu.
type Topic struct {
	channel   string
	listeners []Listener
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

// Hub keeps subscriptions. Channels are joined and left at once; a goroutine, which lives from the first
// Join to the end of Config.Ctx, brings Redis in line with that.
type Hub struct {
	cfg   Config
	wake  chan struct{} // something to bring in line
	again chan struct{} // Redis is back: no need to wait any longer

	mu     sync.Mutex // protects what follows
	topics map[string]*Topic
	lines  map[string]*line
	dirty  map[string]struct{} // channels whose line may have to change
	linger *time.Timer
	runs   bool
}

// New returns a Hub without subscriptions. Nothing runs before the first Join.
func New(cfg Config) *Hub {
	return &Hub{
		cfg: cfg, wake: make(chan struct{}, 1), again: make(chan struct{}, 1),
		topics: map[string]*Topic{}, lines: map[string]*line{}, dirty: map[string]struct{}{},
	}
}

// Join makes l a listener of channel.
func (h *Hub) Join(channel string, l Listener) *Topic {
	h.mu.Lock()
	t := h.topics[channel]
	if t == nil {
		t = &Topic{channel: channel, ready: make(chan struct{})}
		h.topics[channel] = t
		h.touch(channel)
	}
	t.listeners = append(t.listeners, l)
	if !h.runs {
		h.runs = h.cfg.Spawn(h.run)
	}
	h.mu.Unlock()
	poke(h.wake)
	return t
}

// Leave ends what Join began.
func (h *Hub) Leave(t *Topic, l Listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// A new slice: the old one may be in use by those who tell.
	kept := make([]Listener, 0, len(t.listeners))
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
func (h *Hub) unlinger() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.linger != nil {
		h.linger.Stop()
	}
}

// Stir tells all who listen to look for themselves: Redis has stopped answering, and whoever follows a
// lease need not wait for its end to find out.
func (h *Hub) Stir() {
	h.mu.Lock()
	var to []Listener
	for _, t := range h.topics {
		to = append(to, t.listeners...)
	}
	h.mu.Unlock()
	for _, l := range to {
		l.Lost()
	}
}

// Ready returns a channel that is closed while the subscription of t stands, also by being closed already.
// After a loss Ready returns another one.
func (h *Hub) Ready(t *Topic) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return t.ready
}

// touch notes that channel's line may have to change, or already stands. The caller holds mu.
func (h *Hub) touch(channel string) {
	h.dirty[channel] = struct{}{}
	h.settle(channel)
}

// settle brings a topic's ready channel in line with its line. The caller holds mu.
func (h *Hub) settle(channel string) {
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
func (h *Hub) changes() (subscribe, unsubscribe []string) {
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
func (h *Hub) confirmed(channel string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l := h.lines[channel]; l != nil && l.awaited > 0 {
		l.awaited--
		h.settle(channel)
	}
}

// published passes a message on.
func (h *Hub) published(channel, payload string) {
	h.mu.Lock()
	var to []Listener
	if t := h.topics[channel]; t != nil {
		to = t.listeners[:len(t.listeners):len(t.listeners)]
	}
	h.mu.Unlock()
	for _, l := range to {
		l.Message(payload)
	}
}

// lost forgets what stood on a connection that is gone, and tells everybody.
func (h *Hub) lost() {
	h.mu.Lock()
	clear(h.lines)
	var to []Listener
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
		l.Lost()
	}
}

// Retry cuts short the wait for the next attempt to connect.
func (h *Hub) Retry() { poke(h.again) }

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
