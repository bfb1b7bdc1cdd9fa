package stampede

import (
	"context"
	"sync"
	"time"
)

// Reason says why a loader runs.
type Reason uint8

// Why a loader runs.
const (
	Missing     Reason = iota // there is nothing that could be served
	WentStale                 // what there is has outlived its TTL
	NearlyStale               // it soon will, see Policy.Beta
	Asked                     // Guard.Refresh
)

// Load is what a loader given to [Guard.Fetch] is told, and what it can say about its value. The
// guard looks at what was said when the loader returns a nil error. A loader that was given up may
// still call the methods; they have no effect any more.
type Load[T any] struct {
	key     string
	reason  Reason
	leased  bool
	asOf    TagTime // read before the load began
	undated error   // why it could not be; nil: it was, or need not be
	prev    T
	has     bool

	mu   sync.Mutex // protects what follows
	over bool
	said settings

	release func(pass time.Duration) // tells those who wait to load for themselves
}

// settings are what a loader said, or the policy where it said nothing.
type settings struct {
	ttl, staleFor, staleIfError time.Duration
	dontStore, dontShare        bool
	pass                        time.Duration
	released                    bool
	tags                        []string
}

// Key returns the key.
func (l *Load[T]) Key() string { return l.key }

// Reason returns why the loader runs.
func (l *Load[T]) Reason() Reason { return l.reason }

// Leased says whether this load was elected. One that was not, because the store is in trouble, say,
// runs beside those of other pods. Its value is not stored; where the last load brought nothing, that of
// the first one is.
func (l *Load[T]) Leased() bool { return l.leased }

// Previous returns the value that was stored when this load was elected, stale or not; false if there
// was none. It is read-only.
func (l *Load[T]) Previous() (T, bool) { return l.prev, l.has }

// TTL sets how long this value is fresh, without jitter. Not above zero: it is not stored.
func (l *Load[T]) TTL(d time.Duration) {
	l.say(func(s *settings) {
		s.ttl = bounded(d)
		s.dontStore = s.dontStore || d <= 0
	})
}

// StaleFor sets how long after TTL this value is served stale at once. Not above zero: not at all.
func (l *Load[T]) StaleFor(d time.Duration) { l.say(func(s *settings) { s.staleFor = bounded(d) }) }

// StaleIfError sets how long after TTL this value is kept for when loads fail. Not above zero: not
// longer than StaleFor.
func (l *Load[T]) StaleIfError(d time.Duration) {
	l.say(func(s *settings) { s.staleIfError = bounded(d) })
}

// DoNotStore keeps this value out of the store. Callers of this pod who waited for it get it; pods
// who waited for this load then load for themselves, in parallel.
func (l *Load[T]) DoNotStore() { l.say(func(s *settings) { s.dontStore = true }) }

// DoNotShare keeps this value for the caller whose loader this is, and out of the store. All others
// who waited load for themselves, in parallel, here and in other pods.
func (l *Load[T]) DoNotShare() {
	l.say(func(s *settings) { s.dontStore, s.dontShare = true, true })
}

// Pass says that for the time d from the end of this load on no caller should wait for another one's
// load of this key: it does DoNotShare, and leaves a mark in the store. Delete, Set and Expire end it.
func (l *Load[T]) Pass(d time.Duration) {
	l.say(func(s *settings) { s.dontStore, s.dontShare, s.pass = true, true, max(d, 0) })
}

// ReleaseWaiters does DoNotShare, and does not wait for the end of this load: all others who wait
// load for themselves from now on. For loads that take long and are of no use to others, like a
// stream. Say Pass before it.
func (l *Load[T]) ReleaseWaiters() {
	l.say(func(s *settings) {
		s.dontStore, s.dontShare = true, true
		if !s.released {
			s.released = true
			l.release(s.pass)
		}
	})
}

// NotModified is for a loader to return, as in "return l.NotModified()": the previous value still
// holds and is stored anew. Without a previous value the error is ErrNoPrevious.
func (l *Load[T]) NotModified() (T, error) {
	if !l.has {
		return l.prev, ErrNoPrevious
	}
	return l.prev, nil
}

// bounded keeps what a loader says within what a store can keep: whole milliseconds, and no overflow.
func bounded(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return min(max(d, time.Millisecond), maxTTL)
}

func (l *Load[T]) say(f func(*settings)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		f(&l.said)
	}
}

// finish ends the loader's say.
func (l *Load[T]) finish() settings {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	return l.said
}

// loader is a user's function in one of its forms. A struct and not a closure: it costs no allocation
// on the way to a hit.
type loader[T any] struct {
	plain func(context.Context) (T, error)
	full  func(context.Context, *Load[T]) (T, error)
	keyed func(context.Context, string) (T, error)
	batch *batch[T]
}

func (l *loader[T]) isNil() bool {
	return l.plain == nil && l.full == nil && l.keyed == nil && l.batch == nil
}

func (l *loader[T]) call(ctx context.Context, about *Load[T]) (T, error) {
	switch {
	case l.full != nil:
		return l.full(ctx, about)
	case l.keyed != nil:
		return l.keyed(ctx, about.key)
	case l.batch != nil:
		return l.batch.get(ctx, about.key)
	}
	return l.plain(ctx)
}

// Getter is a guard with a loader.
type Getter[T any] struct {
	g    *Guard[T]
	load loader[T]
}

// Getter returns g with its loader, which is given the key. Its Get does not need a closure, and so no
// allocation, at each call.
func (g *Guard[T]) Getter(load func(ctx context.Context, key string) (T, error)) *Getter[T] {
	return &Getter[T]{g, loader[T]{keyed: load}}
}

// Get is [Guard.Get] with the getter's loader.
func (b *Getter[T]) Get(ctx context.Context, key string) (T, error) {
	if b.load.keyed != nil {
		if v, ok := b.g.glance(ctx, key); ok {
			return v, nil
		}
	}
	r, err := b.g.get(ctx, key, b.load)
	return r.Value, err
}

// Fetch is Get for callers who want to know where the value is from.
func (b *Getter[T]) Fetch(ctx context.Context, key string) (Result[T], error) {
	return b.g.get(ctx, key, b.load)
}
