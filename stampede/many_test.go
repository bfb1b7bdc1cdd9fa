package stampede_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/stampedetest"
)

// GetMany.

// shelf is a source of many keys: each key's value is its number, and those that it does not know are missing.
type shelf struct {
	takes time.Duration
	fails error

	mu    sync.Mutex // protects calls
	calls [][]string
}

func (s *shelf) load(ctx context.Context, keys []string) (map[string]int, error) {
	s.mu.Lock()
	s.calls = append(s.calls, slices.Sorted(slices.Values(keys)))
	s.mu.Unlock()
	if s.takes > 0 {
		select {
		case <-time.After(s.takes):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	found := map[string]int{"a key that nobody asked for": 1}
	for _, key := range keys {
		var n int
		if _, err := fmt.Sscanf(key, "k%d", &n); err == nil {
			found[key] = n
		}
	}
	return found, s.fails
}

func (s *shelf) asked() [][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// k are the keys k<from> to k<to-1>, and their values.
func k(from, to int) (keys []string, values map[string]int) {
	values = map[string]int{}
	for i := from; i < to; i++ {
		key := fmt.Sprintf("k%02d", i)
		keys, values[key] = append(keys, key), i
	}
	return keys, values
}

func getMany(t *testing.T, g *stampede.Guard[int], keys []string, load stampede.ManyLoader[int], want map[string]int) {
	t.Helper()
	if got, err := g.GetMany(t.Context(), keys, load); err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

func TestGetManyLoadsWhatIsMissingInOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, src := newPod(t, new(stampede.MemoryStore), stampede.Options{Policy: steady}), &shelf{takes: tick}
		keys, values := k(0, 40)
		get(t.Context(), p.Guard, "k00", value(0)).is(t, 0, 0)
		asked := append(slices.Clone(keys), "unknown", keys[3])
		getMany(t, p.Guard, asked, src.load, values)
		getMany(t, p.Guard, asked, src.load, values) // that one is unknown is remembered, too
		if calls := src.asked(); len(calls) != 1 || !slices.Equal(calls[0], append(keys[1:], "unknown")) {
			t.Errorf("calls: %v", calls)
		}
		getMany(t, p.Guard, nil, src.load, map[string]int{})
	})
}

func TestGetManyServesStaleValuesAtOnceAndLoadsThemTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, src := newPod(t, new(stampede.MemoryStore), stampede.Options{Policy: steady}), &shelf{takes: tick}
		keys, values := k(0, 10)
		getMany(t, p.Guard, keys, src.load, values)
		time.Sleep(steady.TTL)
		begun := time.Now()
		getMany(t, p.Guard, keys, src.load, values)
		getMany(t, p.Guard, keys, src.load, values)
		if time.Since(begun) != 0 {
			t.Errorf("stale values took %v", time.Since(begun))
		}
		time.Sleep(tick)
		synctest.Wait()
		if calls := src.asked(); len(calls) != 2 || !slices.Equal(calls[1], keys) {
			t.Errorf("calls: %v", calls)
		}
	})
}

func TestGetManyOfOverlappingKeysInManyPodsEndsAndLoadsEachKeyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, src := new(stampede.MemoryStore), &shelf{takes: tick}
		var wg sync.WaitGroup
		for i := range 6 {
			p := newPod(t, store, stampede.Options{})
			for j := range 2 {
				keys, values := k(5*i, 5*i+15+j)
				if i%2 == 1 {
					slices.Reverse(keys)
				}
				wg.Go(func() {
					begun := time.Now()
					getMany(t, p.Guard, keys, src.load, values)
					if d := time.Since(begun); d > 2*tick {
						t.Errorf("took %v", d)
					}
				})
			}
		}
		wg.Wait()
		count := map[string]int{}
		for _, call := range src.asked() {
			for _, key := range call {
				count[key]++
			}
		}
		for key, n := range count {
			if n != 1 {
				t.Errorf("%s was loaded %d times", key, n)
			}
		}
	})
}

func TestGetManyTellsWhichKeysFailedAndReturnsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, src := newPod(t, new(stampede.MemoryStore), stampede.Options{}), &shelf{fails: errBoom}
		keys, values := k(0, 2)
		getMany(t, p.Guard, keys, (&shelf{}).load, values)
		got, err := p.GetMany(t.Context(), append(keys, "k10", "k11"), src.load)
		if !errors.Is(err, errBoom) || !maps.Equal(got, values) {
			t.Errorf("got %v, %v", got, err)
		}
	})
}

func TestGetManyBearsLoadersThatMisbehave(t *testing.T) {
	for name, load := range map[string]stampede.ManyLoader[int]{
		"panics": func(context.Context, []string) (map[string]int, error) { panic("out") },
		"hangs":  func(context.Context, []string) (map[string]int, error) { time.Sleep(time.Minute); return nil, nil },
		"nil":    func(context.Context, []string) (map[string]int, error) { return nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPod(t, new(stampede.MemoryStore), stampede.Options{LoadTimeout: time.Second, Policy: stampede.Policy{NotFoundTTL: time.Second}})
				keys, values := k(0, 5)
				got, err := p.GetMany(t.Context(), keys, load)
				if len(got) != 0 || (err == nil) != (name == "nil") {
					t.Errorf("got %v, %v", got, err)
				}
				time.Sleep(time.Minute)
				getMany(t, p.Guard, keys, (&shelf{}).load, values)
			})
		})
	}
}

