package reports_test

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// janos/singleflight#4: one waiter's cancel removed the key, so the next caller started a second load.
func TestCallersWhoLeaveDoNotStartASecondLoad(t *testing.T) {
	for name, leaves := range map[string]func(i int) bool{
		"the third of five": func(i int) bool { return i == 2 },
		"the first of five": func(i int) bool { return i == 0 },
		"all of them":       func(int) bool { return true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, loads := open[int](t, new(stampede.MemoryStore), stampede.Options{Name: "n"}), numbered(time.Second)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				call := func(ctx context.Context, left bool) {
					v, err := g.Get(ctx, "k", loads.Loader("k"))
					if left && !errors.Is(err, context.Canceled) || !left && (v != 1 || err != nil) {
						t.Errorf("Get = %d, %v", v, err)
					}
				}
				crowd(10, func(i int) {
					time.Sleep(time.Duration(i) * 10 * time.Millisecond)
					switch {
					case i >= 5:
						time.Sleep(100 * time.Millisecond)
						call(t.Context(), false)
					case leaves(i):
						time.AfterFunc(70*time.Millisecond, cancel)
						call(ctx, true)
					default:
						call(t.Context(), false)
					}
				})
				loads.AssertLoads(t, 1)
			})
		})
	}
}

// janos/singleflight#7, golang/go#49798: a data race on the flag that says whether a result is shared.
// darkweak/souin#835: the flag is set for the leader too, so that naive counts are one too high.
func TestExactlyOneCallerOfALoadIsToldThatItIsItsOwn(t *testing.T) {
	for _, callers := range []int{1, 10, 1000} {
		synctest.Test(t, func(t *testing.T) {
			g := open[int](t, new(stampede.MemoryStore), stampede.Options{Name: "n"})
			var own atomic.Int64
			crowd(callers, func(int) {
				r, err := g.Fetch(t.Context(), "k", func(context.Context, *stampede.Load[int]) (int, error) {
					time.Sleep(time.Second)
					return 1, nil
				})
				if r.Value != 1 || err != nil {
					t.Errorf("Fetch = %+v, %v", r, err)
				}
				if !r.Shared {
					own.Add(1)
				}
			})
			if s := g.Stats(); own.Load() != 1 || s.Loads != 1 || s.Waited != uint64(callers-1) {
				t.Errorf("of %d callers %d have a value of their own, %d were counted as waiting, for %d loads",
					callers, own.Load(), s.Waited, s.Loads)
			}
		})
	}
}

// eko/gocache#251, eko/gocache#271: two quick Gets loaded twice, because the write was left to a goroutine.
func TestAGetSeesWhatTheGetBeforeItLoaded(t *testing.T) {
	for name, answer := range map[string]struct {
		v   int
		err error
	}{"a value": {7, nil}, "the zero value": {0, nil}, "not found": {0, stampede.ErrNotFound}} {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, store stampede.Store) {
				g, loads := open[int](t, store, stampede.Options{}), 0
				for i := range 100 {
					key := strconv.Itoa(i)
					for range 2 {
						v, err := g.Get(t.Context(), key, func(context.Context) (int, error) {
							loads++
							return answer.v, answer.err
						})
						if v != answer.v || !errors.Is(err, answer.err) {
							t.Fatalf("Get = %d, %v", v, err)
						}
					}
				}
				if loads != 100 {
					t.Errorf("%d loads of 100 keys", loads)
				}
			})
		})
	}
}

// maypok86/otter#152, maypok86/otter#184: the flight ended before its value could be seen, and who came in between loaded again.
func TestWhoComesAtTheEndOfALoadDoesNotLoadAgain(t *testing.T) {
	eachStore(t, func(t *testing.T, store stampede.Store) {
		pods := fleet(t, 2, store, stampede.Options{Policy: cold})
		loads := numbered(time.Microsecond)
		for i := range 20 {
			key := strconv.Itoa(i)
			crowd(32, func(i int) {
				for range 3 {
					wants(t, pods.Pods[i%2], key, loads.Loader(key), 1)
				}
			})
		}
		loads.AssertLoads(t, 20)
	})
}

// jellydator/ttlcache#166: a hundred callers with the same bad token each threw away the new one. There is no conditional
// delete here; to ask for a new value without throwing the old one away is Refresh.
func TestRefreshesAskedForTogetherAreOneLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods, loads := fleet(t, 2, new(stampede.MemoryStore), stampede.Options{Policy: cold}), numbered(time.Second)
		wants(t, pods.Pods[0], "k", loads.Loader("k"), 1)
		crowd(100, func(i int) {
			if err := pods.Pods[i%2].Refresh(t.Context(), "k", loads.Loader("k")); err != nil {
				t.Error(err)
			}
			wants(t, pods.Pods[i%2], "k", loads.Loader("k"), 1)
		})
		time.Sleep(time.Second)
		synctest.Wait()
		wants(t, pods.Pods[1], "k", loads.Loader("k"), 2)
		loads.AssertLoads(t, 2)
	})
}

// maypok86/otter#137: an invalidation in mid-flight gave one of two callers a zero value with a nil error.
func TestAChangeInMidFlightGivesNobodyAZeroValue(t *testing.T) {
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pods := fleet(t, 2, new(stampede.MemoryStore), stampede.Options{Name: "n"})
				loads := numbered(100 * time.Millisecond)
				crowd(64, func(i int) {
					time.Sleep(time.Duration(i*3) * time.Millisecond)
					if i == 20 {
						if err := change(t.Context(), pods.Pods[1], "k"); err != nil {
							t.Error(err)
						}
					}
					if v, err := pods.Pods[i%2].Get(t.Context(), "k", loads.Loader("k")); v == 0 || err != nil {
						t.Errorf("Get = %d, %v", v, err)
					}
				})
			})
		})
	}
}

// changes are what makes a load under way void. What Set leaves is 99.
var changes = map[string]func(ctx context.Context, g *stampede.Guard[int], key string) error{
	"Delete": func(ctx context.Context, g *stampede.Guard[int], key string) error { return g.Delete(ctx, key) },
	"Expire": func(ctx context.Context, g *stampede.Guard[int], key string) error { return g.Expire(ctx, key) },
	"Set":    func(ctx context.Context, g *stampede.Guard[int], key string) error { return g.Set(ctx, key, 99) },
}
