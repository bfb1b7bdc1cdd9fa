package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/herdgate/herdgate/internal/redistest"
	"github.com/herdgate/herdgate/stampede"
)

// However many callers: one load in the fleet, and one waiter per pod that talks to Redis. It elects, subscribes, elects again
// and, by and by, unsubscribes. Besides there are, in pods that have just started, the reads of those who come before the first
// election is answered; they travel together.
func TestColdKeyOfEightPodsIsLoadedOnceAndCostsFewRequests(t *testing.T) {
	t.Parallel()
	t.Run("pods that have just started", func(t *testing.T) { coldKey(t, 2, 4, 16) })
	t.Run("pods that have seen misses", func(t *testing.T) { coldKey(t, 12, 4, 1) })
}

// coldKey asks for a cold key in pods that have seen so many misses.
func coldKey(t *testing.T, misses, mostBesideReads, mostReads int) {
	const (
		podCount, callerCount = 8, 64
		took                  = 200 * time.Millisecond
	)
	s := redistest.Server(t)
	pods := newPods(t, podCount, s.Addr(), stampede.Options{})
	for _, p := range pods { // opens the connections
		for n := range misses {
			_, err := p.guard.Get(t.Context(), fmt.Sprintf("warm %s %d", p.name, n), nothingLoaded)
			must(t, err)
		}
	}
	redistest.Eventually(t, 5*time.Second, func() bool { return subscribed(t, s)["e2e:d"] == podCount })
	x := listen(t, s)

	var (
		loads  atomic.Int64
		loaded atomic.Pointer[time.Time]
		wg     sync.WaitGroup
		mu     sync.Mutex // protects late
		late   []time.Duration
	)
	begun := time.Now()
	for _, p := range pods {
		for range callerCount {
			wg.Go(func() {
				v, err := p.guard.Get(t.Context(), "k", func(ctx context.Context) (string, error) {
					loads.Add(1)
					pause(ctx, took)
					now := time.Now()
					loaded.Store(&now)
					return "v", nil
				})
				back := time.Now()
				if v != "v" || err != nil {
					t.Errorf("%s: Get = %q, %v", p.name, v, err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				late = append(late, back.Sub(*loaded.Load()))
			})
		}
	}
	wg.Wait()
	all := time.Since(begun)
	wait(100 * time.Millisecond) // what nobody waits for counts, too
	busy := machine.late(begun, time.Now())

	if n := loads.Load(); n != 1 && busy < storeBudget/2 {
		t.Errorf("%d loads, want 1", n)
	}
	slices.Sort(late)
	t.Logf("all %d callers were served in %v; p50 %v, p99 %v, last %v after the load; machine late %v",
		len(late), all, late[len(late)/2], late[len(late)*99/100], late[len(late)-1], busy)
	if most := 50 * time.Millisecond; late[len(late)-1] > most+3*busy {
		t.Errorf("the last caller was served %v after the load: nobody woke it", late[len(late)-1])
	}
	for name, sent := range x.byClient(t) {
		text, sum := counts(sent)
		reads := sent[readRequest]
		t.Logf("%s sent %d requests: %s", name, sum, text)
		if (sum-reads > mostBesideReads || reads > mostReads) && busy < 50*time.Millisecond {
			t.Errorf("%s sent %d requests, want at most %d and %d reads: %s", name, sum, mostBesideReads, mostReads, text)
		}
	}
}

// A pod whose subscription is lost is not told of the end of the load. Its callers look for themselves.
func TestCallersWhoseSubscriptionIsLostReturnWithinThePollInterval(t *testing.T) {
	t.Parallel()
	const pollInterval = 250 * time.Millisecond
	s := redistest.Server(t)
	pods := newPods(t, 2, s.Addr(), stampede.Options{})
	finish := make(chan struct{})
	began := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := pods[0].guard.Get(t.Context(), "k", func(context.Context) (string, error) {
			close(began)
			<-finish
			return "v", nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-began
	var finished atomic.Pointer[time.Time]
	var slowest atomic.Int64
	begun := time.Now()
	for range 100 {
		wg.Go(func() {
			v, err := pods[1].guard.Get(t.Context(), "k", func(context.Context) (string, error) { return "second", nil })
			switch at := finished.Load(); {
			case v == "second" && err == nil: // is counted below
			case v != "v" || err != nil || at == nil:
				t.Errorf("Get = %q, %v", v, err)
			default:
				if took := int64(time.Since(*at)); took > slowest.Load() {
					slowest.Store(took)
				}
			}
		})
	}
	redistest.Eventually(t, 5*time.Second, func() bool { return len(subscribed(t, s)) == 2 }) // that of drops, and of k
	wait(50 * time.Millisecond)

	now := time.Now()
	finished.Store(&now)
	do(t, s, "CLIENT", "KILL", "TYPE", "pubsub")
	close(finish)
	wg.Wait()
	t.Logf("100 callers returned within %v of the end of the load", time.Duration(slowest.Load()))
	if tooLong(now, pollInterval) {
		t.Errorf("they returned within %v only", time.Duration(slowest.Load()))
	}
	if n := pods[1].guard.Stats().Loads; n != 0 && machine.late(begun, time.Now()) < storeBudget/2 { // else an election may come too late
		t.Errorf("%d loads in the pod that followed", n)
	}
	redistest.Eventually(t, 5*time.Second, func() bool { return len(subscribed(t, s)) == 1 && subscribed(t, s)["e2e:d"] == 2 })
}