func TestGetManyEndsWithItsContextAndTakesNobodyAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, src := newPod(t, new(stampede.MemoryStore), stampede.Options{}), &shelf{takes: time.Second}
		keys, values := k(0, 5)
		ctx, cancel := context.WithTimeout(t.Context(), tick)
		defer cancel()
		done := make(chan struct{})
		go func() {
			defer close(done)
			if got, err := p.GetMany(ctx, keys, src.load); len(got) != 0 || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, %v", got, err)
			}
		}()
		synctest.Wait()
		getMany(t, p.Guard, keys, src.load, values)
		<-done
		if n := len(src.asked()); n != 1 {
			t.Errorf("%d calls", n)
		}
	})
}

func TestGetManyTakesOverFromAPodThatDied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, src := new(stampede.MemoryStore), &shelf{}
		dead, p := newPod(t, store, stampede.Options{}), newPod(t, store, stampede.Options{})
		keys, values := k(0, 20)
		go func() { _, _ = dead.GetMany(t.Context(), keys, (&shelf{takes: time.Minute}).load) }()
		synctest.Wait()
		dead.net.Down(nil)
		begun := time.Now()
		getMany(t, p.Guard, keys, src.load, values)
		if d := time.Since(begun); d > 1200*time.Millisecond {
			t.Errorf("took %v", d)
		}
		time.Sleep(2 * time.Minute)
	})
}

func TestGetManyIsOneLoadForTheBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, src := newPod(t, new(stampede.MemoryStore), stampede.Options{MaxLoads: 1, FleetLoads: 1}), &shelf{takes: tick}
		keys, values := k(0, 20)
		more, moreValues := k(50, 70)
		var wg sync.WaitGroup
		wg.Go(func() { getMany(t, p.Guard, keys, src.load, values) })
		wg.Go(func() { getMany(t, p.Guard, more, src.load, moreValues) })
		wg.Wait()
		if n := len(src.asked()); n != 2 {
			t.Errorf("%d calls", n)
		}
		synctest.Wait()
		get(t.Context(), p.Guard, "x", value(1)).is(t, 1, 0) // the seats are free again
	})
}

// A ManyLoader that hangs is one loader that was given up, also when other pods have taken its keys meanwhile. Else
// it would use up MaxAbandoned, and nothing be loaded for as long as it hangs.
func TestGetManyThatHangsIsOneAbandonedLoaderAfterItsLeasesWereLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, src := new(stampede.MemoryStore), &shelf{}
		p, other := newPod(t, store, stampede.Options{LoadTimeout: 5 * time.Second}), newPod(t, store, stampede.Options{})
		keys, values := k(0, 100)
		hang, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			_, _ = p.GetMany(t.Context(), keys, func(context.Context, []string) (map[string]int, error) { <-hang; return nil, nil })
		}()
		synctest.Wait()
		must(t, other.Delete(t.Context(), keys...))
		go func() { _, _ = other.GetMany(t.Context(), keys, (&shelf{takes: 2 * time.Second}).load) }()
		time.Sleep(6 * time.Second)
		<-done
		if n := p.Stats().Abandoned; n != 1 {
			t.Errorf("%d loaders were given up, want 1", n)
		}
		getMany(t, p.Guard, []string{"k50", "k98"}, src.load, map[string]int{"k50": values["k50"], "k98": values["k98"]})
		get(t.Context(), p.Guard, "k", value(1)).is(t, 1, 0)
		close(hang)
	})
}

func TestGetManyOfManyKeysGoesInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, src := newPod(t, new(stampede.MemoryStore), stampede.Options{}), &shelf{}
		keys, values := k(100, 700)
		getMany(t, p.Guard, keys, src.load, values)
		for _, call := range src.asked() {
			if len(call) > 256 {
				t.Errorf("a load of %d keys", len(call))
			}
		}
		if n := len(src.asked()); n != 3 {
			t.Errorf("%d calls", n)
		}
	})
}

func TestGetManyWithoutTheStoreServesCopiesAndLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, src := newPod(t, new(bytesStore), stampede.Options{}), &shelf{}
		keys, values := k(0, 5)
		getMany(t, p.Guard, keys, src.load, values)
		p.net.Down(nil)
		all, allValues := k(0, 8)
		getMany(t, p.Guard, all, src.load, allValues)
		if calls := src.asked(); len(calls) != 2 || !slices.Equal(calls[1], all[5:]) {
			t.Errorf("calls: %v", calls)
		}
		p.net.Hang()
		begun := time.Now()
		getMany(t, p.Guard, all, src.load, allValues)
		if d := time.Since(begun); d > 25*time.Millisecond {
			t.Errorf("took %v with copies at hand", d)
		}
		p.net.Up()
	})
}

func TestGetManyReadsFromTheLocalTier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, src := newPod(t, new(bytesStore), withLocal(idle, time.Minute)), &shelf{}
		keys, values := k(0, 5)
		getMany(t, p.Guard, keys, src.load, values)
		before := p.net.Executed(stampedetest.StepRead)
		getMany(t, p.Guard, keys, src.load, values)
		if n := p.net.Executed(stampedetest.StepRead) - before; n != 0 {
			t.Errorf("%d reads", n)
		}
	})
}

func TestGetManyRefusesWhatCannotBe(t *testing.T) {
	p := newPod(t, new(stampede.MemoryStore), stampede.Options{})
	if _, err := p.GetMany(t.Context(), []string{"a", ""}, (&shelf{}).load); !errors.Is(err, stampede.ErrBadKey) {
		t.Error(err)
	}
	if _, err := p.GetMany(t.Context(), []string{"a"}, nil); !errors.Is(err, stampede.ErrNilLoader) {
		t.Error(err)
	}
	if _, err := (*stampede.Guard[int])(nil).GetMany(t.Context(), []string{"a"}, nil); !errors.Is(err, stampede.ErrNoGuard) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.GetMany(ctx, []string{"a"}, (&shelf{}).load); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
