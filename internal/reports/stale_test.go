package reports_test

import (
	"context"
	"math"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/stampedetest"
)

// ben-manes/caffeine#175: with loads longer than the refresh period, values stayed old for ever.
func TestAValueAdvancesOnceALoadThatIsLongerThanItsTTL(t *testing.T) {
	for name, pods := range map[string]int{"one pod": 1, "three pods": 3} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fl := fleet(t, pods, new(stampede.MemoryStore), stampede.Options{Name: "n", Policy: exactly(time.Second, time.Hour)})
				loads := numbered(5 * time.Second)
				wants(t, fl.Pods[0], "k", loads.Loader("k"), 1)
				for version := 1; version <= 10; version++ {
					time.Sleep(time.Second) // it goes stale
					for range 50 {          // and is, for as long as the next load takes
						wants(t, fl.Pods[version%pods], "k", loads.Loader("k"), version)
						time.Sleep(100 * time.Millisecond)
					}
					synctest.Wait()
				}
				loads.AssertMost(t, 1)
				loads.AssertLoads(t, 11)
			})
		})
	}
}

// ben-manes/caffeine#120, ben-manes/caffeine#1478, ben-manes/caffeine#714: the mark of a load under way was not cleared, and refreshing stopped for good.
func TestAChangeDuringARefreshDoesNotStopRefreshing(t *testing.T) {
	type step = func(*testing.T, *stampede.Guard[int], *stampedetest.Faulty)
	for name, disturb := range map[string]step{
		"Set": func(t *testing.T, g *stampede.Guard[int], _ *stampedetest.Faulty) {
			must(t, g.Set(t.Context(), "k", 50))
		},
		"Expire": func(t *testing.T, g *stampede.Guard[int], _ *stampedetest.Faulty) {
			must(t, g.Expire(t.Context(), "k"))
		},
		"Delete and Set": func(t *testing.T, g *stampede.Guard[int], _ *stampedetest.Faulty) {
			must(t, g.Delete(t.Context(), "k"))
			must(t, g.Set(t.Context(), "k", 50))
		},
		"refused elections": func(_ *testing.T, _ *stampede.Guard[int], f *stampedetest.Faulty) {
			f.Next(stampedetest.StepElect, stampedetest.Fault{Err: stampede.ErrUnavailable}, stampedetest.Fault{Err: stampede.ErrUnavailable})
		},
		"unanswered commit": func(_ *testing.T, _ *stampede.Guard[int], f *stampedetest.Faulty) {
			f.Next(stampedetest.StepCommit, stampedetest.Fault{Lost: errSource})
		},
		"full store": func(_ *testing.T, _ *stampede.Guard[int], f *stampedetest.Faulty) {
			f.Next(stampedetest.StepCommit, stampedetest.Fault{Full: errSource})
		},
		"lost lease": func(_ *testing.T, _ *stampede.Guard[int], f *stampedetest.Faulty) {
			f.Next(stampedetest.StepRenew, stampedetest.Fault{EndLease: true})
		},
		"stolen lease": func(_ *testing.T, _ *stampede.Guard[int], f *stampedetest.Faulty) {
			f.Next(stampedetest.StepRenew, stampedetest.Fault{Steal: time.Second})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fl := fleet(t, 1, new(stampede.MemoryStore), stampede.Options{Name: "n", Policy: exactly(10*time.Second, time.Hour)})
				g, loads := fl.Pods[0], numbered(time.Second)
				must(t, g.Set(t.Context(), "k", 100))
				time.Sleep(10 * time.Second)
				wants(t, g, "k", loads.Loader("k"), 100)
				time.Sleep(100 * time.Millisecond)
				disturb(t, g, fl.Faulty[0])
				begun := loads.Count()
				for range 60 { // it goes stale, and somebody asks
					time.Sleep(500 * time.Millisecond)
					if v, err := g.Get(t.Context(), "k", loads.Loader("k")); v == 0 || err != nil {
						t.Errorf("Get = %d, %v", v, err)
					}
				}
				if n := loads.Count() - begun; n < 2 {
					t.Errorf("%d loads in three TTLs after it", n)
				}
				if v, _ := g.Get(t.Context(), "k", loads.Loader("k")); v < 2 || v >= 50 {
					t.Errorf("the value is still %d", v)
				}
			})
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fleetdm/fleet#49198: with a TTL of a second every check-in loaded anew.
func TestAShortTTLCostsOneLoadAPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		fl, loads := fleet(t, 4, store, stampede.Options{Name: "n", Policy: exactly(time.Second, -1)}), numbered(800*time.Millisecond)
		const periods = 5
		crowd(500, func(i int) {
			time.Sleep(time.Duration(i) * 7 * time.Millisecond)
			for end := time.Now().Add(periods * 1800 * time.Millisecond); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
				begun := time.Now()
				if v, err := fl.Pods[i%4].Get(t.Context(), "k", loads.Loader("k")); v == 0 || err != nil {
					t.Errorf("Get = %d, %v", v, err)
				}
				atMost(t, begun, 800*time.Millisecond)
			}
		})
		loads.AssertMost(t, 1)
		if n := loads.Count(); n > periods+3 { // the crowd comes and goes over two periods more
			t.Errorf("%d loads in %d periods", n, periods+2)
		}
	})
}

