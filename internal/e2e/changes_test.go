package e2e_test

import (
	"context"
	"sync"
	"testing"
	"time"
)

// want says what a change may return while Redis is in trouble.
type want uint8

const (
	either want = iota
	fails
	works
)

// wants is that for each method whose errors are the caller's business.
type wants struct{ set, del, expire, peek want }

var (
	allEither = wants{}
	allFail   = wants{fails, fails, fails, fails}
	allWork   = wants{works, works, works, works}
)

// changed is one call of Set, Delete, Expire or Peek.
type changed struct {
	pod, what    string
	begun, ended time.Time
	late         time.Duration
	err          error
}

// changers change a key of their own in every pod, until they are stopped.
type changers struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu  sync.Mutex // protects all
	all []changed
}

func startChangers(t testing.TB, pods []*pod) *changers {
	ctx, cancel := context.WithCancel(context.Background())
	c := &changers{cancel: cancel}
	for _, p := range pods {
		c.wg.Go(func() {
			for pause(ctx, 2*callEvery) {
				c.round(p)
			}
		})
	}
	t.Cleanup(c.stop)
	return c
}

func (c *changers) stop() {
	c.cancel()
	c.wg.Wait()
}

// changesOf are the methods whose errors are the caller's business.
func changesOf(p *pod) map[string]func() error {
	ctx, key := context.Background(), "changed-"+p.name
	return map[string]func() error{
		"Set":    func() error { return p.guard.Set(ctx, key, "set") },
		"Delete": func() error { return p.guard.Delete(ctx, key) },
		"Expire": func() error { return p.guard.Expire(ctx, key) },
		"Peek": func() error {
			_, _, err := p.guard.Peek(ctx, key)
			return err
		},
	}
}

// round does each of them once.
func (c *changers) round(p *pod) {
	for what, do := range changesOf(p) {
		x := changed{pod: p.name, what: what, begun: time.Now()}
		x.err = do()
		x.ended = time.Now()
		x.late = machine.late(x.begun, x.ended)
		c.mu.Lock()
		c.all = append(c.all, x)
		c.mu.Unlock()
	}
}

// writeBound is what Set, Delete and Expire may cost: they have no fallback, so they try for a second.
const writeBound = time.Second

// judge compares what was returned from..to with what may be.
func (c *changers) judge(t *testing.T, w wants, from, to time.Time) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	seen, failed := map[string]int{}, map[string]int{}
	for _, x := range c.all {
		if x.ended.Sub(x.begun) > writeBound+250*time.Millisecond+3*x.late && !machine.busy(from, to) {
			t.Errorf("%s: %s took %v", x.pod, x.what, x.ended.Sub(x.begun))
		}
		if x.begun.Before(from) || x.ended.After(to) {
			continue
		}
		seen[x.what]++
		wanted := map[string]want{"Set": w.set, "Delete": w.del, "Expire": w.expire, "Peek": w.peek}[x.what]
		switch {
		case wanted == fails && x.err == nil:
			t.Errorf("%s: %s returned nil in the middle of the trouble, %v after it began", x.pod, x.what, x.begun.Sub(from))
		case wanted == works && x.err != nil:
			failed[x.what]++
			if machine.late(from, to) < copyBudget { // else the breaker may have opened
				t.Errorf("%s: %s returned %v", x.pod, x.what, x.err)
			}
		}
	}
	for _, what := range []string{"Set", "Delete", "Expire", "Peek"} {
		if seen[what] == 0 {
			t.Errorf("%s was never called during the trouble", what)
		}
		if 2*failed[what] > seen[what] && !machine.busy(from, to) {
			t.Errorf("%s failed %d times of %d during the trouble", what, failed[what], seen[what])
		}
	}
}
