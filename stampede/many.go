package stampede

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// BatchReader is what a [Store] may implement to read many keys at once: one round trip, and one for
// each node of a cluster.
type BatchReader interface {
	// ReadMany does Read for each of keys. Both answers are as long as keys.
	ReadMany(ctx context.Context, keys []Key) ([]Entry, []error)
}

// ManyLoader loads what is missing of many keys. It may return less than it was asked for: what is not in
// its answer is taken as [ErrNotFound]. The map that it has returned is the guard's, which reads it on many goroutines: the
// loader must not write to it any more.
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
	left := g.opts.StoreBudget // one budget for the call
	if g.mode.now() != Bypass {
		missing = g.serve(ctx, rest, load, found, &left)
	}
	var errs []error
	for len(missing) > 0 && over(ctx) == nil {
		n := min(len(missing), manyAtOnce)
		errs = append(errs, g.getMissing(ctx, missing[:n], load, found, &left))
		missing = missing[n:]
	}
	return found, errors.Join(append(errs, over(ctx))...)
}

// manyAtOnce is how many keys are loaded by one call of a ManyLoader at most, and read at once.
const manyAtOnce = 256

// missed is a key of which there was nothing to serve, and what was read of it, if anything.
type missed[T any] struct {
	key string
	was *lookup[T]
}

// serve puts what can be served at once into found, and has loaded behind what is stale of it. It returns
// the rest.
func (g *Guard[T]) serve(ctx context.Context, keys []string, load ManyLoader[T], found map[string]T, left *time.Duration) (missing []missed[T]) {
	behind := newBatch(load, g.bounded(true), []string{""}) // no round before all were looked at
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
		case !isNotFound(err):
			ask = append(ask, key)
		}
	}
	for len(ask) > 0 {
		n := min(len(ask), manyAtOnce)
		for i, was := range g.readMany(ctx, ask[:n], left) {
			r, ok, err := g.served(ctx, ask[i], loader[T]{batch: behind}, &was)
			switch {
			case !ok:
				missing = append(missing, missed[T]{ask[i], &was})
			case err == nil:
				found[ask[i]] = r.Value
			}
		}
		ask = ask[n:]
	}
	return missing
}

// readMany is read for many keys.
func (g *Guard[T]) readMany(ctx context.Context, keys []string, left *time.Duration) []lookup[T] {
	out := make([]lookup[T], len(keys))
	full, marks, had := make([]Key, len(keys)), make([]mark, len(keys)), make([]*pocket, len(keys))
	budget := min(g.opts.CopyBudget, *left)
	for i, key := range keys {
		full[i], marks[i] = Key{g.space, key}, g.local.begin(key)
		if had[i] = g.local.peek(key); !g.local.serves(had[i]) {
			budget = *left
		}
	}
	begun := time.Now()
	step := within(ctx, begun.Add(budget))
	defer step.release()
	defer func() { *left = max(*left-time.Since(begun), 1) }()
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
		g.learn(ctx, key, had[i], &out[i], marks[i])
	}
	return out
}

// getMissing gets keys of which nothing could be served, each as Get does, with loaders that meet in a
// batch.
func (g *Guard[T]) getMissing(ctx context.Context, keys []missed[T], load ManyLoader[T], found map[string]T, left *time.Duration) error {
	names := make([]string, len(keys))
	for i := range keys {
		names[i] = keys[i].key
	}
	b := newBatch(load, g.bounded(true), names)
	var (
		mu   sync.Mutex // protects what follows, and found
		errs []error
		rest = *left
		wg   sync.WaitGroup
	)
	for _, k := range keys {
		wg.Go(func() {
			defer b.settle(k.key)
			r, rests, err := g.getOne(ctx, k, loader[T]{batch: b}, *left)
			mu.Lock()
			defer mu.Unlock()
			rest = min(rest, rests)
			switch {
			case err == nil:
				found[k.key] = r.Value
			case !isNotFound(err) && over(ctx) == nil:
				errs = append(errs, fmt.Errorf("%q: %w", k.key, err))
			}
		})
	}
	wg.Wait()
	*left = rest
	return errors.Join(errs...)
}

// getOne returns what is left of the budget as well.
func (g *Guard[T]) getOne(ctx context.Context, k missed[T], load loader[T], left time.Duration) (Result[T], time.Duration, error) {
	if k.was == nil {
		r, err := g.get(ctx, k.key, load)
		return r, left, err
	}
	c := caller[T]{g: g, ctx: ctx, key: k.key, load: load, q: ask[T]{wait: true, left: left, since: time.Now()}}
	r, err := c.rounds(k.was)
	return r, c.q.left, err
}