// Truxify#16259: with a sign turned round, early refresh never fired. The share of keys that are loaded early by the time
// that x load durations are left is e^-x.
func TestEarlyRefreshFollowsItsLaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys, took = 1500, 100 * time.Millisecond
		p := exactly(time.Hour, time.Minute)
		p.Beta = 1
		g, loads := open[int](t, &stampede.MemoryStore{MaxEntries: -1}, stampede.Options{Name: "n", Policy: p}), numbered(took)
		early := map[float64]int{}
		look := func(i int, x float64) {
			if i < 0 || i >= keys {
				return
			}
			before := loads.Count()
			for range 3 { // who looks again draws nothing anew
				if _, err := g.Get(t.Context(), strconv.Itoa(i), loads.Loader(strconv.Itoa(i))); err != nil {
					t.Error(err)
				}
				synctest.Wait()
			}
			early[x] += loads.Count() - before
		}
		for i := range keys { // one after the other, so that they end so, too
			look(i, 0)
		}
		time.Sleep(p.TTL - keys*took - took)
		for i := range keys + 1 {
			look(i, 2)
			look(i-1, 1)
			time.Sleep(took / 2)
			look(i-1, 0.5)
			time.Sleep(took - took/2)
		}
		sum := 0
		for _, x := range []float64{2, 1, 0.5} {
			sum += early[x]
			share := float64(sum) / keys
			if want := math.Exp(-x); math.Abs(share-want) > 0.07 { // more than five standard deviations
				t.Errorf("%.3f of the keys were loaded early with %v durations left, want %.3f", share, x, want)
			}
		}
	})
}

// ZiggyCreatures/FusionCache#604, ZiggyCreatures/FusionCache#632, ZiggyCreatures/FusionCache#651: an early refresh did not look whether another
// pod had stored something newer. sqlalchemy/dogpile.cache, by its code: who got the lock late loaded from what it had seen before.
func TestALateElectionAdoptsWhatOthersLoaded(t *testing.T) {
	early := exactly(10*time.Second, time.Minute)
	early.Beta = 1000
	for name, c := range map[string]struct {
		policy stampede.Policy
		at     time.Duration
		before int // what B is served
	}{
		"early":   {early, 10*time.Second - time.Millisecond, 1},
		"stale":   {exactly(10*time.Second, time.Minute), 11 * time.Second, 1},
		"missing": {exactly(10*time.Second, -1), 11 * time.Second, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fl := fleet(t, 2, new(stampede.MemoryStore), stampede.Options{Name: "n", Policy: c.policy})
				a, b, loads := fl.Pods[0], fl.Pods[1], numbered(10*time.Millisecond)
				loads.Next(stampedetest.Fate{Takes: time.Second}) // early.Beta is so large that a load is due
				wants(t, a, "k", loads.Loader("k"), 1)
				time.Sleep(c.at)
				fl.Faulty[1].Next(stampedetest.StepElect, stampedetest.Fault{Delay: 100 * time.Millisecond})
				crowd(2, func(i int) {
					if i == 1 {
						wants(t, b, "k", forbidden(t), c.before)
					} else if _, err := a.Get(t.Context(), "k", loads.Loader("k")); err != nil {
						t.Error(err)
					}
				})
				time.Sleep(200 * time.Millisecond)
				synctest.Wait()
				wants(t, b, "k", forbidden(t), 2)
				loads.AssertLoads(t, 2)
			})
		})
	}
}

// nitrojs/nitro#1950, vercel/next.js#83820: a refresh read another entry that was stale, and stored what it made of it as fresh.
//
// What was asked for there, that within a refresh nothing stale be served, would make a refresh wait where P2 says that who can be
// served stale never does. Here the inner call says how old its value is, and the outer load decides.
func TestALoaderSeesThatWhatItWasServedIsStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		inner := open[int](t, store, stampede.Options{Name: "inner", Policy: exactly(time.Minute, time.Hour)})
		outer := open[int](t, store, stampede.Options{Name: "outer", Policy: exactly(time.Minute, time.Hour)})
		source := numbered(time.Second)
		var loads atomic.Int64
		get := func() int {
			r, err := outer.Fetch(t.Context(), "page", func(ctx context.Context, l *stampede.Load[int]) (int, error) {
				loads.Add(1)
				part, err := inner.Fetch(ctx, "part", func(ctx context.Context, _ *stampede.Load[int]) (int, error) {
					return source.Load(ctx, "part")
				})
				if part.Freshness != stampede.Fresh {
					l.TTL(2 * time.Second) // its refresh is under way
				}
				return part.Value, err
			})
			if err != nil {
				t.Error(err)
			}
			return r.Value
		}
		if v := get(); v != 1 {
			t.Errorf("the page is of version %d", v)
		}
		time.Sleep(2 * time.Minute)
		_ = get() // starts a refresh, which is served a stale part
		time.Sleep(time.Second)
		synctest.Wait()
		if n := loads.Load(); n != 2 {
			t.Errorf("%d loads of the page", n)
		}
		time.Sleep(2 * time.Second)
		_ = get()
		synctest.Wait()
		if v := get(); v != 2 {
			t.Errorf("the page is of version %d, three seconds after its part was renewed", v)
		}
	})
}
