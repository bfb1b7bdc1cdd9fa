package lock_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/internal/redistest"
	"github.com/herdgate/herdgate/stampede/lock"
)

// A server that refuses to release is asked again until the lease that it holds is over, which a long Extend has
// put off.
func TestRedlockReleaseGoesOnUntilTheEndOfTheLongestExtension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, nodes := bubbleFive(t, nil)
		l, err := lk.TryAcquire(t.Context(), "job", time.Second)
		must(t, err)
		synctest.Wait() // all have granted it
		must(t, l.Extend(t.Context(), time.Hour))
		synctest.Wait()
		nodes[0].SetError("NOREPLICAS Not enough good replicas to write.")
		must(t, l.Release(t.Context()))
		time.Sleep(time.Minute)
		if lockKey(nodes[0]) == "" {
			t.Fatal("it did not refuse")
		}
		nodes[0].SetError("")
		time.Sleep(5 * time.Second)
		if lockKey(nodes[0]) != "" {
			t.Error("the share is left to itself")
		}
	})
}

// The same on one server, by an Extend whose answer was lost: redisson and redlock-rb leave such a lock behind;
// node-redlock#11: unlocking failed silently under MISCONF.
func TestReleaseGoesOnUntilTheEndOfAnUnansweredExtension(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t)
	rdb := newClient(t, srv.Addr())
	p := redistest.Proxy(t, srv.Addr())
	o := slowMachine()
	warm(t, newLocker(t, slowMachine(), rdb))
	o.Timeout = 200 * time.Millisecond
	lk := newLocker(t, o, newClient(t, p.Addr()))
	ctx := t.Context()
	var l *lock.Lock
	redistest.Eventually(t, patient, func() (ok bool) {
		var err error
		l, err = lk.TryAcquire(ctx, "job", time.Second)
		return err == nil
	})
	p.SwallowReplies(true)
	only(t, l.Extend(ctx, time.Hour), lock.ErrUnavailable)
	p.SwallowReplies(false)
	p.CloseConns()
	key := keyOf(t, rdb, o, "k")
	if left := rdb.PTTL(ctx, key).Val(); left < time.Minute {
		t.Fatalf("the lease ends in %v", left)
	}
	must(t, rdb.ConfigSet(ctx, "min-replicas-to-write", "1").Err()) // writes are refused
	only(t, l.Release(ctx), lock.ErrUnavailable)
	pauseFor(1500 * time.Millisecond) // beyond what the first lease would have been
	must(t, rdb.ConfigSet(ctx, "min-replicas-to-write", "0").Err())
	redistest.Eventually(t, patient, func() bool { return rdb.Exists(ctx, key).Val() == 0 })
}

// What a lost lock has left on a minority is released with it.
func TestRedlockReleaseOfALostLockFreesTheRest(t *testing.T) {
	t.Parallel()
	m := five(t)
	lk := m.locker(t)
	ctx := t.Context()
	l, err := lk.TryAcquire(ctx, "job", time.Hour)
	must(t, err)
	redistest.Eventually(t, patient, func() bool { return m.shares(t) == 5 })
	for _, rdb := range m.direct[:3] {
		must(t, rdb.FlushAll(ctx).Err())
	}
	redistest.Eventually(t, patient, func() bool { return errors.Is(l.Extend(ctx, time.Hour), lock.ErrLost) })
	wantErr(t, l.Release(ctx), lock.ErrLost)
	redistest.Eventually(t, patient, func() bool { return m.shares(t) == 0 })
}

// A share that is granted after the loss, to an extension that was under way, is nobody's.
func TestRedlockGivesBackWhatIsGrantedAfterTheLoss(t *testing.T) {
	t.Parallel()
	m := five(t)
	m.opt.NodeTimeout = 5 * time.Second
	lk := m.locker(t)
	ctx := t.Context()
	warm(t, lk)
	redistest.Eventually(t, patient, func() bool { return m.shares(t) == 0 })
	must(t, m.proxies[4].RefuseNew(true))
	m.proxies[4].CloseConns()
	l, err := lk.TryAcquire(ctx, "job", 500*time.Millisecond)
	must(t, err)
	kept, stop := l.Keep(ctx)
	defer stop()
	for _, p := range m.proxies[:3] {
		p.BlackHole(true)
	}
	must(t, m.proxies[4].RefuseNew(false))
	m.proxies[4].SetDelay(time.Second, 0)
	_ = l.Extend(ctx, time.Hour) // joins the fifth server, late
	arrived(t, "the loss", kept.Done())
	m.proxies[4].SetDelay(0, 0)
	redistest.Eventually(t, patient, func() bool { return lk.Stats().LateGrants > 0 })
	redistest.Eventually(t, patient, func() bool {
		return len(m.direct[4].Keys(ctx, m.opt.Name+":{*}:k:*").Val()) == 0
	})
}

// The answers to two requests may come in the wrong order: the later request counts, else the share would be taken
// for another's.
func TestRedlockIsNotMisledByALateAnswer(t *testing.T) {
	t.Parallel()
	m := five(t)
	lk := m.locker(t)
	ctx := t.Context()
	warm(t, lk)
	redistest.Eventually(t, patient, func() bool { return m.shares(t) == 0 })
	last := m.proxies[4]
	last.SetDelay(0, time.Second)
	l, err := lk.TryAcquire(ctx, "job", time.Minute)
	must(t, err)
	key := ""
	redistest.Eventually(t, patient, func() bool { key = keyOf(t, m.direct[4], m.opt, "k"); return key != "" })
	must(t, m.direct[4].Del(ctx, key).Err())
	last.SetDelay(0, 0)
	redistest.Eventually(t, patient, func() bool { // joins the server again
		must(t, l.Extend(ctx, time.Minute))
		return m.direct[4].Exists(ctx, key).Val() == 1
	})
	pauseFor(1500 * time.Millisecond) // the first answer has come
	for _, p := range m.proxies[:2] {
		p.BlackHole(true)
	}
	must(t, l.Extend(ctx, time.Minute)) // by the last three
	for _, p := range m.proxies[:2] {
		p.BlackHole(false)
	}
	must(t, l.Release(ctx))
	redistest.Eventually(t, patient, func() bool { return m.shares(t) == 0 })
}
