package lock_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede/lock"
)

// Whatever the durations are, nothing overflows, and a lock that ends is had.
func TestDurationsAtTheirExtremesAreBorne(t *testing.T) {
	const most = time.Duration(math.MaxInt64)
	for name, o := range map[string]lock.Options{
		"all":                {Timeout: most, NodeTimeout: most, WaitTimeout: most, Poll: most, MaxHold: most},
		"poll, unsubscribed": {Poll: most},
		"short poll":         {Poll: 1},
		"short hold":         {MaxHold: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			lk, n := bubbleLocker(t, &o)
			other, err := lock.New(&o, n.client(t, "127.0.0.1:1"))
			must(t, err)
			defer func() { must(t, other.Close()) }()
			begun := time.Now()
			_, err = other.Acquire(t.Context(), "job", time.Second)
			must(t, err)
			l, err := lk.Acquire(t.Context(), "job", lock.MaxLease)
			must(t, err)
			if took := time.Since(begun); took < time.Second || took > 30*24*time.Hour {
				t.Errorf("%s: acquired after %v", name, took)
			}
			ctx, stop := l.Keep(t.Context())
			time.Sleep(time.Millisecond)
			if lost := ctx.Err() != nil; lost != (o.MaxHold == 1) {
				t.Errorf("%s: %v", name, context.Cause(ctx))
			}
			stop()
			must(t, l.Extend(t.Context(), lock.MaxLease))
			only(t, l.Extend(t.Context(), most), lock.ErrMisuse)
			if v := l.Validity(); v < lock.MaxLease*98/100 {
				t.Errorf("%s: validity %v", name, v)
			}
			must(t, l.Release(t.Context()))
			_, err = lk.TryAcquire(t.Context(), "job", lock.MaxLease+1)
			only(t, err, lock.ErrMisuse)
		})
	}
}

// Waiters do not ask without a pause, however short the pauses are wished.
func TestShortestPollDoesNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, n := bubbleLocker(t, nil)
		l, err := lk.Acquire(t.Context(), "job", time.Minute)
		must(t, err)
		hasty, err := lock.New(&lock.Options{Poll: 1, WaitTimeout: 100 * time.Microsecond}, n.client(t, "127.0.0.1:1"))
		must(t, err)
		_, err = hasty.Acquire(t.Context(), "job", time.Minute)
		only(t, err, lock.ErrNotAcquired)
		if s := hasty.Stats(); s.Held > 5 {
			t.Errorf("asked %d times in 100 µs", s.Held)
		}
		must(t, hasty.Close())
		must(t, l.Release(t.Context()))
	})
}
