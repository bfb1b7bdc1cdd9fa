package lock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/internal/redistest"
	"github.com/herdgate/herdgate/stampede/lock"
)

// pods are lockers of processes of their own, on one node, who only ask when they are told to.
func pods(t *testing.T, n *bubbleNode, count int) (all []*lock.Locker) {
	for range count {
		lk, err := lock.New(&lock.Options{Poll: time.Hour, WaitTimeout: -1}, n.client(t, "127.0.0.1:1"))
		must(t, err)
		t.Cleanup(func() { must(t, lk.Close()) })
		all = append(all, lk)
	}
	return all
}

// asked returns how often they found the lock held.
func asked(all []*lock.Locker) (n uint64) {
	for _, lk := range all {
		n += lk.Stats().Held
	}
	return n
}

// hashicorp/consul#7523: all who wait wake up and contend again. A release wakes one process, the one that has
// waited longest.
func TestReleaseIsPassedOnToTheProcessThatHasWaitedLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := pods(t, newBubbleNode(t, 0), 6)
		l, err := all[0].Acquire(t.Context(), "job", time.Hour)
		must(t, err)
		got := make(chan int)
		release := make(chan struct{})
		var wg sync.WaitGroup
		for i, lk := range all[1:] {
			wg.Go(func() {
				l, err := lk.Acquire(t.Context(), "job", time.Hour)
				if err != nil {
					t.Error(err)
				}
				got <- i
				<-release
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(time.Second) // they come one after the other
		}
		before := asked(all)
		must(t, l.Release(t.Context()))
		for i := range len(all) - 1 {
			if next := <-got; next != i {
				t.Errorf("number %d is next, want %d", next, i)
			}
			time.Sleep(5 * time.Second)
			// Who is in second place looks once whether the first one has taken it.
			if n := asked(all) - before; n > 1 {
				t.Errorf("%d others asked when %d had it", n, i)
			}
			before = asked(all)
			release <- struct{}{}
		}
		wg.Wait()
	})
}

// The process that the lock is passed on to may be dead. The next in the queue is there for that.
func TestLockThatIsPassedOnToADeadProcessIsTakenByTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newBubbleNode(t, 0)
		all := pods(t, n, 2)
		l, err := all[0].Acquire(t.Context(), "job", time.Hour)
		must(t, err)
		queue := strings.Replace(lockKey(n), ":k:", ":u:", 1)
		_, err = n.ZAdd(queue, 1, "0123456789abcdef") // who has waited longest
		must(t, err)
		got := make(chan *lock.Lock)
		go func() {
			l, err := all[1].Acquire(t.Context(), "job", time.Hour)
			if err != nil {
				t.Error(err)
			}
			got <- l
		}()
		time.Sleep(time.Second)
		begun := time.Now()
		must(t, l.Release(t.Context()))
		l = <-got
		if took := time.Since(begun); took > 50*time.Millisecond {
			t.Errorf("acquired after %v", took)
		}
		must(t, l.Release(t.Context()))
	})
}

// Those of a process with many waiters do not pass the lock on among themselves while others wait.
func TestCrowdInOneProcessDoesNotKeepOthersOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := pods(t, newBubbleNode(t, 0), 2)
		l, err := all[0].Acquire(t.Context(), "job", time.Hour)
		must(t, err)
		var order []int // the lock protects it
		var wg sync.WaitGroup
		wait := func(pod int) {
			wg.Go(func() {
				if err := all[pod].Do(t.Context(), "job", time.Hour, func(context.Context) error {
					order = append(order, pod)
					time.Sleep(time.Second)
					return nil
				}); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(100 * time.Millisecond)
		}
		for range 10 {
			wait(0)
		}
		wait(1)
		wait(1)
		must(t, l.Release(t.Context()))
		wg.Wait()
		if got := fmt.Sprint(order); got != "[0 1 0 1 0 0 0 0 0 0 0 0]" {
			t.Errorf("order %s", got)
		}
	})
}

// Who gives up leaves the queue, and nothing stays behind when all have had the lock or have given up.
func TestNoQueueIsLeftBehind(t *testing.T) {
	t.Parallel()
	lk, rdb, o := single(t)
	other := newLocker(t, o, rdb)
	ctx := t.Context()
	patience, lose := context.WithCancel(ctx)
	defer lose()
	l, err := lk.Acquire(ctx, "job", time.Minute)
	must(t, err)
	gone := make(chan error)
	go func() { gone <- second(other.Acquire(patience, "job", time.Minute)) }()
	queue := strings.Replace(keyOf(t, rdb, o, "k"), ":k:", ":u:", 1)
	redistest.Eventually(t, patient, func() bool { return rdb.ZCard(ctx, queue).Val() == 1 })
	if left := rdb.PTTL(ctx, queue).Val(); left <= 0 {
		t.Errorf("the queue ends in %v", left)
	}
	lose()
	wantErr(t, <-gone, context.Canceled)
	redistest.Eventually(t, patient, func() bool { return rdb.Exists(ctx, queue).Val() == 0 })
	must(t, l.Release(ctx))
	var wg sync.WaitGroup
	for range 4 {
		some := newLocker(t, &lock.Options{Name: o.Name, Timeout: o.Timeout}, rdb)
		for range 3 {
			wg.Go(func() {
				if err := some.Do(ctx, "job", time.Minute, func(context.Context) error { return nil }); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	redistest.Eventually(t, patient, func() bool { return rdb.Exists(ctx, queue).Val() == 0 })
}
