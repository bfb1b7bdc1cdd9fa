package stampede

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/herdgate/herdgate/internal/flight"
)

// Mode is a guard's kill switch: how much of the cache its callers use. It belongs to one guard in one
// pod. A program that wants it for the whole fleet sets it from a configuration that all pods watch.
type Mode uint8

// The modes of a guard.
const (
	// Normal is how a guard starts.
	Normal Mode = iota
	// ReadOnly: what is stored is served, and nothing is added. Fresh and stale values are served at once
	// and stale ones are not loaded behind; who finds neither waits for a load, one at a time per key and
	// pod, without a lease, whose value is not stored. It is for when what loaders bring, or what writing
	// costs the store, is the trouble.
	ReadOnly
	// Bypass: Get and Fetch use neither the store nor what this pod has in memory. Their callers wait for
	// a load, one at a time per key and pod. It is for when what is stored, or the store, is the trouble,
	// and asks of the source that it bears all pods.
	Bypass
)

var modeNames = []string{"normal", "read_only", "bypass"}

// String returns the mode in snake case, for logs and metrics.
func (m Mode) String() string { return word(m, modeNames...) }

// MarshalText returns String, so that a mode can be a flag or part of a configuration.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads what MarshalText returned.
func (m *Mode) UnmarshalText(text []byte) error {
	for i, name := range modeNames {
		if string(text) == name {
			*m = Mode(i)
			return nil
		}
	}
	return fmt.Errorf("stampede: no mode is called %q", text)
}

// SetMode switches the guard, for calls that begin from now on. It returns at once and may be called at
// any time. The Logger is told of changes. It panics for a mode that there is not.
//
// In Bypass and ReadOnly:
//
//   - Delete and Expire do what they always do: else what they are about would be back with Normal.
//     Stale values are not loaded in ReadOnly, so prefer Delete there.
//   - Set returns ErrReadOnly and changes nothing. What was there may still be served, now or in
//     Normal: Delete it.
//   - Refresh does nothing and returns nil, as it does when the store does not answer. Peek sees in
//     Bypass what Get would serve at once: nothing.
//   - Results of loads have FreshFor zero, as those of Load.DoNotStore have.
//
// A load that is under way goes on, but what it brings is not stored, unless it has just been sent to the
// store; its lease is given back. Get in Bypass does not wait for it, so that what it returns comes from
// the source; for as long as that load takes, there may be two of the key.
//
// Back in Normal, callers find what is stored still, with the age that it has.
func (g *Guard[T]) SetMode(m Mode) {
	if int(m) >= len(modeNames) {
		panic(fmt.Sprintf("stampede: SetMode(%d): there is no such mode", m))
	}
	if g == nil || g.store == nil {
		return
	}
	was := Mode(g.mode.m.Swap(uint32(m)))
	switch {
	case was == m:
	case m == Normal:
		g.log(slog.LevelInfo, "stampede: back to normal", "guard", g.opts.Name, "was", was)
	default:
		g.log(slog.LevelWarn, "stampede: switched", "guard", g.opts.Name, "mode", m, "was", was)
	}
}

// Mode returns the mode of the guard.
func (g *Guard[T]) Mode() Mode {
	if g == nil {
		return Normal
	}
	return g.mode.now()
}

// mode is what a guard keeps of it. Apart from Mode, so that it can be read without a lock on each hit.
type mode[T any] struct {
	m       atomic.Uint32
	flights flight.Group[outcome[T]] // in Bypass: what flights of before bring may be from the store
}

func (m *mode[T]) now() Mode { return Mode(m.m.Load()) }

// bypass is get in Bypass.
func (g *Guard[T]) bypass(ctx context.Context, key string, load loader[T]) (Result[T], error) {
	g.events.emit(EventBypass, key, 0, nil)
	if isLoading(ctx, g.place, key) { // by itself: leave no flight behind
		return Result[T]{}, fmt.Errorf("%w: %q", ErrReentrant, key)
	}
	c := caller[T]{g: g, ctx: ctx, key: key, load: load, q: ask[T]{wait: true, trouble: true, since: time.Now()}}
	for {
		t := c.join(&g.mode.flights)
		r, again, err := c.wait(&t)
		if !again {
			return r, err
		}
		g.events.emit(EventAgain, key, 0, nil)
	}
}
