package lock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/herdgate/herdgate/internal/redistest"
	"github.com/herdgate/herdgate/stampede/lock"
)

// SeedFences raises the numbers also of servers that know theirs: of all locks, those with a number of their own
// included, while others acquire. What it is told to be above, and what is known to be higher, is never given again.
func TestSeedFencesRaisesTheNumbersOfServersThatKnowThem(t *testing.T) {
	t.Parallel()
	m := fencedFive(t)
	a, b := m.locker(t), m.locker(t)
	ctx := t.Context()
	must(t, a.InitFences(ctx))
	r := &rising{t: t}
	redistest.Eventually(t, patient, func() bool { return r.next(ctx, a, "job") == nil })
	stop := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		for s := (&rising{t: t}); !isDone(stop); {
			_ = s.next(ctx, b, "other")
		}
	})
	for range 5 {
		above := r.last + 1_000_000
		redistest.Eventually(t, patient, func() bool { return a.SeedFences(ctx, above) == nil })
		r.last = above
		redistest.Eventually(t, patient, func() bool { return r.next(ctx, a, "job") == nil })
		redistest.Eventually(t, patient, func() bool { return r.next(ctx, b, "a new job") == nil })
	}
	close(stop)
	others.Wait()
	must(t, a.SeedFences(ctx, 1)) // is lower, and changes nothing
	redistest.Eventually(t, patient, func() bool { return r.next(ctx, b, "job") == nil })
	must(t, a.InitFences(ctx)) // neither does that
	redistest.Eventually(t, patient, func() bool { return r.next(ctx, a, "job") == nil })
}

// With a minority it says that it did not; with a majority, it did.
func TestSeedFencesNeedsAMajority(t *testing.T) {
	t.Parallel()
	m := fencedFive(t)
	a := m.locker(t)
	ctx := t.Context()
	must(t, m.servers[4].Kill())
	only(t, a.InitFences(ctx), lock.ErrTooFewNodes) // the first time all have to answer
	must(t, m.servers[4].Restart())
	redistest.Eventually(t, patient, func() bool { return a.InitFences(ctx) == nil })
	r := &rising{t: t}
	redistest.Eventually(t, patient, func() bool { return r.next(ctx, a, "job") == nil })
	above := r.last + 1_000_000
	must(t, errors.Join(m.servers[0].Kill(), m.servers[1].Kill(), m.servers[2].Kill()))
	only(t, a.SeedFences(ctx, above), lock.ErrTooFewNodes)
	must(t, m.servers[0].Restart())
	redistest.Eventually(t, patient, func() bool { return a.SeedFences(ctx, above) == nil })
	r.last = above
	redistest.Eventually(t, patient, func() bool { return r.next(ctx, a, "job") == nil })
	// Those that come back know less, or nothing.
	must(t, errors.Join(m.servers[1].Restart(), m.servers[2].Restart()))
	for range 10 {
		redistest.Eventually(t, patient, func() bool { return r.next(ctx, a, "job") == nil })
	}
}

// When all servers have forgotten everything, nobody can tell that from the first time. The servers' clocks are the net
// then: numbers go on above, if these have not gone back. So they do above those of a single server.
func TestFencesInitialisedAgainAreAboveThoseBefore(t *testing.T) {
	t.Parallel()
	m := fencedFive(t)
	a := m.locker(t)
	ctx := t.Context()
	lone := newLocker(t, slowMachine(), newClient(t, m.servers[0].Addr()))
	r := &rising{t: t}
	must(t, r.next(ctx, lone, "job"))
	must(t, a.InitFences(ctx))
	for range 2 {
		for range 5 {
			redistest.Eventually(t, patient, func() bool { return r.next(ctx, a, "job") == nil })
		}
		redistest.Eventually(t, patient, func() bool { return m.shares(t) == 0 })
		for _, rdb := range m.direct {
			must(t, rdb.FlushAll(ctx).Err())
		}
		redistest.Eventually(t, patient, func() bool { return errors.Is(r.next(ctx, a, "job"), lock.ErrNoFences) })
		redistest.Eventually(t, patient, func() bool { return a.InitFences(ctx) == nil })
	}
	// Also when the number that SeedFences is told is too low.
	for _, rdb := range m.direct {
		must(t, rdb.FlushAll(ctx).Err())
	}
	redistest.Eventually(t, patient, func() bool { return a.SeedFences(ctx, 1) == nil })
	redistest.Eventually(t, patient, func() bool { return r.next(ctx, a, "job") == nil })
}

func TestSeedingEndsWithItsContext(t *testing.T) {
	t.Parallel()
	m := fencedFive(t)
	a := m.locker(t)
	for _, p := range m.proxies[:3] {
		p.BlackHole(true)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	within(t, 2*time.Second, "seeding", func() { wantErr(t, a.SeedFences(ctx, 1), context.DeadlineExceeded) })
	within(t, 2*time.Second, "beginning", func() { wantErr(t, a.InitFences(ctx), context.DeadlineExceeded) })
}
