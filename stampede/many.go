package stampede

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// BatchReader is what a [Store] may implement to read many keys at once: one round trip, and one for
// each node of a cluster.
type BatchReader interface {
	// ReadMany does Read for each of keys. Both answers are as long as keys.
	ReadMany(ctx context.Context, keys []Key) ([]Entry, []error)
}

// ManyLoader loads what is missing of many keys. It may return less than it was asked for: what is not in
// its answer is taken as [ErrNotFound].
type ManyLoader[T any] func(ctx context.Context, keys []string) (map[string]T, error)

// GetMany returns the values for keys. Each key is treated as Get treats it, with an entry, a TTL, a
// lease and stale windows of its own, and with the same promises; but all are read together, and those that
// this pod is elected to load are loaded together: mostly in one call of load, in more when there are more
// than 256 of them, or when another pod's load of some has come to nothing. Stale values are returned at
// once and loaded behind, together as well. Keys that others are loading are waited for.
//
// Keys that are known not to exist are not in the answer. The error joins what went wrong with single
// keys, each error wrapped with its key, or is ctx's; the answer holds the others all the same. Duplicates in keys
// do no harm.
//
// A ManyLoader cannot give tags to its values; those with tags, from other loaders, are served as by Get.
//
// For MaxLoads and FleetLoads a call of GetMany is one load. load must not panic for a single bad key: that
// is the fate of all keys that were loaded with it.
func (g *Guard[T]) GetMany(ctx context.Context, keys []string, load ManyLoader[T]) (map[string]T, error) {
	if load == nil && g != nil && g.store != nil {
		return nil, ErrNilLoader
	}
	found := make(map[string]T, len(keys))
	var rest []string
	seen := make(map[string]struct{}, len(keys))
	for _, key := range keys {
		if err := g.checkKey(ctx, key); err != nil {
			return nil, err
		}
		if _, dup := seen[key]; !dup {
			seen[key] = struct{}{}
			rest = append(rest, key)
		}
	}
	if err := g.checkGuard(ctx); err != nil || len(rest) == 0 {
		return found, err
	}
	missing := make([]missed[T], len(rest))
	for i, key := range rest {
		missing[i].key = key
	}
	if g.mode.now() != Bypass {
		missing = g.serve(ctx, rest, load, found)
	}
	var errs []error
	for len(missing) > 0 && over(ctx) == nil {
		n := min(len(missing), manyAtOnce)
		errs = append(errs, g.getMissing(ctx, missing[:n], load, found))
		missing = missing[n:]
	}
	return found, errors.Join(append(errs, over(ctx))...)
}

// manyAtOnce is how many keys are loaded by one call of a ManyLoader at most, and read at once.
const manyAtOnce = 256

// missed is a key of which there was nothing to serve, and what was read of it, if anything.
type missed[T any] struct {
	key  string
	was  *lookup[T]
	left time.Duration // of the budget
}

// serve puts what can be served at once into found, and has loaded behind what is stale of it. It returns
// the rest.
func (g *Guard[T]) serve(ctx context.Context, keys []string, load ManyLoader[T], found map[string]T) (missing []missed[T]) {
	behind := newBatch(load, []string{""}) // no round before all were looked at
	defer behind.settle("")
	var ask []string
	for _, key := range keys {
		p, now := g.local.hit(key)
		if p == nil {
			ask = append(ask, key)
			continue
		}
		r, err := g.hit(ctx, key, loader[T]{batch: behind}, p, now)
		switch {
		case err == nil:
			found[key] = r.Value
		case !is(err, ErrNotFound):
			ask = append(ask, key)
		}
	}
	for len(ask) > 0 {
		n := min(len(ask), manyAtOnce)
		for i, was := range g.readMany(ctx, ask[:n]) {
			r, ok, err := g.served(ctx, ask[i], loader[T]{batch: behind}, &was)
			switch {
			case !ok:
				missing = append(missing, missed[T]{ask[i], &was, max(g.opts.StoreBudget-time.Since(was.begun), 1)})
			case err == nil:
				found[ask[i]] = r.Value
			}
		}
		ask = ask[n:]
	}
	return missing
}

