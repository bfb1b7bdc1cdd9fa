package stampede_test

import (
	"context"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// This file checks early refresh against its theory, whose formulas are in docs/early-refresh.md.

// euler is the mean of the standard Gumbel distribution.
const euler = 0.5772

// loadsWithoutLease counts the loads of one version when nobody is kept from loading: gaps are the times
// before the end at which requests, in their order, want to load; the first one's value takes a while.
func loadsWithoutLease(gaps []float64, takes float64) (loads int, first float64) {
	first = slices.Max(gaps)
	for _, g := range gaps {
		if g > first-takes {
			loads++
		}
	}
	return loads, first
}

// The rule of the paper: each request draws. Durations are in units of the load's.
func TestDrawAtEachRequestLoadsAsOftenAsTheTheorySays(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const rate, versions = 200.0, 4000 // requests while a load takes
	for _, beta := range []float64{0.5, 1, 2} {
		sum, gap := 0, 0.0
		for range versions {
			var gaps []float64
			for left := 12 * beta; left > 0; left -= r.ExpFloat64() / rate {
				if r.ExpFloat64()*beta > left { // -ln(u)·β·δ
					gaps = append(gaps, left)
				}
			}
			n, first := loadsWithoutLease(gaps, 1)
			sum, gap = sum+n, gap+first
		}
		about(t, "loads", beta, float64(sum)/versions, math.Exp(1/beta), 0.05)
		about(t, "gap", beta, gap/versions, beta*(math.Log(rate*beta)+euler), 0.05)
	}
}

// Our rule: each pod draws once for a version, however many requests it serves. With many pods the number
// of loads is that of the theory, with few it is less.
func TestDrawOncePerPodLoadsAsOftenAsTheTheorySaysOrLess(t *testing.T) {
	const versions = 4000
	for _, pods := range []int{1, 3, 100} {
		for _, beta := range []float64{0.5, 1, 2} {
			fleet := make([]*stampede.EarlyRefresh, pods)
			for i := range fleet {
				fleet[i] = stampede.NewEarlyRefresh(beta)
			}
			sum, gap := 0, 0.0
			e := stampede.Entry{TTL: time.Hour, Took: time.Second}
			gaps := make([]float64, pods)
			for range versions {
				e.Stamp = stampede.NewStamp()
				for i, pod := range fleet {
					gaps[i] = pod.Gap(&e).Seconds()
				}
				n, first := loadsWithoutLease(gaps, 1)
				sum, gap = sum+n, gap+first
			}
			n, harmonic := float64(pods), 0.0
			for i := range pods {
				harmonic += 1 / float64(i+1)
			}
			about(t, "loads", beta, float64(sum)/versions, math.Exp(1/beta)*(1-math.Pow(1-math.Exp(-1/beta), n)), 0.05)
			about(t, "gap", beta, gap/versions, beta*harmonic, 0.05)
		}
	}
}

func about(t *testing.T, what string, beta, got, want, share float64) {
	t.Helper()
	if math.Abs(got-want) > share*want {
		t.Errorf("beta %v: mean %s %.3f, want %.3f", beta, what, got, want)
	}
}

// With the lease there is one load for each version, none of the callers waits for it, and it starts as
// early as the theory says.
func TestFleetLoadsEachVersionOnceAndNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pods, versions = 8, 300
		policy := stampede.Policy{TTL: 20 * time.Second, Jitter: -1}
		store, src := new(stampede.MemoryStore), &source{takes: time.Second}
		fleet := make([]pod, pods)
		for i := range fleet {
			fleet[i] = newPod(t, store, stampede.Options{Policy: policy})
		}
		get(t.Context(), fleet[0].Guard, "k", src.load).is(t, 1, src.takes)
		begun := time.Now()
		var wg sync.WaitGroup
		for _, p := range fleet {
			wg.Go(func() {
				for {
					a := get(t.Context(), p.Guard, "k", src.load)
					if a.err != nil || a.took != 0 {
						t.Errorf("%+v", a)
					}
					if a.v > versions {
						return
					}
					time.Sleep(50*time.Millisecond + rand.N(20*time.Millisecond))
				}
			})
		}
		wg.Wait()
		took := time.Since(begun)
		synctest.Wait()
		if n, top := src.loads(); n > versions+2 || top != 1 { // the next one may have begun
			t.Errorf("%d loads of %d versions, %d at once", n, versions, top)
		}
		harmonic := 0.0
		for i := range pods {
			harmonic += 1 / float64(i+1)
		}
		about(t, "gap", 1, (policy.TTL + src.takes - took/versions).Seconds(), harmonic*src.takes.Seconds(), 0.15)
	})
}

