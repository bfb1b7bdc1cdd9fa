package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede/lock"
)

// renewals notes when renewals happen.
type renewals struct {
	began time.Time
	mu    sync.Mutex // protects at
	at    []time.Duration
}

func (r *renewals) Observe(e lock.Event) {
	if e.Kind == lock.EventRenewed {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.at = append(r.at, time.Since(r.began).Round(10*time.Millisecond))
	}
}

func TestKeptLockIsRenewedEachTimeAThirdOfItsLeaseIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &renewals{began: time.Now()}
		lk, _ := bubbleLocker(t, &lock.Options{Observer: seen})
		err := lk.Do(t.Context(), "job", 3*time.Second, func(ctx context.Context) error {
			time.Sleep(10500 * time.Millisecond)
			return ctx.Err()
		})
		must(t, err)
		// 3 s less 32 ms of drift; two thirds of the lease before the end of that.
		if want := "[970ms 1.94s 2.9s 3.87s 4.84s 5.81s 6.78s 7.74s 8.71s 9.68s]"; fmt.Sprint(seen.at) != want {
			t.Errorf("renewed at %v, want %v", seen.at, want)
		}
		if s := lk.Stats(); s.Renewed != 10 || s.Lost != 0 || s.Released != 1 {
			t.Errorf("stats %+v", s)
		}
	})
}

// Extending by hand moves the next renewal: it is counted from the deadline, not from the last tick.
func TestRenewalIsCountedFromTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &renewals{began: time.Now()}
		lk, _ := bubbleLocker(t, &lock.Options{Observer: seen})
		l, err := lk.Acquire(t.Context(), "job", 3*time.Second)
		must(t, err)
		_, stop := l.Keep(t.Context())
		time.Sleep(500 * time.Millisecond)
		must(t, l.Extend(t.Context(), 9*time.Second)) // until 9.41 s, so the next one is due at 7.41 s
		time.Sleep(8 * time.Second)
		stop()
		if want := "[500ms 7.41s 8.38s]"; fmt.Sprint(seen.at) != want {
			t.Errorf("renewed at %v, want %v", seen.at, want)
		}
		time.Sleep(time.Minute)
		if len(seen.at) != 3 {
			t.Errorf("renewed after stop: %v", seen.at)
		}
		wantErr(t, l.Release(t.Context()), lock.ErrLost)
	})
}

// redisson#5698, #4698: the watchdog gets no answer. The holder hears of it before the lease ends in Redis.
func TestLossIsFeltAtTheDeadlineWhenRedisIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, n := bubbleLocker(t, nil)
		begun := time.Now()
		var ended time.Time
		err := lk.Do(t.Context(), "job", 3*time.Second, func(ctx context.Context) error {
			time.Sleep(time.Second)
			n.down.Store(true)
			<-ctx.Done()
			ended = time.Now()
			return ctx.Err()
		})
		if took := ended.Sub(begun); took < 3900*time.Millisecond || took > 3970*time.Millisecond {
			t.Errorf("ctx ended after %v, want just before the renewed lease ends, after 3.97s", took)
		}
		var lost *lock.LostError
		if !errors.As(err, &lost) || lost.Reason != lock.Expired || lost.Err == nil {
			t.Fatalf("%#v", err)
		}
		only(t, lost, lock.ErrLost)
		wantErr(t, err, context.Canceled)
		for _, part := range []string{`"job"`, "not renewed in time", "until", "Redis is not available"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not say %q", err, part)
			}
		}
		if lost.Held.Sub(begun) > 3970*time.Millisecond || lost.Found.Before(lost.Held) {
			t.Errorf("held until %v, found %v", lost.Held.Sub(begun), lost.Found.Sub(begun))
		}
		if s := lk.Stats(); s.Lost != 1 || s.NotRenewed < 3 {
			t.Errorf("stats %+v", s)
		}
		n.down.Store(false)
	})
}

