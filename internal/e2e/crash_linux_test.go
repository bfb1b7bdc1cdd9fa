package e2e_test

import (
	"context"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/herdgate/herdgate/internal/redistest"
	"github.com/herdgate/herdgate/stampede"
)

// crowd is callers of several pods that wait for the same key.
type crowd struct {
	wg    sync.WaitGroup
	loads atomic.Int64
	begun atomic.Pointer[time.Time] // of the first load

	mu     sync.Mutex // protects values
	values map[string]int
}

// ask lets n callers of each pod get key, whose load here takes that long and brings value.
func (c *crowd) ask(t *testing.T, pods []*pod, n int, key, value string, took time.Duration) {
	c.values = map[string]int{}
	for _, p := range pods {
		for range n {
			c.wg.Go(func() {
				v, err := p.guard.Get(t.Context(), key, func(ctx context.Context) (string, error) {
					now := time.Now()
					c.begun.CompareAndSwap(nil, &now)
					c.loads.Add(1)
					pause(ctx, took)
					return value, ctx.Err()
				})
				if err != nil {
					t.Errorf("%s: Get: %v", p.name, err)
				}
				c.mu.Lock()
				defer c.mu.Unlock()
				c.values[v]++
			})
		}
	}
}

// followed waits until each pod follows the load of another one.
func followed(t *testing.T, pods []*pod) {
	t.Helper()
	redistest.Eventually(t, 5*time.Second, func() bool {
		for _, p := range pods {
			if p.guard.Stats().LeasesHeld == 0 {
				return false
			}
		}
		return true
	})
}

func TestLeaderThatIsKilledIsReplacedOnceWithinItsLease(t *testing.T) {
	t.Parallel()
	s := redistest.Server(t)
	pods := newPods(t, 3, s.Addr(), stampede.Options{})
	leader := startChild(t, orders{Addr: s.Addr(), Name: "leader", Once: &once{Key: "k", Value: "old", LoadTook: time.Minute}})
	leader.await(t, loadBegan, 10*time.Second)

	var c crowd
	c.ask(t, pods, 20, "k", "new", 100*time.Millisecond)
	followed(t, pods)
	wait(500 * time.Millisecond) // so that the lease has been renewed
	if n := c.loads.Load(); n != 0 {
		t.Fatalf("%d loads beside that of a leader that lives", n)
	}
	killed := time.Now()
	leader.kill(t)
	c.wg.Wait()
	next := c.begun.Load().Sub(killed)
	t.Logf("the next load began %v after the leader was killed, the last of %d callers was served after %v", next, 60, time.Since(killed))
	if most := 1200 * time.Millisecond; next > most && tooLong(killed, most+100*time.Millisecond) {
		t.Errorf("the next load began %v after the leader was killed", next)
	}
	if n := c.loads.Load(); n != 1 {
		t.Errorf("%d loads after the crash, want 1", n)
	}
	if c.values["new"] != 60 {
		t.Errorf("callers got %v", c.values)
	}
}

func TestLeaderThatWasStoppedBeyondItsLeaseOverwritesNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Server(t)
	pods := newPods(t, 2, s.Addr(), stampede.Options{})
	leader := startChild(t, orders{Addr: s.Addr(), Name: "leader", Once: &once{Key: "k", Value: "old", LoadTook: 300 * time.Millisecond}})
	leader.await(t, loadBegan, 10*time.Second)
	leader.signal(t, syscall.SIGSTOP)
	stopped := time.Now()

	var c crowd
	c.ask(t, pods, 20, "k", "new", 50*time.Millisecond)
	c.wg.Wait()
	if n := c.loads.Load(); n != 1 || c.values["new"] != 40 {
		t.Errorf("%d loads, callers got %v", n, c.values)
	}
	wait(2*leaseLength - time.Since(stopped))
	leader.signal(t, syscall.SIGCONT)

	got := leader.await(t, returned, 5*time.Second)
	if got.Err != "" || got.Value != "old" && got.Value != "new" {
		t.Errorf("the caller of the leader got %q, %q", got.Value, got.Err)
	}
	end := leader.await(t, ended, 5*time.Second)
	t.Logf("the leader's caller got %q; %s", got.Value, end.Value)
	for _, p := range pods {
		r, ok, err := p.guard.Peek(t.Context(), "k")
		if err != nil || !ok || r.Value != "new" {
			t.Errorf("%s: the store holds %q, %v, %v", p.name, r.Value, ok, err)
		}
	}
	if end.Value == "refused 0, lost 0" {
		t.Error("the leader did not notice that it had lost its lease")
	}
}
