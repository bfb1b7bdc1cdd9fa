package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/herdgate/herdgate/stampede/lock"
)

// Programming errors are named errors, not panics in the middle of an incident.
func TestNilAndZeroLockersAndLocksSayMisuse(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for _, lk := range []*lock.Locker{nil, {}} {
		only(t, second(lk.TryAcquire(ctx, "job", time.Minute)), lock.ErrMisuse)
		only(t, second(lk.Acquire(ctx, "job", time.Minute)), lock.ErrMisuse)
		only(t, lk.Do(ctx, "job", time.Minute, func(context.Context) error { return nil }), lock.ErrMisuse)
		only(t, lk.InitFences(ctx), lock.ErrMisuse)
		only(t, lk.SeedFences(ctx, 1), lock.ErrMisuse)
		only(t, lk.Close(), lock.ErrMisuse)
		if s := lk.Stats(); s != (lock.Stats{}) {
			t.Errorf("stats %+v", s)
		}
	}
	for _, l := range []*lock.Lock{nil, {}} {
		if l.Name() != "" || l.Token() != "" || l.Fence() != 0 || l.Validity() != 0 {
			t.Errorf("a lock that is none: %q %q %d %v", l.Name(), l.Token(), l.Fence(), l.Validity())
		}
		only(t, l.Extend(ctx, time.Minute), lock.ErrMisuse)
		only(t, l.Release(ctx), lock.ErrMisuse)
		kept, stop := l.Keep(ctx)
		stop()
		only(t, context.Cause(kept), lock.ErrMisuse)
		if lock.FromContext(kept) != nil {
			t.Error("ctx has a lock that is none")
		}
	}
}

func TestNilContextIsMisuse(t *testing.T) {
	t.Parallel()
	lk, rdb, o := single(t)
	var none context.Context
	only(t, second(lk.TryAcquire(none, "job", time.Minute)), lock.ErrMisuse)
	only(t, second(lk.Acquire(none, "job", time.Minute)), lock.ErrMisuse)
	l, err := lk.TryAcquire(t.Context(), "job", time.Minute)
	must(t, err)
	only(t, l.Extend(none, time.Minute), lock.ErrMisuse)
	must(t, l.Release(none)) // which does not look at it
	// A number of 0 is that of a lock without one.
	only(t, lock.SetFenced(t.Context(), rdb, o.Name+":resource", "x", 0, time.Minute), lock.ErrMisuse)
}