// node-redlock#309: after the loss, seconds were spent on releasing what was not held any more.
func TestDoReturnsAtOnceAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, n := bubbleLocker(t, nil)
		var lostAt time.Time
		err := lk.Do(t.Context(), "job", 3*time.Second, func(ctx context.Context) error {
			n.down.Store(true)
			<-ctx.Done()
			lostAt = time.Now()
			return nil
		})
		only(t, err, lock.ErrLost)
		if took := time.Since(lostAt); took != 0 {
			t.Errorf("Do returned %v after the loss", took)
		}
		n.down.Store(false)
	})
}

// A short trouble costs nothing: failed renewals are tried again soon.
func TestShortOutageIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, n := bubbleLocker(t, nil)
		must(t, lk.Do(t.Context(), "job", 3*time.Second, func(ctx context.Context) error {
			for range 5 {
				n.down.Store(true)
				time.Sleep(1800 * time.Millisecond)
				n.down.Store(false)
				time.Sleep(1800 * time.Millisecond)
			}
			return ctx.Err()
		}))
		if s := lk.Stats(); s.NotRenewed == 0 || s.Lost != 0 || s.Released != 1 {
			t.Errorf("stats %+v", s)
		}
	})
}

// What renewal finds ends the ctx at once: deleted, or taken by another. redisson #3712: the same process
// acquires again, and that lock is renewed.
func TestLossThatARenewalFindsIsFeltAtOnce(t *testing.T) {
	for want, harm := range map[lock.Reason]func(*bubbleNode, string){
		lock.Gone:  func(n *bubbleNode, key string) { n.Del(key) },
		lock.Taken: func(n *bubbleNode, key string) { _ = n.Set(key, "L"+strings.Repeat("x", 32)) },
	} {
		synctest.Test(t, func(t *testing.T) {
			lk, n := bubbleLocker(t, nil)
			begun := time.Now()
			err := lk.Do(t.Context(), "job", 3*time.Second, func(ctx context.Context) error {
				harm(n, lockKey(n))
				<-ctx.Done()
				if took := time.Since(begun); took > time.Second {
					t.Errorf("%v: felt after %v", want, took)
				}
				return nil
			})
			var lost *lock.LostError
			if !errors.As(err, &lost) || lost.Reason != want || errors.Is(err, context.Canceled) {
				t.Fatalf("%v: %#v", want, err)
			}
			if key := lockKey(n); want == lock.Taken && key == "" {
				t.Error("the other's lock was released")
			} else if want == lock.Taken {
				n.Del(key)
			}
			must(t, lk.Do(t.Context(), "job", 3*time.Second, func(ctx context.Context) error {
				time.Sleep(10 * time.Second)
				return ctx.Err()
			}))
		})
	}
}

func lockKey(n *bubbleNode) string {
	for _, key := range n.Keys() {
		if strings.Contains(key, ":k:") {
			return key
		}
	}
	return ""
}

func TestHoldIsCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, n := bubbleLocker(t, &lock.Options{MaxHold: 10 * time.Second})
		begun := time.Now()
		hung := make(chan struct{})
		go func() {
			_ = lk.Do(context.Background(), "job", 3*time.Second, func(ctx context.Context) error {
				<-ctx.Done()
				var lost *lock.LostError
				if !errors.As(context.Cause(ctx), &lost) || lost.Reason != lock.HoldLimit || time.Since(begun) != 10*time.Second {
					t.Errorf("%v after %v", context.Cause(ctx), time.Since(begun))
				}
				<-hung // it does not listen
				return nil
			})
		}()
		synctest.Wait()
		l, err := lk.Acquire(context.Background(), "job", time.Minute)
		must(t, err)
		if took := time.Since(begun); took < 10*time.Second || took > 14*time.Second {
			t.Errorf("the next one had it after %v", took)
		}
		close(hung)
		synctest.Wait()
		if lockKey(n) == "" {
			t.Error("who hung released the lock of the next one")
		}
		must(t, l.Release(context.Background()))
	})
}

