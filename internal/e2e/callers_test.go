package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// The kinds of keys that the callers ask for. All but cold ones are loaded, and known to every pod, before the trouble begins.
const (
	hot     = "hot"     // fresh for longer than the test takes
	stale   = "stale"   // goes stale all the time, and is served so
	cold    = "cold"    // a new key every now and then, which all pods ask for at once
	nothing = "nothing" // not found
)

const (
	keysOfAKind = 4
	coldEvery   = 150 * time.Millisecond
	callEvery   = 40 * time.Millisecond
	staleTTL    = 400 * time.Millisecond
)

// callersOf says how many callers of each pod ask for a kind.
var callersOf = map[string]int{hot: 3, stale: 3, cold: 4, nothing: 1}

// ttlOf is the policy of the source.
func ttlOf(key string) time.Duration {
	if strings.HasPrefix(key, stale) {
		return staleTTL
	}
	return time.Minute
}

// called is one call of Fetch.
type called struct {
	pod, kind, key string
	begun, ended   time.Time
	late           time.Duration // of the machine meanwhile
	result         stampede.Result[string]
	err            error
}

func (c *called) took() time.Duration { return c.ended.Sub(c.begun) }

// callers ask pods for keys of every kind, at a steady rate, until they are stopped.
type callers struct {
	src    *source
	begun  time.Time
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu  sync.Mutex // protects all
	all []called
}

func startCallers(t testing.TB, pods []*pod, src *source) *callers {
	ctx, cancel := context.WithCancel(context.Background())
	c := &callers{src: src, begun: time.Now(), cancel: cancel}
	for _, p := range pods {
		for kind, n := range callersOf {
			for i := range n {
				c.wg.Go(func() { c.work(ctx, p, kind, i) })
			}
		}
	}
	t.Cleanup(c.stop)
	return c
}

func (c *callers) stop() {
	c.cancel()
	c.wg.Wait()
}

func (c *callers) work(ctx context.Context, p *pod, kind string, i int) {
	for pause(ctx, callEvery) {
		key := kind + strconv.Itoa(i%keysOfAKind)
		if kind == cold {
			key = kind + strconv.Itoa(int(time.Since(c.begun)/coldEvery))
		}
		x := c.call(p, kind, key)
		c.mu.Lock()
		c.all = append(c.all, x)
		c.mu.Unlock()
		i++
	}
}

// call has no deadline of its own: what bounds it is the guard's budget alone.
func (c *callers) call(p *pod, kind, key string) called {
	x := called{pod: p.name, kind: kind, key: key, begun: time.Now()}
	x.result, x.err = p.guard.Fetch(context.Background(), key, c.src.loader(p.name, key))
	x.ended = time.Now()
	x.late = machine.late(x.begun, x.ended)
	return x
}

// calls returns the calls of a kind ("": any) that began in that time.
func (c *callers) calls(kind string, from, to time.Time) (some []called) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.all {
		if (kind == "" || kind == x.kind) && !x.begun.Before(from) && x.begun.Before(to) {
			some = append(some, x)
		}
	}
	return some
}

// fault says what is wrong with a call, "" if nothing is. bound is what it may take.
func (c *called) fault(bound time.Duration) string {
	missing := c.kind == nothing
	switch {
	case missing && !errors.Is(c.err, stampede.ErrNotFound):
		return fmt.Sprintf("returned %v, not ErrNotFound", c.err)
	case !missing && c.err != nil:
		return fmt.Sprintf("returned the error %v", c.err)
	case !missing && !strings.HasPrefix(c.result.Value, c.key+"#"):
		return fmt.Sprintf("returned the value %q", c.result.Value)
	case c.took() > bound+250*time.Millisecond+3*c.late && !machine.busy(c.begun.Add(-time.Second), c.ended):
		return fmt.Sprintf("took %v, may take %v (the machine was late by %v meanwhile)", c.took(), bound, c.late)
	}
	return ""
}

// percentile returns how long that share of calls took at most.
func percentile(calls []called, share float64) time.Duration {
	if len(calls) == 0 {
		return 0
	}
	all := make([]time.Duration, len(calls))
	for i := range calls {
		all[i] = calls[i].took()
	}
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	return all[int(share*float64(len(all)-1))]
}