func TestUsualDurationOfLoadsIsSmoothed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		p := newPod(t, store, stampede.Options{Policy: steady})
		took := func(d time.Duration) time.Duration {
			t.Helper()
			must(t, p.Expire(t.Context(), "k"))
			get(t.Context(), p.Guard, "k", slowly(d, 1))
			time.Sleep(d)
			synctest.Wait()
			e, err := store.Read(t.Context(), key("k"))
			must(t, err)
			return e.Took
		}
		const ms = time.Millisecond
		for i, c := range []struct{ load, usual time.Duration }{
			{400 * ms, 400 * ms}, {400 * ms, 400 * ms}, {800 * ms, 500 * ms}, {500 * ms, 500 * ms}, {100 * ms, 400 * ms}, {401 * ms, 400 * ms}, {410 * ms, 403 * ms},
		} {
			if d := took(c.load); d != c.usual {
				t.Errorf("%d: %v after a load of %v, want %v", i, d, c.load, c.usual)
			}
		}
		// What was not loaded, or was there no more, has no part in it.
		must(t, p.Set(t.Context(), "k", 1))
		if d := took(200 * time.Millisecond); d != 200*time.Millisecond {
			t.Errorf("%v after a Set", d)
		}
		must(t, p.Delete(t.Context(), "k"))
		if d := took(100 * time.Millisecond); d != 100*time.Millisecond {
			t.Errorf("%v after a Delete", d)
		}
	})
}

// shortTTLs has a fleet load a key some times and returns how often its guards have said that TTL is
// short, to Observer, Logger and Stats.
func shortTTLs(t *testing.T, pods int, policy stampede.Policy, takes time.Duration) (events, logs, stats int) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // protects log and events
		var log strings.Builder
		o := stampede.Options{Policy: policy, Logger: slog.New(slog.NewTextHandler(&log, nil)), Observer: stampede.ObserverFunc(func(e stampede.Event) {
			if e.Kind == stampede.EventShortTTL && e.Key == "k" && e.Took == takes {
				mu.Lock()
				defer mu.Unlock()
				events++
			}
		})}
		store, fleet := new(stampede.MemoryStore), make([]pod, pods)
		for i := range fleet {
			fleet[i] = newPod(t, store, o)
		}
		for range 900 * (2 + pods) { // a guard learns from the loads that it was elected for
			for _, p := range fleet {
				if _, err := p.Get(t.Context(), "k", func(context.Context) (int, error) { time.Sleep(takes); return 1, nil }); err != nil {
					t.Error(err)
				}
			}
			time.Sleep(policy.TTL / 20)
		}
		synctest.Wait()
		for _, p := range fleet {
			stats += int(p.Stats().ShortTTL)
		}
		logs = strings.Count(log.String(), "TTL is short")
	})
	return events, logs, stats
}

func TestTTLTooShortForItsLoadsIsToldOnceByEachGuard(t *testing.T) {
	second := time.Second
	for _, c := range []struct {
		name   string
		pods   int
		policy stampede.Policy
		takes  time.Duration
		short  bool
	}{
		{"one pod, a load of two TTLs", 1, stampede.Policy{TTL: 10 * second}, 20 * second, true},
		{"one pod, a load of a tenth", 1, stampede.Policy{TTL: 10 * second}, second, false},
		{"many pods, a load of a fifth", 16, stampede.Policy{TTL: 10 * second}, 2 * second, true},
		{"one pod, the same", 1, stampede.Policy{TTL: 10 * second}, 2 * second, false},
		{"many pods, a load of a thirtieth", 16, stampede.Policy{TTL: 30 * second}, second, false},
		{"a large beta", 1, stampede.Policy{TTL: 10 * second, Beta: 20}, second, true},
		{"off", 16, stampede.Policy{TTL: 10 * second, Beta: -1}, 10 * second, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			events, logs, stats := shortTTLs(t, c.pods, c.policy, c.takes)
			if (events > 0) != c.short || events > c.pods || logs != events || stats != events {
				t.Errorf("told %d times by %d pods, logged %d, counted %d", events, c.pods, logs, stats)
			}
		})
	}
}
