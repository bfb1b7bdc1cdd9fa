package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/internal/faultproxy"
	"github.com/herdgate/herdgate/internal/redistest"
	"github.com/herdgate/herdgate/stampede/lock"
)

// Pauses are so long that only a message can be in time.
func TestWaiterIsWokenByTheReleaseInAnotherProcess(t *testing.T) {
	t.Parallel()
	for name, rdb := range topologies(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := slowMachine()
			o.Poll = time.Hour
			a, b := newLocker(t, o, rdb()), newLocker(t, o, rdb())
			for range 5 {
				l, err := a.Acquire(t.Context(), "job", time.Minute)
				must(t, err)
				got := make(chan error, 1)
				before := b.Stats().Held
				go func() {
					l, err := b.Acquire(t.Context(), "job", time.Minute)
					if err == nil {
						err = l.Release(t.Context())
					}
					got <- err
				}()
				// One try, and one more once the subscription stands; or more, when it still tells of the last round.
				redistest.Eventually(t, patient, func() bool { return b.Stats().Held >= before+2 })
				must(t, l.Release(t.Context()))
				select {
				case err := <-got:
					must(t, err)
				case <-time.After(patient):
					t.Fatal("not woken")
				}
			}
		})
	}
}

// topologies are ways to the shared servers, each with a new client.
func topologies(t *testing.T) map[string]func() redis.UniversalClient {
	return map[string]func() redis.UniversalClient{
		"single": func() redis.UniversalClient { return newClient(t, shared.Server(t).Addr()) },
		"sentinel": func() redis.UniversalClient {
			s := shared.Sentinel(t)
			rdb := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: s.MasterName(), SentinelAddrs: s.Addrs()})
			t.Cleanup(func() { _ = rdb.Close() })
			return rdb
		},
		"cluster": func() redis.UniversalClient {
			rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: shared.Cluster(t).Addrs()})
			t.Cleanup(func() { _ = rdb.Close() })
			return rdb
		},
	}
}

// redisson#5761, #5070, #763: messages that are lost cost a poll interval, not the lock.
func TestLostMessagesCostAPollIntervalAtMost(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t)
	rdb := newClient(t, srv.Addr())
	o := slowMachine()
	o.Poll = 100 * time.Millisecond
	a, b := newLocker(t, o, rdb), newLocker(t, o, rdb)
	l, err := a.Acquire(t.Context(), "job", time.Minute)
	must(t, err)
	got := make(chan error, 1)
	go func() {
		l, err := b.Acquire(t.Context(), "job", time.Minute)
		if err == nil {
			err = l.Release(t.Context())
		}
		got <- err
	}()
	redistest.Eventually(t, patient, func() bool { return b.Stats().Held >= 2 })
	must(t, rdb.Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Err()) // redis/go-redis#3806
	must(t, rdb.Del(t.Context(), keyOf(t, rdb, o, "k")).Err())             // nobody is told
	select {
	case err := <-got:
		must(t, err)
	case <-time.After(patient):
		t.Fatal("it waits for ever")
	}
	wantErr(t, l.Release(t.Context()), lock.ErrLost)
}

// Those of a process get the lock in the order in which they came, and only one of them asks Redis.
func TestWaitersOfAProcessStandInLine(t *testing.T) {
	t.Parallel()
	lk, _, _ := single(t)
	const waiters = 20
	l, err := lk.Acquire(t.Context(), "job", time.Minute)
	must(t, err)
	var order []int
	var wg sync.WaitGroup
	for i := range waiters {
		wg.Go(func() {
			if err := lk.Do(t.Context(), "job", time.Minute, func(context.Context) error {
				order = append(order, i) // the lock protects it
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
		redistest.Eventually(t, patient, func() bool { return lock.Waiting(lk, "job") == i+1 })
	}
	held := lk.Stats().Held
	must(t, l.Release(t.Context()))
	wg.Wait()
	for i, got := range order {
		if got != i {
			t.Fatalf("order %v", order)
		}
	}
	if s := lk.Stats(); s.Held-held > waiters/2 {
		t.Errorf("%d tries found the lock held, while one after the other had it", s.Held-held)
	}
	if n := lock.Waiting(lk, "job"); n != 0 {
		t.Errorf("%d still stand in line", n)
	}
}

// redisson#4064, #2575, #3577: subscriptions leaked per lock.
func TestNoSubscriptionIsLeftBehind(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t)
	rdb := newClient(t, srv.Addr())
	o := slowMachine()
	a, b := newLocker(t, o, rdb), newLocker(t, o, rdb)
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			name := fmt.Sprint(i)
			l, err := a.Acquire(t.Context(), name, time.Minute)
			if err != nil {
				t.Error(err)
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if _, err := b.Acquire(ctx, name, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	redistest.Eventually(t, patient, func() bool { return len(rdb.PubSubChannels(t.Context(), "*").Val()) == 0 })
}

// bsm/redislock#74, #27, #83: the wait, the tries and the lease are separate. symfony #63592: waiting has an end.
func TestWaitTriesAndLeaseAreSeparate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, n := bubbleLocker(t, nil)
		l, err := lk.Acquire(t.Context(), "job", 10*time.Minute)
		must(t, err)
		for name, c := range map[string]struct {
			opt  lock.Options
			ctx  time.Duration
			took time.Duration
			is   error
		}{
			"default":   {lock.Options{}, time.Hour, lock.DefaultWaitTimeout, nil},
			"wait":      {lock.Options{WaitTimeout: 5 * time.Second}, time.Hour, 5 * time.Second, nil},
			"ctx":       {lock.Options{WaitTimeout: -1}, time.Minute, time.Minute, context.DeadlineExceeded},
			"one try":   {lock.Options{Tries: 1}, time.Hour, 0, nil},
			"two tries": {lock.Options{Tries: 2}, time.Hour, 0, nil}, // the second one is due when the subscription stands
		} {
			o := c.opt
			other, err := lock.New(&o, n.client(t, "127.0.0.1:1"))
			must(t, err)
			begun := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), c.ctx)
			_, err = other.Acquire(ctx, "job", time.Second)
			if took := time.Since(begun); took != c.took {
				t.Errorf("%s: took %v, want %v", name, took, c.took)
			}
			if c.is != nil {
				wantErr(t, err, c.is)
			}
			wantErr(t, err, lock.ErrNotAcquired)
			if s := other.Stats(); s.GivenUp != 1 {
				t.Errorf("%s: stats %+v", name, s)
			}
			cancel()
			must(t, other.Close())
		}
		must(t, l.Release(t.Context()))
	})
}

