package redisstore

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/herdgate/herdgate/stampede"
)

const (
	// tripAfter failures in a row open the breaker. With one, a single lost packet would.
	tripAfter = 3
	// probeEvery is how often an open breaker looks whether Redis is back. Probes may overlap: while
	// one waits for its time to run out the next may already be answered.
	probeEvery = 50 * time.Millisecond
)

// breaker takes away what an unavailable Redis costs: after tripAfter failures in a row no call is let
// through until a probe, on a goroutine of its own, was answered.
//
// The state machine is gobreaker's. It takes a lock and the time twice for each request, which would
// be a tenth of a read. So it hears of failures, and of the first success after them; whether it is open
// is mirrored in a word.
type breaker struct {
	cb    *gobreaker.CircuitBreaker[struct{}]
	shut  atomic.Pointer[unavailableError] // nil: calls are let through
	dirty atomic.Bool                      // there was a failure since the last success

	store *Store
	node  string
	baton chan struct{} // held by the outage whose changes of state are being told

	mu    sync.Mutex // protects cause, key, trips; taken under gobreaker's lock, never the other way round
	cause error      // the last failure
	key   string     // what that failure was about: an entry's name, may be empty
	trips int        // openings not yet taken up
}

func newBreaker(s *Store, node string) *breaker {
	b := &breaker{store: s, node: node, baton: make(chan struct{}, 1)}
	b.cb = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		// Open until a probe's success is reported; only probes are, and each at once.
		Timeout:     time.Nanosecond,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= tripAfter },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			switch {
			case from == gobreaker.StateClosed: // else a late failure, which finds it half-open
				b.mu.Lock()
				b.trips++
				b.shut.Store(&unavailableError{b.cause})
				b.mu.Unlock()
			case to == gobreaker.StateClosed:
				b.shut.Store(nil)
			}
		},
	})
	return b
}

// allow returns the error to fail with while the breaker is open.
func (b *breaker) allow() error {
	if e := b.shut.Load(); e != nil {
		return e
	}
	return nil
}

// report tells what came of a request about key, once Redis answered or the Store's own time for it had
// run out. What ended because a caller had no more time or was cancelled must not be reported.
func (b *breaker) report(key string, err error) {
	if !down(err) {
		if b.dirty.Load() && b.shut.Load() == nil {
			b.dirty.Store(false)
			b.tell(nil)
		}
		return
	}
	if b.store.ctx.Err() != nil {
		return // the Store was closed under the request
	}
	b.store.lanes.lost()
	if b.shut.Load() != nil {
		return // only probes decide
	}
	b.mu.Lock()
	b.cause, b.key = err, key
	b.mu.Unlock()
	b.dirty.Store(true)
	b.tell(err)

	b.mu.Lock()
	tripped := b.trips > 0
	b.trips = 0
	b.mu.Unlock()
	if tripped {
		b.store.stats.outages.Add(1)
		b.store.spawn(func() { b.outage(err) })
	}
}

func (b *breaker) tell(err error) {
	_, _ = b.cb.Execute(func() (struct{}, error) { return struct{}{}, err })
}

// outage probes until Redis answers, and tells of both changes of state.
func (b *breaker) outage(cause error) {
	s := b.store
	select {
	case b.baton <- struct{}{}:
		defer func() { <-b.baton }()
	case <-s.ctx.Done():
		return
	}
	log := s.opt.Logger
	if b.node != "" {
		log = log.With("node", b.node)
	}
	log.Warn("redisstore: Redis does not answer, going on without it", "error", cause)
	s.hub.Stir()
	s.states.down(cause)
	began := time.Now()
	if !b.untilAnswered() {
		return // closed
	}
	b.dirty.Store(false)
	b.tell(nil) // half-open by now, so this closes it
	log.Info("redisstore: Redis answers again", "after", time.Since(began).Round(time.Millisecond))
	s.hub.Retry()
	s.states.up()
}

// states tells of what becomes of Redis as a whole: it does not answer when a part of it does not.
type states struct {
	obs   stampede.Observer // may be nil
	token chan int          // holds how many breakers are open, except while someone tells
}

func newStates(obs stampede.Observer) *states {
	s := &states{obs: obs, token: make(chan int, 1)}
	s.token <- 0
	return s
}

func (s *states) down(cause error) {
	n := <-s.token
	defer func() { s.token <- n + 1 }()
	if n == 0 {
		s.tell(stampede.Event{Kind: stampede.EventStoreDown, Err: cause})
	}
}

func (s *states) up() {
	n := <-s.token
	defer func() { s.token <- n - 1 }()
	if n == 1 {
		s.tell(stampede.Event{Kind: stampede.EventStoreUp})
	}
}

// tell survives a panic of the observer, as guards do.
func (s *states) tell(e stampede.Event) {
	defer func() { _ = recover() }()
	if s.obs != nil {
		s.obs.Observe(e)
	}
}

// report tells l's breaker what came of a request about key.
func (s *Store) report(l *lane, key string, err error) {
	if err == nil && s.lanes.cluster != nil {
		s.lanes.routed.Store(true)
	}
	l.breaker.report(key, err)
}

// untilAnswered probes with what failed last: in a cluster, the node that does not answer is the one
// that must. It returns false when the Store is closed.
func (b *breaker) untilAnswered() bool {
	ctx, cancel := context.WithCancel(b.store.ctx)
	defer cancel()
	atOnce := int(b.store.opt.Timeout/probeEvery) + 1 // so that one begins at each tick
	turn := make(chan struct{}, min(atOnce, 8))
	good := make(chan struct{}, 1)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-good:
			return true
		case <-timer.C:
		}
		// Pods that lost Redis together must not come back together.
		timer.Reset(probeEvery - rand.N(probeEvery/4))
		select {
		case turn <- struct{}{}:
		default:
			continue
		}
		b.mu.Lock()
		key := b.key
		b.mu.Unlock()
		b.store.spawn(func() {
			defer func() { <-turn }()
			ctx, cancel := context.WithTimeout(ctx, b.store.opt.Timeout)
			defer cancel()
			if down(b.store.probe(ctx, key)) {
				if b.store.ctx.Err() == nil {
					b.store.lanes.lost()
				}
				return
			}
			select {
			case good <- struct{}{}:
			default:
			}
		})
	}
}
