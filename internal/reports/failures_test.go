package reports_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/stampedetest"
)

type codeError struct{ code int }

func (e *codeError) Error() string { return fmt.Sprint("code ", e.code) }

// redis/rueidis#1014, seaweedfs/seaweedfs#9100: who had joined a load that failed got a nil error and the zero value.
func TestAllWhoWaitGetTheLoadersError(t *testing.T) {
	for name, want := range map[string]error{
		"plain": errSource, "wrapped": fmt.Errorf("query: %w", errSource), "joined": errors.Join(errSource, &codeError{500}),
		"of a type": &codeError{404}, "the source's own timeout": context.DeadlineExceeded,
		"the source's own cancellation": context.Canceled, "not found": fmt.Errorf("row 7: %w", stampede.ErrNotFound),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := open[int](t, new(stampede.MemoryStore), stampede.Options{Name: "n"})
				crowd(11, func(int) {
					v, err := g.Get(t.Context(), "k", func(context.Context) (int, error) {
						time.Sleep(time.Second)
						return 3, want
					})
					// ErrNotFound is remembered, without what it was wrapped in; those of the load still get that.
					if !errors.Is(err, want) || err.Error() != want.Error() {
						t.Errorf("Get = %d, %v, want %v", v, err, want)
					}
				})
				if s := g.Stats(); s.Loads != 1 {
					t.Errorf("%d loads", s.Loads)
				}
			})
		})
	}
}

// mailgun/groupcache#30: a key whose first load had run out of time failed for ever.
func TestAFailureIsNotRemembered(t *testing.T) {
	for name, fate := range map[string]stampedetest.Fate{
		"timeout": {Hang: true}, "deaf timeout": {Takes: time.Hour, Deaf: true}, "error": {Err: errSource},
		"cancellation": {Err: context.Canceled}, "panic": {Panic: "oh no"}, "Goexit": {Goexit: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pods := fleet(t, 2, new(stampede.MemoryStore), stampede.Options{Name: "n", LoadTimeout: 2 * time.Second})
				loads := numbered(0)
				loads.Next(fate)
				_, err := pods.Pods[0].Get(t.Context(), "k", loads.Loader("k"))
				if err == nil || fate.Err != nil && !errors.Is(err, fate.Err) ||
					name == "timeout" != errors.Is(err, stampede.ErrLoadTimeout) && name != "deaf timeout" {
					t.Errorf("Get = %v", err)
				}
				begun := time.Now()
				wants(t, pods.Pods[0], "k", loads.Loader("k"), 2)
				if v, err := pods.Pods[1].Get(t.Context(), "k", loads.Loader("k")); v == 0 || err != nil {
					t.Errorf("the other pod's Get = %d, %v", v, err)
				}
				took(t, begun, 0)
				time.Sleep(time.Hour) // the deaf one ends, too
			})
		})
	}
}

// hashicorp/consul#9588: failing keys were refreshed for three days, one goroutine each, until memory ran out.
// Facebook, 2010-09-23: each client deleted what it took for broken and asked the database, which broke the database.
func TestAFailingSourceIsAskedOnceABackOffAndOnlyWhileSomebodyAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 100
		p := exactly(time.Second, time.Minute)
		p.ErrorBackoff = 5 * time.Second
		store := new(stampede.MemoryStore)
		pods, loads := fleet(t, 3, store, stampede.Options{Name: "n", Policy: p}), numbered(0)
		ask := func() {
			for _, pod := range pods.Pods {
				for i := range keys {
					wants(t, pod, strconv.Itoa(i), loads.Loader(strconv.Itoa(i)), 1)
				}
			}
		}
		ask()
		loads.AssertLoads(t, keys)
		loads.Script(func(stampedetest.Run) stampedetest.Fate { return stampedetest.Fate{Err: errSource} })
		time.Sleep(time.Second)
		for range 20 { // for ten seconds
			ask()
			time.Sleep(500 * time.Millisecond)
		}
		synctest.Wait()
		if n := loads.Count() - keys; n != 2*keys {
			t.Errorf("%d loads of %d keys within two back-offs", n, keys)
		}
		// Nobody asks: nothing is loaded, and what was stored stays until its end.
		time.Sleep(40 * time.Second)
		synctest.Wait()
		loads.AssertLoads(t, 3*keys)
		for i := range keys {
			if r, ok, err := pods.Pods[0].Peek(t.Context(), strconv.Itoa(i)); r.Value != 1 || !ok || err != nil {
				t.Fatalf("Peek = %+v, %v, %v", r, ok, err)
			}
		}
	})
}