// dogpile #261, nautobot #2356: who died holding the lock keeps the others for its lease and no longer.
func TestDeadHolderKeepsOthersForItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, n := bubbleLocker(t, nil)
		other, err := lock.New(nil, n.client(t, "127.0.0.1:1"))
		must(t, err)
		defer func() { must(t, other.Close()) }()
		begun := time.Now()
		_, err = lk.Acquire(t.Context(), "job", 5*time.Second)
		must(t, err)
		l, err := other.Acquire(t.Context(), "job", 5*time.Second)
		must(t, err)
		if took := time.Since(begun); took < 5*time.Second || took > 5*time.Second+50*time.Millisecond {
			t.Errorf("acquired after %v", took)
		}
		// node-redlock#169, #274, #276: counted from the try that was granted, not from the first.
		if v := l.Validity(); v < 5*time.Second-52*time.Millisecond || v > 5*time.Second {
			t.Errorf("validity %v", v)
		}
		must(t, l.Release(t.Context()))
	})
}

// discourse #17886, medusajs #15143: waiting must not melt Redis, and those who wait must not march in step.
func TestWaitingAsksSeldomAndAtRandom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, n := bubbleLocker(t, nil)
		l, err := lk.Acquire(t.Context(), "job", time.Hour)
		must(t, err)
		at := map[time.Duration]int{}
		var mu sync.Mutex // protects at
		begun := time.Now()
		var others []*lock.Locker
		var wg sync.WaitGroup
		for range 50 {
			o := &lock.Options{WaitTimeout: 20 * time.Second, Observer: lock.ObserverFunc(func(e lock.Event) {
				if e.Kind == lock.EventHeld {
					mu.Lock()
					defer mu.Unlock()
					at[time.Since(begun)/(10*time.Millisecond)]++
				}
			})}
			other, err := lock.New(o, n.client(t, "127.0.0.1:1"))
			must(t, err)
			others = append(others, other)
			for range 4 {
				wg.Go(func() { _, _ = other.Acquire(t.Context(), "job", time.Minute) })
			}
		}
		wg.Wait()
		total, most := 0, 0
		for slot, n := range at {
			total += n
			if slot > 0 { // they came together
				most = max(most, n)
			}
		}
		if total > 50*45 || most > 50/5 {
			t.Errorf("200 waiters of 50 processes asked %d times in 20 s, at most %d times in 10 ms", total, most)
		}
		for _, other := range others {
			must(t, other.Close())
		}
		must(t, l.Release(t.Context()))
	})
}

// Who is first in line may leave while it asks, because it was told that the lock is free. The next one asks at
// once, and does not wait to be told again.
func TestWakeUpIsHandedOnWhenTheFirstInLineLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, n := bubbleLocker(t, &lock.Options{Poll: time.Hour})
		holder := newBubbleHolder(t, n)
		held, err := holder.Acquire(t.Context(), "job", time.Hour)
		must(t, err)
		ctx, leave := context.WithCancel(t.Context())
		first, next := make(chan error, 1), make(chan *lock.Lock, 1)
		go func() { first <- second(lk.Acquire(ctx, "job", time.Minute)) }()
		time.Sleep(time.Second)
		go func() {
			l, err := lk.Acquire(t.Context(), "job", time.Minute)
			if err != nil {
				t.Error(err)
			}
			next <- l
		}()
		time.Sleep(time.Second)
		key := lockKey(n)
		n.down.Store(true) // what is asked gets no answer
		n.Del(key)
		n.Publish(strings.Replace(key, ":k:", ":u:", 1), "c")
		time.Sleep(50 * time.Millisecond)
		n.down.Store(false)
		begun := time.Now()
		leave()
		wantErr(t, <-first, context.Canceled)
		l := <-next
		if took := time.Since(begun); took > 50*time.Millisecond {
			t.Errorf("the next one had it %v after the first one left", took)
		}
		must(t, l.Release(t.Context()))
		wantErr(t, held.Release(t.Context()), lock.ErrLost)
	})
}

