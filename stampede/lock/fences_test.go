package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/internal/redistest"
	"github.com/herdgate/herdgate/stampede/lock"
)

// rising checks that numbers grow.
type rising struct {
	t    *testing.T
	last uint64
}

func (r *rising) next(ctx context.Context, lk *lock.Locker, name string) error {
	r.t.Helper()
	l, err := lk.TryAcquire(ctx, name, 30*time.Second)
	if err != nil {
		return err
	}
	if l.Fence() <= r.last {
		r.t.Errorf("fence %d after %d", l.Fence(), r.last)
	}
	r.last = l.Fence()
	return l.Release(ctx)
}

func fencedFive(t *testing.T, args ...string) *masters {
	m := five(t, args...)
	m.opt.Fences = true
	return m
}

// restartThree restarts three of five: first all are killed, else one might be given its numbers again before the
// next one is.
func (m *masters) restartThree(t *testing.T) {
	t.Helper()
	for _, s := range m.servers[:3] {
		must(t, s.Kill())
	}
	for _, s := range m.servers[:3] {
		must(t, s.Restart())
	}
}

// Without a marked majority there are no numbers, and the error says so. They are initialised once, by however many.
func TestRedlockFencesMustBeInitialised(t *testing.T) {
	t.Parallel()
	m := fencedFive(t)
	ctx := t.Context()
	var lockers []*lock.Locker
	for range 4 {
		lockers = append(lockers, m.locker(t))
	}
	_, err := lockers[0].TryAcquire(ctx, "job", time.Minute)
	only(t, err, lock.ErrNoFences)
	_, err = lockers[0].Acquire(ctx, "job", time.Minute) // does not wait for what does not come
	only(t, err, lock.ErrNoFences)
	var wg sync.WaitGroup
	for _, lk := range lockers {
		wg.Go(func() {
			if err := lk.InitFences(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	r := &rising{t: t}
	for i := range 12 {
		redistest.Eventually(t, patient, func() bool { return r.next(ctx, lockers[i%4], "job") == nil })
	}
	only(t, lockers[0].SeedFences(ctx, 1<<53), lock.ErrMisuse)
	only(t, lockers[0].SeedFences(ctx, 0), lock.ErrMisuse)
	one, _, _ := single(t)
	only(t, one.InitFences(ctx), lock.ErrMisuse)
	only(t, one.SeedFences(ctx, 1), lock.ErrMisuse)
	// Names have numbers of their own, as long as the servers keep them apart.
	l, err := lockers[0].TryAcquire(ctx, "other", time.Minute)
	must(t, err)
	must(t, l.Release(ctx))
}

// One server after the other is killed and comes back empty, until all of them have forgotten everything; the
// numbers grow. When three forget at once, there are none, until somebody says where to go on.
func TestRedlockFencesGrowThoughServersForget(t *testing.T) {
	t.Parallel()
	m := fencedFive(t)
	a, b := m.locker(t), m.locker(t)
	ctx := t.Context()
	must(t, a.InitFences(ctx))
	r := &rising{t: t}
	for i := range 10 {
		must(t, m.servers[i%5].Kill())
		redistest.Eventually(t, patient, func() bool { return r.next(ctx, a, "job") == nil })
		must(t, m.servers[i%5].Restart())
		redistest.Eventually(t, patient, func() bool { return r.next(ctx, b, "job") == nil })
		redistest.Eventually(t, patient, func() bool { // it is given its numbers by whoever meets it
			return r.next(ctx, a, "job") == nil && m.direct[i%5].Exists(ctx, m.opt.Name+":m").Val() == 1
		})
	}
	// One whose answer was lost is not counted.
	redistest.Eventually(t, patient, func() bool { return a.Stats().Reseeded+b.Stats().Reseeded >= 8 })
	m.restartThree(t)
	var err error
	redistest.Eventually(t, patient, func() bool {
		err = r.next(ctx, a, "job")
		return errors.Is(err, lock.ErrNoFences)
	})
	only(t, err, lock.ErrNoFences)
	only(t, a.InitFences(ctx), lock.ErrNoFences) // it is not the first time
	only(t, a.SeedFences(ctx, 0), lock.ErrMisuse)
	must(t, a.SeedFences(ctx, r.last))
	redistest.Eventually(t, patient, func() bool { return r.next(ctx, b, "job") == nil })
}

// A server that restarts with an old snapshot knows numbers, but not the last ones. Its run id gives it away.
func TestRedlockFencesDoNotTrustAnOldSnapshot(t *testing.T) {
	t.Parallel()
	m := fencedFive(t, "--dbfilename", "dump.rdb")
	a := m.locker(t)
	ctx := t.Context()
	must(t, a.InitFences(ctx))
	r := &rising{t: t}
	redistest.Eventually(t, patient, func() bool { return r.next(ctx, a, "job") == nil })
	redistest.Eventually(t, patient, func() bool { return m.shares(t) == 0 }) // else they come back with the snapshot
	for _, rdb := range m.direct[:3] {
		must(t, rdb.Save(ctx).Err())
	}
	for range 5 {
		redistest.Eventually(t, patient, func() bool { return r.next(ctx, a, "job") == nil })
	}
	m.restartThree(t)
	if n := m.direct[0].Exists(ctx, m.opt.Name+":m").Val(); n != 1 {
		t.Fatal("the snapshot holds no marker")
	}
	// Three of five are of yesterday.
	redistest.Eventually(t, patient, func() bool { return errors.Is(r.next(ctx, a, "job"), lock.ErrNoFences) })
	only(t, a.InitFences(ctx), lock.ErrNoFences)
	must(t, a.SeedFences(ctx, r.last))
	for range 5 {
		redistest.Eventually(t, patient, func() bool { return r.next(ctx, a, "job") == nil })
	}
}

// A node accepts only a number above its own; who meets a higher one goes above that.
func TestRedlockFenceIsRaisedAboveWhatAnyServerOfTheMajorityKnows(t *testing.T) {
	t.Parallel()
	m := fencedFive(t)
	a := m.locker(t)
	ctx := t.Context()
	must(t, a.InitFences(ctx))
	r := &rising{t: t}
	redistest.Eventually(t, patient, func() bool { return r.next(ctx, a, "job") == nil })
	high := r.last + 1000
	// A number that a minority has accepted: its acquisition failed, or is under way.
	for _, rdb := range m.direct[:2] {
		redistest.Eventually(t, patient, func() bool { return rdb.Exists(ctx, m.opt.Name+":m").Val() == 1 })
		epoch := rdb.HGet(ctx, m.opt.Name+":m", "e").Val()
		must(t, rdb.Set(ctx, fenceKey(t, rdb, m.opt, "job"), epoch+":"+digits(high), time.Hour).Err())
		must(t, rdb.HSet(ctx, m.opt.Name+":m", "t", digits(high)).Err())
	}
	redistest.Eventually(t, patient, func() bool { return r.next(ctx, a, "job") == nil })
	for range 20 { // majorities differ, and meet
		redistest.Eventually(t, patient, func() bool { return r.next(ctx, a, "job") == nil })
	}
	if r.last <= high {
		t.Errorf("fence %d, though two of five know %d", r.last, high)
	}
}

// No clock takes part: servers' clocks are off by ten seconds, step, and differ from ours.
func TestRedlockAndItsFencesDoNotDependOnClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := time.Second
		lk, nodes := bubbleFive(t, &lock.Options{Fences: true}, -10*s, -5*s, 0, 5*s, 10*s)
		must(t, lk.InitFences(t.Context()))
		rs := []*rising{{t: t}, {t: t}, {t: t}}
		for i := range 20 {
			l, err := lk.TryAcquire(t.Context(), "job", 10*time.Second)
			must(t, err)
			if v := l.Validity(); v != 10*time.Second-102*time.Millisecond {
				t.Errorf("validity %v", v)
			}
			_, err = lk.TryAcquire(t.Context(), "job", 10*time.Second)
			wantErr(t, err, lock.ErrNotAcquired)
			must(t, l.Release(t.Context()))
			must(t, rs[i%3].next(t.Context(), lk, fmt.Sprint("job", i%3)))
			for j, n := range nodes {
				n.SetTime(time.Now().Add(time.Duration((i*7+j*11)%21-10) * s))
			}
		}
	})
}
