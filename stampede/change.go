package stampede

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// This file is how callers change what is stored, and what a pod forgets when that happens.

// Set stores v under key, with the guard's policy. Loads under way will not overwrite it. After a nil
// error no later Get on pods that the store answers returns what was there before; an error that is
// ErrOutcomeUnknown says that v may have been stored, or still will be. If ctx has no deadline, Set ends
// after a second all the same.
func (g *Guard[T]) Set(ctx context.Context, key string, v T) error {
	if err := g.checkKey(ctx, key); err != nil {
		return err
	}
	if g.mode.now() != Normal {
		return fmt.Errorf("%w: set %q", ErrReadOnly, key)
	}
	p := &g.opts.Policy
	e := Entry{Type: g.typ, TTL: g.jittered(p.TTL), StaleFor: p.StaleFor, StaleIfError: p.StaleIfError}
	if err := g.fill(&e, v); err != nil {
		return err
	}
	step, cancel := forWrite(ctx, 1)
	defer cancel()
	defer g.forget(key)
	return g.wrote(ctx, "set", key, g.store.Set(step, Key{g.space, key}, e))
}

// Delete removes what is stored under keys, fleet-wide. Loads under way will not bring it back. After
// a nil error no later Get on pods that the store answers returns what was there before. After an error
// it may: repeat the Delete, or wait until TTL and the stale windows have passed. If ctx has no deadline,
// Delete ends after a second, and a second more for each thousand keys, all the same.
func (g *Guard[T]) Delete(ctx context.Context, keys ...string) error {
	return g.change(ctx, "delete", keys, g.storeDelete)
}

// Expire makes what is stored under keys stale, fleet-wide: it is served for StaleFor from now on while
// one caller loads, which happens at the next Get. Loads under way will not overwrite it. What has no
// stale window is deleted. Errors and time limit as for Delete.
func (g *Guard[T]) Expire(ctx context.Context, keys ...string) error {
	return g.change(ctx, "expire", keys, g.storeExpire)
}

func (g *Guard[T]) storeDelete(ctx context.Context, keys ...Key) error {
	return g.store.Delete(ctx, keys...)
}
func (g *Guard[T]) storeExpire(ctx context.Context, keys ...Key) error {
	return g.store.Expire(ctx, keys...)
}

func (g *Guard[T]) change(ctx context.Context, what string, keys []string, do func(context.Context, ...Key) error) error {
	full := make([]Key, len(keys))
	for i, key := range keys {
		if err := g.checkKey(ctx, key); err != nil {
			return err
		}
		full[i] = Key{g.space, key}
	}
	if len(keys) == 0 {
		return g.checkGuard(ctx)
	}
	step, cancel := forWrite(ctx, len(keys))
	defer cancel()
	defer g.forget(keys...)
	return g.wrote(ctx, what, keys[0], do(step, full...))
}

// forget drops what this pod remembers of keys.
func (g *Guard[T]) forget(keys ...string) {
	for _, key := range keys {
		g.dropped(key)
	}
}

// dropped is called when Delete, Set or Expire, on any pod, has changed key, and without a key when some
// may have been changed unheard.
func (g *Guard[T]) dropped(key string) {
	if key == "" {
		g.local.missed()
		return
	}
	g.holds.drop(key)
	g.local.drop(key)
	g.flights.Look(key)
}

// wrote wraps an error of a write. That the caller's ctx ended is told along with what the store met.
func (g *Guard[T]) wrote(ctx context.Context, what, key string, err error) error {
	if err == nil {
		return nil
	}
	g.events.emit(EventTrouble, key, 0, err)
	return fmt.Errorf("stampede: %s %q: %w", what, key, errors.Join(err, ctx.Err()))
}

// writeTimeout bounds the steps that nobody waits for, and Set, Delete and Expire, which have no fallback,
// when their callers set no deadline.
const writeTimeout = time.Second

// forWrite returns a ctx for a step that changes so many keys.
func forWrite(ctx context.Context, keys int) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, writeTimeout*time.Duration(1+keys/1000))
}