// Who is next in line knows what the one before has found out: a crowd whose patience ends one after the other does
// not ask one after the other.
func TestWaitersWhoLeaveDoNotAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, n := bubbleLocker(t, nil)
		holder := newBubbleHolder(t, n)
		held, err := holder.Acquire(t.Context(), "job", time.Hour)
		must(t, err)
		var wg sync.WaitGroup
		for i := range 500 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second+time.Duration(i)*time.Millisecond)
				defer cancel()
				_, err := lk.Acquire(ctx, "job", time.Minute)
				wantErr(t, err, context.DeadlineExceeded)
			})
			time.Sleep(time.Millisecond)
		}
		before := lk.Stats().Held
		wg.Wait()
		if n := lk.Stats().Held - before; n > 20 {
			t.Errorf("asked %d times in five seconds", n)
		}
		must(t, held.Release(t.Context()))
	})
}

// newBubbleHolder is a Locker of another process on n.
func newBubbleHolder(t *testing.T, n *bubbleNode) *lock.Locker {
	lk, err := lock.New(nil, n.client(t, "127.0.0.1:1"))
	must(t, err)
	t.Cleanup(func() { must(t, lk.Close()) })
	return lk
}

// A message may come at a moment at which Redis does not serve. What comes next is a short pause, not the long
// one of those who will be told.
func TestFailedTryIsRepeatedSoonThoughTheSubscriptionStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, n := bubbleLocker(t, nil)
		o := &lock.Options{Poll: 10 * time.Second}
		other, err := lock.New(o, n.client(t, "127.0.0.1:1"))
		must(t, err)
		defer func() { must(t, other.Close()) }()
		_, err = lk.Acquire(t.Context(), "job", time.Hour)
		must(t, err)
		got := make(chan *lock.Lock, 1)
		go func() {
			l, err := other.Acquire(t.Context(), "job", time.Minute)
			if err != nil {
				t.Error(err)
			}
			got <- l
		}()
		time.Sleep(time.Second)
		key := lockKey(n)
		n.SetError("LOADING for a moment")
		n.Publish(strings.Replace(key, ":k:", ":u:", 1), "c")
		time.Sleep(100 * time.Millisecond)
		n.SetError("")
		n.Del(key)
		begun := time.Now()
		l := <-got
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("acquired after %v", took)
		}
		must(t, l.Release(t.Context()))
	})
}

// Redis that is away for a while is waited for.
func TestAcquireOutlastsAnOutage(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t)
	p := redistest.Proxy(t, srv.Addr())
	o := slowMachine()
	o.Timeout = 100 * time.Millisecond
	lk := newLocker(t, o, newClient(t, p.Addr()))
	p.BlackHole(true)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := lk.Acquire(ctx, "job", time.Minute)
	wantErr(t, err, context.DeadlineExceeded)
	if errors.Is(err, lock.ErrNotAcquired) {
		t.Errorf("nobody is known to hold it: %v", err)
	}
	trouble := lk.Stats().Trouble
	got := make(chan error, 1)
	go func() { got <- second(lk.Acquire(t.Context(), "job", time.Minute)) }()
	redistest.Eventually(t, patient, func() bool { return lk.Stats().Trouble > trouble })
	p.BlackHole(false)
	must(t, <-got)
}

// In the thick of it: processes of many goroutines, and replies that are lost. Only one is in at a time.
func TestManyContendersExcludeEachOther(t *testing.T) {
	t.Parallel()
	srv := shared.Server(t)
	p := redistest.Proxy(t, srv.Addr())
	o := slowMachine()
	var inside, entries atomic.Int32
	var wg sync.WaitGroup
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				p.DropReplies(faultproxy.Drop{N: 1, Close: true})
			}
		}
	}()
	for range 4 {
		lk := newLocker(t, o, newClient(t, p.Addr()))
		for range 8 {
			wg.Go(func() {
				for range 10 {
					if err := lk.Do(t.Context(), "job", time.Minute, func(context.Context) error {
						if n := inside.Add(1); n != 1 {
							t.Errorf("%d at once", n)
						}
						defer inside.Add(-1)
						entries.Add(1)
						return nil
					}); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	close(stop)
	if entries.Load() != 320 {
		t.Errorf("%d entries", entries.Load())
	}
}
