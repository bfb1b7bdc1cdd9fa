package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// InitFences initialises the fencing numbers of several servers (Options.Fences), as a step of setting them up. Call it
// once, for servers that have not given out any numbers yet: all have to answer, else the error is ErrTooFewNodes.
// When a majority of servers is initialised already, by another process at the same time, say, it does nothing and
// returns nil. When some servers know of numbers but no majority does, numbers have been forgotten: then it refuses
// with ErrNoFences, and SeedFences is needed.
//
// The numbers start at the servers' clock, in microseconds, as they do with one server. So they are above those that a
// resource has seen before, from a lock on one server or from these servers before all of them forgot
// everything, as long as no clock was set back. That is a safety net and not a promise: InitFences cannot tell
// servers that have forgotten everything from new ones. After such a loss use SeedFences.
func (lk *Locker) InitFences(ctx context.Context) error {
	var mine []string // epochs
	return lk.seeding(ctx, func(epoch string) (bool, error) {
		claimed, t, err := lk.claimAndLook(ctx, epoch)
		switch {
		case err != nil:
			return false, err
		case t.marked >= lk.quorum: // the others are seen to by themselves
			return true, nil
		case t.silent > 0:
			return false, t.tooFew()
		case t.clock >= maxFence:
			return false, errUsedUp
		}
		for _, m := range t.marks {
			if m.top > 0 && !slices.Contains(mine, m.epoch) {
				return false, fmt.Errorf("%w: server %d has given out some, but no majority knows them: see Locker.SeedFences",
					ErrNoFences, m.n.i)
			}
		}
		mine = append(mine, epoch)
		for _, m := range claimed {
			m.seed(epoch, max(t.clock, t.top))
		}
		return false, nil // looks again
	})
}

// SeedFences raises the fencing numbers of all locks above a given one. When it returns nil, each acquisition that
// begins from then on has a higher number. With an error it is unknown whether that is so, and SeedFences may be called
// again. It never lowers a number.
//
// It is there for what cannot be repaired without knowledge from outside. A server that was restarted counts as one
// that has forgotten the numbers, and gets them from a majority of the others by itself. When a majority has
// forgotten at the same time, acquiring fails with ErrNoFences. Then call SeedFences with the highest number that any
// resource has seen, or more, since locks that are held may still bring theirs: too low a number is the only way in which
// numbers could come twice. (What servers that answer still know, and their clocks, count as well, so a number that
// is too low does no harm as long as no clock was set back, and no number raised above the clocks.) While a majority
// knows the numbers, SeedFences lets them go on above those of another system, say. Zero is ErrMisuse: see
// InitFences.
//
// A majority of servers must answer, else the error is ErrTooFewNodes. When a majority forgets its numbers during the
// call, the error is ErrNoFences.
func (lk *Locker) SeedFences(ctx context.Context, above uint64) error {
	switch {
	case above == 0:
		return fmt.Errorf("%w: SeedFences needs the highest number that was seen; the first time, InitFences is for", ErrMisuse)
	case above >= maxFence:
		return fmt.Errorf("%w: fencing numbers end at %d", ErrMisuse, uint64(maxFence))
	}
	known := false // by a majority, when it was asked first
	return lk.seeding(ctx, func(epoch string) (bool, error) {
		claimed, t, err := lk.claimAndLook(ctx, epoch)
		switch {
		case err != nil:
			return false, err
		case len(lk.nodes)-t.silent < lk.quorum:
			return false, t.tooFew()
		case t.marked >= lk.quorum:
			known = true
		case known: // above need not be higher than what was forgotten since
			return false, fmt.Errorf("%w: they were forgotten just now", ErrNoFences)
		}
		top := max(above, t.top)
		if t.marked < lk.quorum && t.clock < maxFence {
			top = max(top, t.clock)
		}
		for _, m := range t.marks {
			if m.epoch != "" {
				m.raise(epoch, top)
			}
		}
		for _, m := range claimed {
			m.seed(epoch, top)
		}
		// Each may have forgotten it again before the last one knew it, and been given numbers by those who did
		// not know it yet. Those of this epoch have not.
		marks, err := lk.look(ctx, "")
		if err != nil {
			return false, err
		}
		know := 0
		for _, m := range marks {
			if m.epoch == epoch {
				know++
			}
		}
		return know >= lk.quorum, nil
	})
}

var errUsedUp = fmt.Errorf("%w: the numbers are used up", ErrNoFences)

const (
	// seedLease is how long who seeds may keep others from it, at most.
	seedLease = 10 * time.Second
	// seedTries is how often seeding is tried, while servers forget, or are claimed by those who acquire.
	seedTries = 20
)

// seeding tries until done, each time in another epoch, under a lock of its own: two at the same time would undo
// each other's work.
func (lk *Locker) seeding(ctx context.Context, try func(epoch string) (done bool, err error)) error {
	switch {
	case !lk.valid():
		return errNoLocker
	case ctx == nil:
		return errNilCtx
	case lk.closed.Load():
		return ErrClosed
	case len(lk.nodes) == 1:
		return fmt.Errorf("%w: with one server, fencing numbers need no seeds", ErrMisuse)
	}
	l, err := lk.lockSeeds(ctx)
	if err != nil {
		return err
	}
	defer func() {
		l.discard()
		_, _ = l.releaseAll()
	}()
	for range seedTries {
		if done, err := try(newEpoch()); done || err != nil {
			return err
		}
		if err := pauseSeeding(ctx); err != nil {
			return err
		}
	}
	return errAgain
}

// lockSeeds waits for the lock of those who seed, which has no fencing number.
func (lk *Locker) lockSeeds(ctx context.Context) (*Lock, error) {
	k := &keys{name: "fencing numbers", lock: lk.opt.Name + seedKey, channel: lk.opt.Name + seedKey, plain: true}
	for begun := time.Now(); ; {
		l, _, err := lk.tryAll(ctx, k, seedLease)
		if !errors.Is(err, ErrNotAcquired) || time.Since(begun) > 2*seedLease {
			return l, err
		}
		if err := pauseSeeding(ctx); err != nil {
			return nil, err
		}
	}
}

// pauseSeeding waits for a random while.
func pauseSeeding(ctx context.Context) error {
	timer := time.NewTimer(5*time.Millisecond + rand.N(20*time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ended(ctx)
	}
}

// reseed gives servers that have forgotten their numbers new ones, above all that a majority of the others
// has accepted.
func (lk *Locker) reseed(ctx context.Context) error {
	epoch := newEpoch()
	claimed, t, err := lk.claimAndLook(ctx, epoch)
	switch {
	case err != nil:
		return err
	case t.marked >= lk.quorum:
	case t.marked+t.silent < lk.quorum || t.silent == 0:
		return fmt.Errorf("%w: %d of %d do, a majority has to: see Locker.SeedFences, and Locker.InitFences for the first time",
			ErrNoFences, t.marked, len(lk.nodes))
	default:
		return t.tooFew()
	}
	for _, m := range claimed {
		if m.seed(epoch, t.top) {
			lk.events.emit(Event{Kind: EventReseeded, Node: m.n.i})
		}
	}
	return nil
}

// reseedSoon does so in the background, once at a time.
func (lk *Locker) reseedSoon() {
	if !lk.reseeding.CompareAndSwap(false, true) {
		return
	}
	if !lk.spawn(func() {
		defer lk.reseeding.Store(false)
		_ = lk.reseed(lk.ctx)
	}) {
		lk.reseeding.Store(false)
	}
}
