package stampede_test

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/stampedetest"
)

// failing is a loader that fails until it is told not to, and knows when it was called.
type failing struct {
	mu    sync.Mutex // protects what follows
	well  bool
	calls []time.Time
}

func (f *failing) load(context.Context) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, time.Now())
	if f.well {
		return len(f.calls), nil
	}
	return 0, errBoom
}

// gaps returns the time between one call and the next, and forgets the calls.
func (f *failing) gaps() (gaps []time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := 1; i < len(f.calls); i++ {
		gaps = append(gaps, f.calls[i].Sub(f.calls[i-1]))
	}
	f.calls = nil
	return gaps
}

// lasting is a policy under which what is stored is stale after a second, for hours.
var lasting = stampede.Policy{TTL: time.Second, StaleFor: 10 * time.Hour, Jitter: -1, Beta: -1}

// ask asks each pod for key every tenth of a second. What is stored is served at once.
func ask(t *testing.T, pods []pod, key string, src *failing, d time.Duration) {
	t.Helper()
	for range d / (100 * time.Millisecond) {
		for _, p := range pods {
			if got := get(t.Context(), p.Guard, key, src.load); got.err != nil || got.took != 0 {
				t.Fatalf("Get = %+v, want what is stale, at once", got)
			}
		}
		synctest.Wait()
		time.Sleep(100 * time.Millisecond)
	}
}

func podsOf(t *testing.T, n int, o stampede.Options) (pods []pod) {
	store := new(stampede.MemoryStore)
	for range n {
		pods = append(pods, newPod(t, store, o))
	}
	return pods
}

func TestBackOffDoublesInTheFleetWithEachFailureInARow(t *testing.T) {
	unbounded, constant := lasting, lasting
	unbounded.ErrorBackoff, unbounded.MaxErrorBackoff = 2*time.Second, 9*time.Second
	constant.MaxErrorBackoff = -1
	for name, c := range map[string]struct {
		policy stampede.Policy
		gaps   []time.Duration
	}{
		"default":    {lasting, []time.Duration{1, 2, 4, 8, 16, 30, 30}},
		"other ends": {unbounded, []time.Duration{2, 4, 8, 9, 9, 9, 9}},
		"constant":   {constant, []time.Duration{1, 1, 1, 1, 1, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pods, src := podsOf(t, 4, stampede.Options{Policy: c.policy}), new(failing)
				must(t, pods[0].Set(t.Context(), "k", 1))
				time.Sleep(time.Second)
				ask(t, pods, "k", src, 100*time.Second)
				gaps := src.gaps()
				for i := range gaps {
					gaps[i] /= time.Second
				}
				if len(gaps) < len(c.gaps) || !slices.Equal(gaps[:len(c.gaps)], c.gaps) {
					t.Errorf("seconds between loads: %d, want %d", gaps, c.gaps)
				}
			})
		})
	}
}

func TestBackOffBeginsAnewAfterASuccessOrAChange(t *testing.T) {
	for name, end := range map[string]func(*testing.T, []pod, *failing){
		"a load that succeeds": func(t *testing.T, pods []pod, src *failing) {
			src.well = true
			ask(t, pods, "k", src, 10*time.Second) // the back-off, a load, and until the value is stale
			src.well = false
		},
		"Set": func(t *testing.T, pods []pod, _ *failing) {
			must(t, pods[1].Set(t.Context(), "k", 2))
			time.Sleep(time.Second)
		},
		"Delete": func(t *testing.T, pods []pod, src *failing) {
			must(t, pods[1].Delete(t.Context(), "k"))
			src.well = true
			_ = get(t.Context(), pods[1].Guard, "k", src.load)
			src.well = false
			time.Sleep(time.Second)
		},
		"Expire": func(t *testing.T, pods []pod, _ *failing) { must(t, pods[1].Expire(t.Context(), "k")) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pods, src := podsOf(t, 2, stampede.Options{Policy: lasting}), new(failing)
				must(t, pods[0].Set(t.Context(), "k", 1))
				time.Sleep(time.Second)
				ask(t, pods, "k", src, 10*time.Second) // loads after 0, 1, 3 and 7 s
				end(t, pods, src)
				src.gaps()
				ask(t, pods, "k", src, 4*time.Second)
				if gaps := src.gaps(); !slices.Equal(gaps, []time.Duration{time.Second, 2 * time.Second}) {
					t.Errorf("between loads: %v, want 1s and 2s", gaps)
				}
			})
		})
	}
}

func TestBackOffsOfManyKeysDriftApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 200
		policy := lasting
		policy.Jitter = 0.5
		pods, src := podsOf(t, 1, stampede.Options{Policy: policy}), new(failing)
		for i := range keys {
			must(t, pods[0].Set(t.Context(), strconv.Itoa(i), 1))
		}
		time.Sleep(time.Second)
		begun := time.Now()
		for range 110 { // the first back-off, at its longest
			for i := range keys {
				_ = get(t.Context(), pods[0].Guard, strconv.Itoa(i), src.load)
			}
			synctest.Wait()
			time.Sleep(10 * time.Millisecond)
		}
		if len(src.calls) < 2*keys {
			t.Fatalf("%d loads, want two of each of %d keys", len(src.calls), keys)
		}
		early, late := src.calls[keys].Sub(begun), src.calls[2*keys-1].Sub(begun)
		if early < 500*time.Millisecond || early > 600*time.Millisecond || late < 900*time.Millisecond || late > 1010*time.Millisecond {
			t.Errorf("the second loads begin between %v and %v", early, late)
		}
	})
}

// A pod asks the store once how long the back-off is, and then leaves it alone.
func TestPodsRememberABackOffForAsLongAsTheStoreDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods, src := podsOf(t, 1, stampede.Options{Policy: lasting}), new(failing)
		must(t, pods[0].Set(t.Context(), "k", 1))
		time.Sleep(time.Second)
		ask(t, pods, "k", src, 31500*time.Millisecond) // loads after 0, 1, 3, 7, 15 and 31 s
		n := len(src.calls)
		var elections int
		for _, p := range pods {
			elections -= p.net.Calls(stampedetest.StepElect)
		}
		ask(t, pods, "k", src, 27*time.Second)
		for _, p := range pods {
			elections += p.net.Calls(stampedetest.StepElect)
		}
		if n != 6 || len(src.calls) != n || elections != 0 {
			t.Errorf("%d loads, then %d more and %d elections within the back-off", n, len(src.calls)-n, elections)
		}
	})
}

// Who has nothing to be served is not held back, however often loads have failed.
func TestColdCallerIsNotHeldByManyFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods, src := podsOf(t, 2, stampede.Options{}), new(failing)
		for range 8 {
			get(t.Context(), pods[0].Guard, "k", src.load).fails(t, errBoom, 0)
			time.Sleep(30 * time.Second)
		}
		get(t.Context(), pods[0].Guard, "k", src.load).fails(t, errBoom, 0)
		get(t.Context(), pods[1].Guard, "k", slowly(time.Second, 2)).is(t, 2, time.Second)
		get(t.Context(), pods[0].Guard, "k", never(t)).is(t, 2, 0)
	})
}
