package stampede

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// run is one run of a loader, on a goroutine of its own: a loader may hang for ever, panic, or end its
// goroutine, and none of this may happen to who waits for it. The value is encoded there, too: a codec
// is no better.
type run[T any] struct {
	about  *Load[T]
	ctx    context.Context
	cancel context.CancelCauseFunc
	begun  time.Time
	fate   atomic.Int32 // whoever changes it first decides

	alone    bool          // it is for one caller: when that leaves, it is given up
	done     chan struct{} // closed at the end; what follows is written before
	returned bool
	cause    error // why its ctx had ended by then; nil: it had not
	v        T
	err      error
	took     time.Duration
	said     settings
	e        Entry  // what to store, if there is something
	bad      error  // why it cannot be stored
	data     []byte // with CopyOnRead: what the callers' values are decoded from
}

const (
	fateOpen int32 = iota
	fateEnded
	fateAbandoned
)

// start runs the loader. It does not if too many loaders have been abandoned, or Close has returned.
func (g *Guard[T]) start(ctx context.Context, load loader[T], about *Load[T], alone bool) (*run[T], error) {
	switch {
	case g.life.quitting():
		return nil, ErrClosed
	case !g.life.mayLoad(about.key, g.opts.MaxAbandoned):
		g.events.emit(EventOverloaded, about.key, 0, nil)
		return nil, ErrOverloaded
	}
	p := &g.opts.Policy
	about.said = settings{ttl: g.jittered(p.TTL), staleFor: p.StaleFor, staleIfError: p.StaleIfError}
	r := &run[T]{about: about, alone: alone, begun: time.Now(), done: make(chan struct{})}
	// The loader keeps the caller's values, not its end: others may wait for it, and who comes next
	// finds what it has loaded.
	ctx, r.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	ctx, stop := context.WithTimeoutCause(ctx, g.opts.LoadTimeout, ErrLoadTimeout)
	r.ctx = withLoading(ctx, g.place, about.key, r.done)
	g.life.loading.Add(1)
	g.events.emit(EventLoad, about.key, 0, nil)
	go func() {
		defer func() { // reached after a panic and after runtime.Goexit, too
			if !r.returned {
				r.err = ErrGoexit
				if p := recover(); p != nil {
					r.err = &PanicError{Value: p, Stack: debug.Stack()}
				}
			}
			r.took = time.Since(r.begun)
			if r.cause = context.Cause(r.ctx); r.cause == nil && over(r.ctx) != nil {
				r.cause = ErrLoadTimeout // the timer has not noticed yet, whatever the loader waited for has
			}
			inTime := r.fate.CompareAndSwap(fateOpen, fateEnded) // before the end of ctx can be taken for a caller's
			close(r.done)
			r.cancel(nil)
			stop()
			if !inTime {
				g.life.abandon(about.key, -1)
				g.events.emit(EventAbandoned, about.key, r.took, r.err)
			}
		}()
		r.v, r.err = load.call(r.ctx, about)
		g.pack(r)
		r.returned = true
	}()
	return r, nil
}

// pack makes the entry that is to be stored, if there is one.
func (g *Guard[T]) pack(r *run[T]) {
	r.said = r.about.finish()
	r.said.dontStore = r.said.dontStore || g.mode.now() != Normal
	p := &g.opts.Policy
	switch {
	case r.err == nil:
		r.e = Entry{Type: g.typ, Took: time.Since(r.begun), TTL: wholeMillis(r.said.ttl), StaleFor: wholeMillis(r.said.staleFor), StaleIfError: wholeMillis(r.said.staleIfError)}
		if !r.said.dontStore {
			r.bad = g.fill(&r.e, r.v)
		}
		if g.opts.CopyOnRead && !r.said.dontShare {
			if r.data = r.e.Data; r.data == nil { // it is not stored, but there may be others who wait
				r.data, _ = encode(g.opts.Codec, r.v)
			}
			r.said.dontShare = r.data == nil // what cannot be copied cannot be shared
		}
		g.tag(r)
	case isNotFound(r.err):
		r.v = *new(T) // a value comes only with a nil error
		r.e = Entry{Type: g.typ, Took: time.Since(r.begun), TTL: wholeMillis(p.NotFoundTTL), NotFound: true}
		r.said.dontStore = r.said.dontStore || p.NotFoundTTL == 0
		g.tag(r)
	}
}