// ZiggyCreatures/FusionCache#560: after a time of timeouts, values stayed old.
func TestAllKeysAreFreshSoonAfterTheSourceIsBack(t *testing.T) {
	for name, down := range map[string]stampedetest.Fate{
		"failing": {Err: errSource}, "hanging": {Hang: true}, "panicking": {Panic: "oh no"}, "deaf": {Takes: 3 * time.Second, Deaf: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				policy := exactly(5*time.Second, time.Hour)
				policy.MaxErrorBackoff = -1
				keys := 20
				if name == "failing" {
					keys = 200
				}
				pods := fleet(t, 2, new(stampede.MemoryStore), stampede.Options{
					Name: "n", Policy: policy, LoadTimeout: 2 * time.Second, MaxAbandoned: -1,
				})
				var version atomic.Int64
				loads := &stampedetest.Loads[int]{
					Takes: 100 * time.Millisecond, Value: func(string, int) int { return int(version.Load()) },
				}
				ask := func(want int) {
					for i := range keys {
						key := strconv.Itoa(i)
						wants(t, pods.Pods[i%2], key, loads.Loader(key), want)
					}
				}
				crowd(keys, func(i int) {
					if _, err := pods.Pods[0].Get(t.Context(), strconv.Itoa(i), loads.Loader(strconv.Itoa(i))); err != nil {
						t.Error(err)
					}
				})
				loads.Script(func(stampedetest.Run) stampedetest.Fate { return down })
				time.Sleep(5 * time.Second)
				for range 6 {
					ask(0)
					time.Sleep(10 * time.Second)
				}
				version.Store(1)
				loads.Script(nil)
				// A load that hung may have begun just now: its timeout, the back-off, then a load.
				time.Sleep(3*time.Second + 10*time.Millisecond)
				ask(0)
				time.Sleep(110 * time.Millisecond)
				synctest.Wait()
				ask(1)
			})
		})
	}
}

// Krukov/cashews#144, Krukov/cashews#380: exceptions of background work were swallowed, or raised again for later callers.
// rails/rails#45311: the stale value was kept but not used when the block raised.
func TestALoadBehindThatFailsIsToldOnceAndKeepsTheStaleValue(t *testing.T) {
	ifError := exactly(time.Second, -1)
	ifError.StaleIfError = time.Hour
	for name, policy := range map[string]stampede.Policy{"stale": exactly(time.Second, time.Hour), "kept for errors": ifError} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var seen recorder
				g := open[int](t, new(stampede.MemoryStore), stampede.Options{Name: "n", Policy: policy, Observer: &seen})
				loads := numbered(0)
				wants(t, g, "k", loads.Loader("k"), 1)
				time.Sleep(time.Second)
				loads.Fail(1, errSource)
				for range 10 {
					wants(t, g, "k", loads.Loader("k"), 1)
					synctest.Wait()
				}
				told := seen.of(stampede.EventLoadFailed)
				if len(told) != 1 || !errors.Is(told[0].Err, errSource) {
					t.Errorf("told of %+v", told)
				}
				time.Sleep(time.Second) // the back-off
				_, _ = g.Get(t.Context(), "k", loads.Loader("k"))
				synctest.Wait()
				wants(t, g, "k", forbidden(t), 3)
			})
		})
	}
}

// kevburnsjr/microcache#1: revalidations that panicked left an entry stale far beyond its TTL.
// ben-manes/caffeine#373: a refresh that hung kept an entry past its expiry.
func TestStaleValuesEndHoweverTheirRefreshesGo(t *testing.T) {
	for name, fate := range map[string]stampedetest.Fate{
		"failing": {Err: errSource}, "panicking": {Panic: "oh no"}, "hanging": {Hang: true}, "deaf": {Takes: time.Hour, Deaf: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := open[int](t, new(stampede.MemoryStore), stampede.Options{
					Name: "n", Policy: exactly(time.Second, 10*time.Second), LoadTimeout: 30 * time.Second,
				})
				loads := numbered(0)
				wants(t, g, "k", loads.Loader("k"), 1)
				loads.Script(func(stampedetest.Run) stampedetest.Fate { return fate })
				time.Sleep(time.Second)
				for range 100 {
					wants(t, g, "k", loads.Loader("k"), 1)
					time.Sleep(100 * time.Millisecond)
				}
				if v, err := g.Get(t.Context(), "k", loads.Loader("k")); v != 0 || err == nil {
					t.Errorf("after its end Get = %d, %v", v, err)
				}
				loads.Script(nil)
				if v, err := g.Get(t.Context(), "k", loads.Loader("k")); v < 2 || err != nil {
					t.Errorf("once the source is well Get = %d, %v", v, err)
				}
				time.Sleep(time.Hour)
			})
		})
	}
}
