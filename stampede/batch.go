package stampede

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// batch is where the loaders of many keys meet. A flight for each of them stands for election; those that
// are elected call their loaders, which wait until it is known of all others that they will not: because
// they have ended, or follow another pod, or belong to another caller. Then one of the loaders runs the load
// for all.
//
// Why nobody waits for ever for the others: until a flight has settled it does nothing but steps of the
// store, which its budget bounds. It settles before it begins to wait for another pod's load, so two pods whose
// batches overlap do not wait for each other. Who comes when all have settled, since the load that it
// followed came to nothing, is in another round.
//
// For MaxLoads and FleetLoads a batch is one load: its flights share the seat that the first one of them takes, until
// the last one gives it back, and its rounds run one after the other.
type batch[T any] struct {
	load   ManyLoader[T]
	serial bool // one round at a time

	mu      sync.Mutex // protects what follows
	pending map[string]struct{}
	open    *round[T]           // gathers
	last    *round[T]           // the latest that was opened; only if serial
	seat    *seat               // nil: none is taken
	users   int                 // of it
	taking  chan struct{}       // closed when who takes one has it, or has given up; nil: nobody does
	waits   map[string]struct{} // for a seat: a round that has one need not wait for these
}

// round is a call of a ManyLoader.
type round[T any] struct {
	late bool          // all had settled when it was opened
	prev *round[T]     // that is to end first
	fire chan struct{} // closed when there is nobody else to come
	done chan struct{} // closed at the end; values and err are written before

	keys  []string
	links []*link
	ctxs  []context.Context

	values map[string]T
	err    error
}

func newBatch[T any](load ManyLoader[T], serial bool, keys []string) *batch[T] {
	b := &batch[T]{load: load, serial: serial, pending: make(map[string]struct{}, len(keys))}
	for _, key := range keys {
		b.pending[key] = struct{}{}
	}
	return b
}

// expect says that key's loader may come.
func (b *batch[T]) expect(key string) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pending[key] = struct{}{}
}

// settle says that key's loader has come, or will not for now. A nil batch has nothing to settle.
func (b *batch[T]) settle(key string) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settled(key)
}

// settled is called with b.mu held.
func (b *batch[T]) settled(key string) {
	delete(b.pending, key)
	b.check()
}

// check seals the open round when there is nobody else to come. It is called with b.mu held.
func (b *batch[T]) check() {
	if b.open == nil || b.open.late {
		return
	}
	for key := range b.pending {
		if _, waits := b.waits[key]; !waits {
			return
		}
	}
	b.seal()
}

// seal is called with b.mu held, and a round open.
func (b *batch[T]) seal() {
	close(b.open.fire)
	b.open = nil
}

// share returns a part in the seat of the batch for the load of key. If there is none, again is closed when it is time to
// ask for it again; if that is nil as well, it is up to the caller to take one, and to call took.
func (b *batch[T]) share(key string) (part *seat, again <-chan struct{}) {
	if b == nil {
		return nil, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seat != nil {
		return b.part(), nil
	}
	if b.waits == nil {
		b.waits = make(map[string]struct{})
	}
	b.waits[key] = struct{}{}
	b.check()
	if b.taking != nil {
		return nil, b.taking
	}
	b.taking = make(chan struct{})
	return nil, nil
}

// took makes a seat that was taken that of the batch; nil if there was none to have. It returns the taker's part.
func (b *batch[T]) took(s *seat) *seat {
	if b == nil {
		return s
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.taking)
	b.taking, b.seat = nil, s
	if s == nil {
		return nil
	}
	b.waits = nil // all of them have a seat now
	return b.part()
}

// part is called with b.mu held, and a seat taken.
func (b *batch[T]) part() *seat {
	b.users++
	return &seat{of: b.seat, leave: func() (last bool) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.users--; b.users == 0 {
			b.seat = nil
			return true
		}
		return false
	}}
}

// get is the loader of a key.
func (b *batch[T]) get(ctx context.Context, key string) (v T, err error) {
	b.mu.Lock()
	r := b.open
	first := r == nil
	if first {
		r = &round[T]{late: len(b.pending) == 0, fire: make(chan struct{}), done: make(chan struct{})}
		b.open = r
		if b.serial {
			r.prev, b.last = b.last, r
		}
	}
	own, _ := ctx.Value(linkKey{}).(*link)
	r.keys, r.links, r.ctxs = append(r.keys, key), append(r.links, own), append(r.ctxs, ctx)
	b.settled(key)
	b.mu.Unlock()

	if first {
		b.run(ctx, r)
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		if !errors.Is(context.Cause(ctx), ErrLeaseLost) {
			return v, context.Cause(ctx)
		}
		// It goes on for the other keys: who waits may have the value of this one. Not for ever: what is given up
		// is counted, and a loader that hangs is one, however many keys it was called for.
		end, _ := ctx.Deadline()
		timeout := time.NewTimer(time.Until(end))
		defer timeout.Stop()
		select {
		case <-r.done:
		case <-timeout.C:
			return v, ErrLoadTimeout
		}
	}
	if r.err != nil {
		return v, r.err
	}
	v, ok := r.values[key]
	if !ok {
		return v, ErrNotFound
	}
	return v, nil
}

// gatherFor is for how long a late round is open: keys whose leader in another pod died come together.
const gatherFor = time.Millisecond

// run runs a round, on the goroutine of the first of its loaders.
func (b *batch[T]) run(ctx context.Context, r *round[T]) {
	if r.late {
		gather := time.NewTimer(gatherFor)
		select {
		case <-gather.C:
		case <-ctx.Done():
			gather.Stop()
		}
		b.mu.Lock()
		b.seal()
		b.mu.Unlock()
	}
	<-r.fire
	if r.prev != nil {
		<-r.prev.done
		r.prev = nil
	}
	if r.err = r.over(); r.err != nil {
		close(r.done)
		return
	}
	ctx, end := r.context(ctx)
	defer end()
	returned := false
	defer func() {
		if !returned {
			r.err = ErrGoexit
			if p := recover(); p != nil {
				r.err = &PanicError{Value: p, Stack: debug.Stack()}
				defer panic(p) // the first of the loaders panics itself
			}
		}
		close(r.done)
	}()
	r.values, r.err = b.load(ctx, r.keys)
	returned = true
}

// over returns why a round need not begin: all its loads have ended.
func (r *round[T]) over() (err error) {
	for _, c := range r.ctxs {
		if err = context.Cause(c); err == nil {
			return nil
		}
	}
	return err
}

// context returns the ctx for a round: that of its first loader, part of the loads of all its keys, which
// ends when all of theirs have ended.
func (r *round[T]) context(first context.Context) (ctx context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(first))
	var last time.Time
	for _, c := range r.ctxs {
		if d, ok := c.Deadline(); ok && d.After(last) {
			last = d
		}
	}
	ctx, stop := context.WithDeadlineCause(ctx, last, ErrLoadTimeout)
	for _, l := range r.links[1:] {
		ctx = withLoading(ctx, l.place, l.key, l.done) //nolint:fatcontext // a link for each key
	}
	var left atomic.Int32
	left.Store(int32(len(r.ctxs)))
	stops := make([]func() bool, len(r.ctxs))
	for i, c := range r.ctxs {
		stops[i] = context.AfterFunc(c, func() {
			if left.Add(-1) == 0 {
				cancel(context.Cause(c))
			}
		})
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(nil)
		stop()
	}
}
