package e2e_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/herdgate/herdgate/stampede"
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

// round does each of them once and returns the first error.
func (c *changers) round(p *pod) (first error) {
	ctx, key := context.Background(), "changed-"+p.name
	for what, do := range map[string]func() error{
		"Set":    func() error { return p.guard.Set(ctx, key, "set") },
		"Delete": func() error { return p.guard.Delete(ctx, key) },
		"Expire": func() error { return p.guard.Expire(ctx, key) },
		"Peek": func() error {
			_, _, err := p.guard.Peek(ctx, key)
			return err
		},
	} {
		x := changed{pod: p.name, what: what, begun: time.Now()}
		x.err = do()
		x.ended = time.Now()
		x.late = machine.between(x.begun, x.ended)
		if first == nil && x.err != nil {
			first = fmt.Errorf("%s: %w", what, x.err)
		}
		c.mu.Lock()
		c.all = append(c.all, x)
		c.mu.Unlock()
	}
	return first
}

// writeBound is what Set, Delete and Expire may cost: they have no fallback, so they try for a second.
const writeBound = time.Second

// judge compares what was returned from..to with what may be.
func (c *changers) judge(t *testing.T, w wants, from, to time.Time) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := map[string]int{}
	for _, x := range c.all {
		if x.ended.Sub(x.begun) > writeBound+250*time.Millisecond+3*x.late {
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
		case wanted == works && x.err != nil && x.late == 0:
			t.Errorf("%s: %s returned %v", x.pod, x.what, x.err)
		}
	}
	for _, what := range []string{"Set", "Delete", "Expire", "Peek"} {
		if seen[what] == 0 {
			t.Errorf("%s was never called during the trouble", what)
		}
	}
}

// recovered says whether a pod is served by Redis again: it reads, elects, commits and changes there.
func recovered(c *callers, ch *changers, pods []*pod, round int) error {
	for _, p := range pods {
		key := fmt.Sprintf("%s-again-%s-%d", cold, p.name, round)
		x := c.call(p, cold, key)
		switch {
		case p.isDown():
			return fmt.Errorf("%s: the breaker is open", p.name)
		case x.err != nil:
			return fmt.Errorf("%s: %w", p.name, x.err)
		case !x.result.Stored:
			return fmt.Errorf("%s: a loaded value is not stored", p.name)
		}
		for i := range keysOfAKind {
			x := c.call(p, hot, fmt.Sprintf("%s%d", hot, i))
			if x.err != nil || x.result.From != stampede.FromStore {
				return fmt.Errorf("%s: %s is not from the store but from %v, error %w", p.name, x.key, x.result.From, x.err)
			}
		}
		if err := ch.round(p); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}