// Only durations count: what the pods' clocks say is never compared. There is no clock of a pod to set in a
// bubble; so the server's is set off instead, which is the same difference.
func TestClocksThatDifferDoNotMatter(t *testing.T) {
	for _, offset := range []time.Duration{-10 * time.Second, 0, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			n := newBubbleNode(t, 0)
			lk, err := lock.New(nil, n.client(t, "127.0.0.1:1"))
			must(t, err)
			defer func() { must(t, lk.Close()) }()
			n.SetTime(time.Now().Add(offset))
			l, err := lk.TryAcquire(t.Context(), "job", 5*time.Second)
			must(t, err)
			if v := l.Validity(); v != 5*time.Second-52*time.Millisecond {
				t.Errorf("offset %v: validity %v", offset, v)
			}
			n.SetTime(time.Now().Add(offset + 4900*time.Millisecond))
			_, err = lk.TryAcquire(t.Context(), "job", 5*time.Second)
			wantErr(t, err, lock.ErrNotAcquired)
			n.SetTime(time.Now().Add(offset + 5100*time.Millisecond))
			next, err := lk.TryAcquire(t.Context(), "job", 5*time.Second)
			must(t, err)
			if next.Fence() <= l.Fence() {
				t.Errorf("fence %d after %d", next.Fence(), l.Fence())
			}
		})
	}
}

// The fencing number grows though the server's clock steps back by ten seconds, or jumps forth and back; and
// over a restart that forgets everything, if the clock does not step back.
func TestFenceGrowsWhateverTheServersClockDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newBubbleNode(t, 0)
		lk, err := lock.New(nil, n.client(t, "127.0.0.1:1"))
		must(t, err)
		defer func() { must(t, lk.Close()) }()
		begun, last := time.Now(), uint64(0)
		next := func(what string, at time.Duration) {
			t.Helper()
			n.SetTime(begun.Add(at))
			l, err := lk.TryAcquire(t.Context(), "job", time.Second)
			must(t, err)
			if l.Fence() <= last {
				t.Errorf("%s: fence %d after %d", what, l.Fence(), last)
			}
			last = l.Fence()
			must(t, l.Release(t.Context()))
		}
		next("first", 0)
		next("same moment", 0)
		next("back", -10*time.Second)
		next("forth", time.Hour)
		next("back again", 0)
		n.FlushAll()
		next("restart", time.Hour+time.Second)
		n.SetTime(begun.Add(time.Hour + time.Second))
		next("a year ahead", 365*24*time.Hour)
		next("and back", 0)
		next("long idle", 40*24*time.Hour)
		if n.FlushAll(); len(n.Keys()) != 0 {
			t.Fatal("keys are left")
		}
		// The counter-example: what was forgotten while the clock was ahead.
		n.SetTime(begun.Add(41 * 24 * time.Hour))
		l, err := lk.TryAcquire(t.Context(), "job", time.Second)
		must(t, err)
		if l.Fence() > last {
			t.Errorf("fence %d after %d: then the documentation is too modest", l.Fence(), last)
		}
	})
}

func TestClosedLockerEndsKeptLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newBubbleNode(t, 0)
		lk, err := lock.New(nil, n.client(t, "127.0.0.1:1"))
		must(t, err)
		l, err := lk.Acquire(t.Context(), "job", 3*time.Second)
		must(t, err)
		ctx, stop := l.Keep(t.Context())
		defer stop()
		must(t, lk.Close())
		synctest.Wait()
		var lost *lock.LostError
		if !errors.As(context.Cause(ctx), &lost) || lost.Reason != lock.Closed {
			t.Errorf("cause %v", context.Cause(ctx))
		}
		wantErr(t, l.Release(t.Context()), lock.ErrClosed)
	})
}

func TestKeepOfALostOrReleasedLockEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, n := bubbleLocker(t, nil)
		l, err := lk.Acquire(t.Context(), "job", 3*time.Second)
		must(t, err)
		n.Del(lockKey(n))
		wantErr(t, l.Extend(t.Context(), time.Second), lock.ErrLost)
		ctx, stop := l.Keep(t.Context())
		defer stop()
		wantErr(t, context.Cause(ctx), lock.ErrLost)
		l, err = lk.Acquire(t.Context(), "job", 3*time.Second)
		must(t, err)
		must(t, l.Release(t.Context()))
		ctx, stop = l.Keep(t.Context())
		defer stop()
		wantErr(t, context.Cause(ctx), lock.ErrReleased)
	})
}

