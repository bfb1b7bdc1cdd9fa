package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/internal/redistest"
	"github.com/herdgate/herdgate/stampede/lock"
)

// redisson#4822, #4706, redis/go-redis#790: after a failover locks work again, on every connection, and numbers
// grow, since the clocks of the servers agree. What a failover may lose is the lock itself: see the overlaps that
// are logged.
func TestLocksOutliveASentinelFailoverUnderLoad(t *testing.T) {
	t.Parallel()
	s := redistest.Sentinel(t)
	o := slowMachine()
	o.Timeout = 300 * time.Millisecond
	var lockers []*lock.Locker
	for range 3 {
		rdb := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: s.MasterName(), SentinelAddrs: s.Addrs()})
		t.Cleanup(func() { _ = rdb.Close() })
		lockers = append(lockers, newLocker(t, o, rdb))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	stop := make(chan struct{})
	held := 0
	go func() {
		defer close(stop)
		pauseFor(300 * time.Millisecond)
		old, err := s.KillMaster(ctx)
		if err == nil {
			_, err = s.WaitForNewMaster(ctx, old)
		}
		if err != nil {
			t.Error(err)
			return
		}
		redistest.Eventually(t, patient, func() bool {
			l, err := lockers[0].Acquire(ctx, "after", time.Second)
			if err == nil {
				held++
				_ = l.Release(ctx)
			}
			return held >= 10
		})
	}()
	h := contend(t, historySeed(t), lockers, 3, newClient(t, shared.Server(t).Addr()), stop)
	t.Logf("%d overlaps", len(h.overlaps()))
	report(t, h, append(h.unordered(), h.wrong()...), 10)
}

// A failover that loses nothing keeps the lock; one that follows a crash may lose it. Either way the watchdog
// finds out what is true, and locks can be had again.
func TestLocksOutliveClusterFailovers(t *testing.T) {
	t.Parallel()
	c := redistest.Cluster(t)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	t.Cleanup(func() { _ = rdb.Close() })
	o := slowMachine()
	o.Timeout = time.Second
	lk := newLocker(t, o, rdb)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	l, err := lk.Acquire(ctx, "{job}", time.Minute)
	must(t, err)
	old, err := c.Failover(ctx, "{job}")
	must(t, err)
	_, err = c.WaitForNewMaster(ctx, "{job}", old)
	must(t, err)
	redistest.Eventually(t, patient, func() bool { return l.Extend(ctx, time.Minute) == nil })
	must(t, l.Release(ctx))

	last := l.Fence()
	held, err := lk.Acquire(ctx, "{job}", 30*time.Second)
	must(t, err)
	kept, stop := held.Keep(ctx)
	defer stop()
	old, err = c.KillMaster(ctx, "{job}")
	must(t, err)
	_, err = c.WaitForNewMaster(ctx, "{job}", old)
	must(t, err)
	redistest.Eventually(t, patient, func() bool {
		err := held.Extend(ctx, 30*time.Second)
		return err == nil || errors.Is(err, lock.ErrLost)
	})
	t.Logf("after the crash: %v", context.Cause(kept))
	_ = held.Release(ctx)
	l, err = lk.Acquire(ctx, "{job}", time.Second)
	must(t, err)
	if l.Fence() <= last || l.Fence() <= held.Fence() {
		t.Errorf("fences %d, %d, %d", last, held.Fence(), l.Fence())
	}
	must(t, l.Release(ctx))
}

// The counter-example: a replica that had not received the lock is promoted. Two hold it; the fences differ, and the
// resource can tell.
func TestFailoverThatLosesTheLockIsFoundByTheNextRenewal(t *testing.T) {
	t.Parallel()
	master, replica := redistest.Server(t), redistest.Server(t)
	o := slowMachine()
	a, b := newLocker(t, o, newClient(t, master.Addr())), newLocker(t, o, newClient(t, replica.Addr()))
	ctx := t.Context()
	l, err := a.TryAcquire(ctx, "job", time.Minute)
	must(t, err)
	next, err := b.TryAcquire(ctx, "job", time.Minute) // never heard of it
	must(t, err)
	if l.Validity() <= 0 || next.Validity() <= 0 {
		t.Error("then the documentation is too modest")
	}
	if next.Fence() <= l.Fence() {
		t.Errorf("fence %d after %d, though the clocks agree", next.Fence(), l.Fence())
	}
	must(t, errors.Join(l.Release(ctx), next.Release(ctx)))
}