// readMany is read for many keys.
func (g *Guard[T]) readMany(ctx context.Context, keys []string) []lookup[T] {
	out := make([]lookup[T], len(keys))
	full, marks := make([]Key, len(keys)), make([]mark, len(keys))
	budget := g.opts.CopyBudget
	for i, key := range keys {
		full[i], marks[i] = Key{g.space, key}, g.local.begin(key)
		if !g.local.has(key) {
			budget = g.opts.StoreBudget
		}
	}
	begun := time.Now()
	step := within(ctx, begun.Add(budget))
	defer step.release()
	var entries []Entry
	var errs []error
	if many, ok := g.store.(BatchReader); ok {
		entries, errs = many.ReadMany(step, full)
	} else {
		entries, errs = make([]Entry, len(keys)), make([]error, len(keys))
		for i := range full {
			entries[i], errs[i] = g.store.Read(step, full[i])
		}
	}
	for i := range keys {
		out[i] = lookup[T]{e: entries[i], err: errs[i], begun: begun}
	}
	g.judgeMany(step, keys, out)
	for i, key := range keys {
		g.learn(ctx, key, &out[i], marks[i])
	}
	return out
}

// getMissing gets keys of which nothing could be served, each as Get does, with loaders that meet in a
// batch.
func (g *Guard[T]) getMissing(ctx context.Context, keys []missed[T], load ManyLoader[T], found map[string]T) error {
	names := make([]string, len(keys))
	for i := range keys {
		names[i] = keys[i].key
	}
	b := newBatch(load, names)
	s, err := g.takeSeat(ctx, names[0], time.Now(), nil, true)
	if err != nil {
		return err
	}
	b.seat = func() { g.leaveSeat(s) }
	defer b.leave()
	var (
		mu   sync.Mutex // protects found and errs
		errs []error
		wg   sync.WaitGroup
	)
	for _, k := range keys {
		wg.Go(func() {
			defer b.settle(k.key)
			r, err := g.getOne(ctx, k, loader[T]{batch: b})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				found[k.key] = r.Value
			case !is(err, ErrNotFound) && over(ctx) == nil:
				errs = append(errs, fmt.Errorf("%q: %w", k.key, err))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (g *Guard[T]) getOne(ctx context.Context, k missed[T], load loader[T]) (Result[T], error) {
	if k.was == nil {
		return g.get(ctx, k.key, load)
	}
	c := caller[T]{g: g, ctx: ctx, key: k.key, load: load, q: ask[T]{wait: true, left: k.left}}
	return c.rounds(*k.was)
}

// batch is where the loaders of many keys meet. A flight for each of them stands for election; those that
// are elected call their loaders, which wait until it is known of all others that they will not: because
// they have ended, or follow another pod, or belong to another caller. Then one of the loaders runs the load
// for all.
//
// Why nobody waits for ever for the others: until a flight has settled it does nothing but steps of the
// store, which its budget bounds. It settles before it begins to wait for another pod's load, so two pods whose
// batches overlap do not wait for each other. Who comes when all have settled, since the load that it
// followed came to nothing, is in another round.
type batch[T any] struct {
	load ManyLoader[T]
	seat func()

	mu      sync.Mutex // protects what follows
	pending map[string]struct{}
	open    *round[T] // gathers
	users   int       // of the seat: the call, and flights that may load
}

// round is a call of a ManyLoader.
type round[T any] struct {
	late bool          // all had settled when it was opened
	fire chan struct{} // closed when there is nobody else to come
	done chan struct{} // closed at the end; values and err are written before

	keys  []string
	links []*link
	ctxs  []context.Context

	values map[string]T
	err    error
}

func newBatch[T any](load ManyLoader[T], keys []string) *batch[T] {
	b := &batch[T]{load: load, pending: make(map[string]struct{}, len(keys)), users: 1}
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
	if len(b.pending) == 0 && b.open != nil && !b.open.late {
		b.seal()
	}
}

// seal is called with b.mu held, and a round open.
func (b *batch[T]) seal() {
	close(b.open.fire)
	b.open = nil
}

// share lets a flight load on the seat of the call, until it leaves. There is none, or none any more, for what is
// loaded behind, and for a flight that goes on when the call has returned.
func (b *batch[T]) share() *seat {
	if b == nil || b.seat == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.users == 0 {
		return nil
	}
	b.users++
	return &seat{shared: b.leave}
}

// leave gives the seat back when the call and all flights have left.
func (b *batch[T]) leave() {
	b.mu.Lock()
	b.users--
	last := b.users == 0
	b.mu.Unlock()
	if last {
		b.seat()
	}
}

// get is the loader of a key.
func (b *batch[T]) get(ctx context.Context, key string) (v T, err error) {
	b.mu.Lock()
	r := b.open
	first := r == nil
	if first {
		r = &round[T]{late: len(b.pending) == 0, fire: make(chan struct{}), done: make(chan struct{})}
		b.open = r
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
		return v, context.Cause(ctx)
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

// context returns the ctx for a round: that of its first loader, part of the loads of all its keys, which
// ends when all of theirs have ended.
func (r *round[T]) context(first context.Context) (ctx context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(first))
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
	}
}