// A panic in an Observer is not the lock's.
func TestObserverMayPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, _ := bubbleLocker(t, &lock.Options{Observer: lock.ObserverFunc(func(lock.Event) { panic("observer") })})
		must(t, lk.Do(t.Context(), "job", 3*time.Second, func(context.Context) error { return nil }))
	})
}

func TestReleaseEndsTheContextOfAKeptLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, _ := bubbleLocker(t, nil)
		l, err := lk.Acquire(t.Context(), "job", 3*time.Second)
		must(t, err)
		ctx, stop := l.Keep(t.Context())
		defer stop()
		must(t, l.Release(t.Context()))
		only(t, context.Cause(ctx), lock.ErrReleased)
		// By fn itself, too; that is no loss, and what fn returns is returned.
		boom := errors.New("boom")
		if err := lk.Do(t.Context(), "job", 3*time.Second, func(ctx context.Context) error {
			must(t, lock.FromContext(ctx).Release(ctx))
			only(t, context.Cause(ctx), lock.ErrReleased)
			return boom
		}); err != boom {
			t.Errorf("error %v", err)
		}
		if s := lk.Stats(); s.Lost != 0 || s.Released != 2 {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestStoppedKeepersAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, _ := bubbleLocker(t, nil)
		l, err := lk.Acquire(t.Context(), "job", 3*time.Second)
		must(t, err)
		kept, stop := l.Keep(t.Context())
		for range 10 {
			ctx, stop := l.Keep(t.Context())
			stop()
			wantErr(t, context.Cause(ctx), context.Canceled)
			stop()
		}
		if n := lock.Keepers(l); n != 1 {
			t.Errorf("%d keepers", n)
		}
		time.Sleep(time.Minute)
		must(t, kept.Err())
		stop()
		must(t, l.Release(t.Context()))
	})
}

// However many keep a lock, and whatever comes after the first sign, its loss is told once.
func TestLossIsToldOnce(t *testing.T) {
	for name, lose := range map[string]func(*bubbleNode){
		"hold limit": func(*bubbleNode) {},
		"silence":    func(n *bubbleNode) { n.down.Store(true) },
		"gone":       func(n *bubbleNode) { n.FlushAll() },
	} {
		synctest.Test(t, func(t *testing.T) {
			seen := &log{}
			lk, n := bubbleLocker(t, &lock.Options{MaxHold: 10 * time.Second, Observer: seen})
			l, err := lk.Acquire(t.Context(), "job", 3*time.Second)
			must(t, err)
			a, stopA := l.Keep(t.Context())
			b, stopB := l.Keep(t.Context())
			lose(n)
			time.Sleep(time.Minute) // the lease ends, too
			wantErr(t, context.Cause(a), lock.ErrLost)
			wantErr(t, context.Cause(b), lock.ErrLost)
			n.down.Store(false)
			wantErr(t, l.Release(t.Context()), lock.ErrLost)
			stopA()
			stopB()
			if s := lk.Stats(); s.Lost != 1 || strings.Count(seen.String(), "lost") != 1 {
				t.Errorf("%s: stats %+v, events %s", name, s, seen)
			}
		})
	}
}

// What a Close ends is told before it returns; after that the observer is left alone.
func TestObserverIsNotCalledAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, seen := newBubbleNode(t, 0), &log{}
		lk, err := lock.New(&lock.Options{Observer: seen}, n.client(t, "127.0.0.1:1"))
		must(t, err)
		l, err := lk.Acquire(t.Context(), "job", 3*time.Second)
		must(t, err)
		_, stop := l.Keep(t.Context())
		defer stop()
		must(t, lk.Close())
		if got := seen.String(); got != "acquired lost" {
			t.Errorf("events %s", got)
		}
		time.Sleep(time.Minute)
		late, stopLate := l.Keep(t.Context())
		defer stopLate()
		synctest.Wait()
		wantErr(t, context.Cause(late), lock.ErrLost)
		_ = l.Extend(t.Context(), time.Minute)
		_ = l.Release(t.Context())
		if got := seen.String(); got != "acquired lost" {
			t.Errorf("events %s", got)
		}
	})
}