// await waits for the end of a run. At LoadTimeout, or when the guard is closed, the loader is
// abandoned: who ignores the end of its ctx is not waited for, only counted. When the lease is lost
// the wait goes on, since the callers from before the load may have its value all the same.
func (g *Guard[T]) await(r *run[T]) (ok bool) {
	defer g.life.loading.Add(-1)
	timeout := time.NewTimer(max(g.opts.LoadTimeout-time.Since(r.begun), 0))
	defer timeout.Stop()
	var left <-chan struct{}
	if r.alone {
		left = r.ctx.Done()
	}
	select {
	case <-r.done:
		return true
	case <-timeout.C:
	case <-left:
	case <-g.life.quit:
		r.cancel(ErrClosed)
	}
	g.life.abandon(r.about.key, 1) // before the loader can count itself off
	if !r.fate.CompareAndSwap(fateOpen, fateAbandoned) {
		g.life.abandon(r.about.key, -1)
		<-r.done
		return true
	}
	r.cancel(ErrLoadTimeout)
	r.about.finish()
	return false
}

// whyGivenUp is what the callers of an abandoned loader get.
func (g *Guard[T]) whyGivenUp(r *run[T]) error {
	switch cause := context.Cause(r.ctx); {
	case errors.Is(cause, ErrClosed):
		return ErrClosed
	case r.alone && cause != nil && !errors.Is(cause, ErrLoadTimeout): // its only caller has left
		return cause
	}
	err := fmt.Errorf("%w: %q after %v", ErrLoadTimeout, r.about.key, g.opts.LoadTimeout)
	g.events.emit(EventLoadTimedOut, r.about.key, g.opts.LoadTimeout, err)
	return err
}

// result sorts out how a run ended: err is what callers get, unless ours says that it is of our making
// (the lease was lost): then they must not.
func (g *Guard[T]) result(r *run[T], key string) (ours bool, err error) {
	switch err = r.err; {
	case !r.returned: // whatever the panic's value is
		g.events.emit(EventLoadPanicked, key, r.took, err)
		return false, err
	case err == nil || isNotFound(err):
		g.events.emit(EventLoaded, key, r.took, err)
		return false, err
	case r.cause == nil:
	case errors.Is(r.cause, ErrLeaseLost): // many a driver has an error of its own for a ctx that ended
		ours = true
	case isContextErr(err) && (errors.Is(r.cause, ErrLoadTimeout) || errors.Is(r.cause, ErrClosed)):
		err = fmt.Errorf("%w: %w", r.cause, err)
	}
	g.events.emit(EventLoadFailed, key, r.took, err)
	return ours, err
}

func isContextErr(err error) bool {
	return is(err, context.Canceled) || is(err, context.DeadlineExceeded) ||
		is(err, ErrLeaseLost) || is(err, ErrLoadTimeout) || is(err, ErrClosed)
}

// is is errors.Is for a loader's error, whose methods are a loader's code: a panic in them is a no.
func is(err, target error) (yes bool) {
	defer func() { _ = recover() }()
	return errors.Is(err, target)
}

// isNotFound says whether a load found that there is no such thing. That one panicked with ErrNotFound does not say so.
func isNotFound(err error) bool {
	if !is(err, ErrNotFound) {
		return false
	}
	p, _ := err.(*PanicError) //nolint:errorlint // of a round of GetMany, as it is
	return p == nil
}

// fill adds the payload.
func (g *Guard[T]) fill(e *Entry, v T) error {
	if !g.encoded {
		e.Value = v
		return nil
	}
	data, err := encode(g.opts.Codec, v)
	if err != nil {
		return fmt.Errorf("stampede: encode: %w", err)
	}
	if m := g.opts.MaxValueSize; m > 0 && len(data) > m {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(data), m)
	}
	e.Data = data
	return nil
}

// jittered shortens d by a random share of up to Policy.Jitter.
func (g *Guard[T]) jittered(d time.Duration) time.Duration {
	return max(d-time.Duration(rand.Float64()*g.opts.Policy.Jitter*float64(d)), time.Millisecond)
}

// place tells entries apart that may have the same key.
type place struct {
	store any // nil if it cannot be compared
	space string
}

// link is a load that a ctx is part of.
type link struct {
	place place
	key   string
	done  <-chan struct{}
	up    *link
}

type linkKey struct{}

// withLoading marks ctx as that of a load, within those that ctx is part of already.
func withLoading(ctx context.Context, at place, key string, done <-chan struct{}) context.Context {
	up, _ := ctx.Value(linkKey{}).(*link)
	return context.WithValue(ctx, linkKey{}, &link{at, key, done, up})
}

// isLoading says whether ctx is part of a load of this key that goes on: to wait for it would be to
// wait for oneself.
func isLoading(ctx context.Context, at place, key string) bool {
	return isPart(ctx, func(l *link) bool { return l.key == key && l.place == at })
}

// partOfLoad says whether ctx is part of a load of any key of the guard.
func partOfLoad(ctx context.Context, at place) bool {
	return isPart(ctx, func(l *link) bool { return l.place == at })
}

func isPart(ctx context.Context, of func(*link) bool) bool {
	l, _ := ctx.Value(linkKey{}).(*link)
	for ; l != nil; l = l.up {
		if !of(l) {
			continue
		}
		select {
		case <-l.done:
		default:
			return true
		}
	}
	return false
}
