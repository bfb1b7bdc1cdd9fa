package stampede_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// MaxLoads and FleetLoads.

func TestLoadsOfAPodAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &source{takes: 100 * time.Millisecond}
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{MaxLoads: 3})
		var all []<-chan answer
		for i := range 12 {
			all = append(all, going(t.Context(), p.Guard, fmt.Sprint(i), src.load))
		}
		for _, a := range all {
			if got := <-a; got.err != nil || got.took > 4*src.takes {
				t.Error(got)
			}
		}
		if n, top := src.loads(); n != 12 || top != 3 {
			t.Errorf("%d loads, %d at once, want 12 and 3", n, top)
		}
	})
}

func TestStaleValuesAreServedWhileAllSeatsAreTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{Policy: steady, MaxLoads: 1})
		get(t.Context(), p.Guard, "k", value(1)).is(t, 1, 0)
		time.Sleep(steady.TTL)
		busy := going(t.Context(), p.Guard, "busy", slowly(500*time.Millisecond, 7))
		synctest.Wait()
		for range 100 {
			get(t.Context(), p.Guard, "k", never(t)).is(t, 1, 0)
			time.Sleep(time.Millisecond)
		}
		if n := p.Stats().Overloaded; n == 0 || n > 6 {
			t.Errorf("told of %d loads that were put off, want some, and not one for each call", n)
		}
		(<-busy).is(t, 7, 500*time.Millisecond)
		time.Sleep(40 * time.Millisecond)
		get(t.Context(), p.Guard, "k", value(2)).is(t, 1, 0)
		synctest.Wait()
		get(t.Context(), p.Guard, "k", never(t)).is(t, 2, 0)
	})
}

func TestCallersWhoseTurnDoesNotComeAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{Policy: steady, MaxLoads: 1, WaitTimeout: time.Second})
		get(t.Context(), p.Guard, "old", value(1)).is(t, 1, 0)
		time.Sleep(steady.TTL + steady.StaleFor)
		busy := going(t.Context(), p.Guard, "busy", slowly(5*time.Second, 7))
		synctest.Wait()
		cold, old := going(t.Context(), p.Guard, "cold", never(t)), going(t.Context(), p.Guard, "old", never(t))
		(<-cold).fails(t, stampede.ErrOverloaded, time.Second)
		(<-old).is(t, 1, time.Second) // within StaleIfError
		(<-busy).is(t, 7, 5*time.Second)
	})
}

func TestWhoWaitsForASeatHoldsNoLeaseAndIsServedByOtherPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		full, free := newPod(t, store, stampede.Options{MaxLoads: 1}), newPod(t, store, stampede.Options{})
		busy := going(t.Context(), full.Guard, "busy", slowly(10*time.Second, 7))
		synctest.Wait()
		waits := going(t.Context(), full.Guard, "k", never(t))
		synctest.Wait()
		get(t.Context(), free.Guard, "k", slowly(100*time.Millisecond, 1)).is(t, 1, 100*time.Millisecond)
		(<-waits).is(t, 1, 100*time.Millisecond)
		<-busy
	})
}

func TestSeatIsGivenBackHoweverALoadEnds(t *testing.T) {
	for name, load := range map[string]func(context.Context) (int, error){
		"value": value(1), "error": func(context.Context) (int, error) { return 0, errBoom },
		"panic": func(context.Context) (int, error) { panic("out") },
		"hangs": func(context.Context) (int, error) { time.Sleep(time.Minute); return 0, nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := stampede.Options{MaxLoads: 1, FleetLoads: 1, LoadTimeout: time.Second}
				p := newPod(t, new(stampede.MemoryStore), o)
				get(t.Context(), p.Guard, "k", load)
				synctest.Wait()
				get(t.Context(), p.Guard, "other", value(2)).is(t, 2, 0)
				_, err := p.Fetch(t.Context(), "mine", func(_ context.Context, l *stampede.Load[int]) (int, error) { l.DoNotShare(); return 1, nil })
				must(t, err)
				synctest.Wait()
				get(t.Context(), p.Guard, "another", value(2)).is(t, 2, 0)
				time.Sleep(time.Minute)
			})
		})
	}
}

func TestLoadThatAnotherLoadAsksForNeedsNoSeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{MaxLoads: 1, FleetLoads: 1})
		get(t.Context(), p.Guard, "sum", func(ctx context.Context) (int, error) {
			part, err := p.Get(ctx, "part", value(20))
			return part + 1, err
		}).is(t, 21, 0)
	})
}

func TestSeatsHoldWhenCallersLoadForThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &source{takes: 100 * time.Millisecond}
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{MaxLoads: 2})
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				_, err := p.Fetch(t.Context(), "k", func(ctx context.Context, l *stampede.Load[int]) (int, error) {
					l.Pass(time.Minute)
					return src.load(ctx)
				})
				must(t, err)
			})
		}
		wg.Wait()
		if n, top := src.loads(); n != 10 || top != 2 {
			t.Errorf("%d loads, %d at once, want 10 and 2", n, top)
		}
	})
}

func TestLoadsOfTheFleetAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, src := new(stampede.MemoryStore), &source{takes: 2 * time.Second} // longer than a lease: seats are renewed
		var all []<-chan answer
		for range 4 {
			p := newPod(t, store, stampede.Options{FleetLoads: 5})
			for i := range 10 {
				all = append(all, going(t.Context(), p.Guard, fmt.Sprint(i), src.load))
			}
		}
		for _, a := range all {
			if got := <-a; got.err != nil {
				t.Error(got)
			}
		}
		if n, top := src.loads(); n != 10 || top > 5 || top < 4 {
			t.Errorf("%d loads, %d at once, want 10 and 5", n, top)
		}
	})
}

func TestSeatsOfAPodThatDiedAreFreeAfterALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		dead := newPod(t, store, stampede.Options{FleetLoads: 1})
		p := newPod(t, store, stampede.Options{FleetLoads: 1})
		going(t.Context(), dead.Guard, "dead", func(context.Context) (int, error) { time.Sleep(time.Minute); return 0, nil })
		synctest.Wait()
		dead.net.Down(nil)
		if got := get(t.Context(), p.Guard, "k", value(1)); got.err != nil || got.took > 1500*time.Millisecond {
			t.Error(got)
		}
		time.Sleep(time.Minute)
	})
}

func TestWithoutTheStoreTheFleetHasNoBoundAndThePodKeepsIts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &source{takes: 100 * time.Millisecond}
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{MaxLoads: 4, FleetLoads: 1})
		p.net.Down(nil)
		var all []<-chan answer
		for i := range 8 {
			all = append(all, going(t.Context(), p.Guard, fmt.Sprint(i), src.load))
		}
		for _, a := range all {
			<-a
		}
		if n, top := src.loads(); n != 8 || top != 4 {
			t.Errorf("%d loads, %d at once, want 8 and 4", n, top)
		}
	})
}

// thrashing is a source that takes so many at a time. Beyond that all of them get slower, together.
type thrashing struct {
	takes time.Duration
	many  int

	mu      sync.Mutex // protects running
	running int
}

func (s *thrashing) load(ctx context.Context) (int, error) {
	const step = 50 * time.Millisecond
	s.mu.Lock()
	s.running++
	s.mu.Unlock()
	defer func() { s.mu.Lock(); defer s.mu.Unlock(); s.running-- }()
	for done := 0.0; done < s.takes.Seconds(); {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(step):
		}
		s.mu.Lock()
		over := max(1, float64(s.running)/float64(s.many))
		s.mu.Unlock()
		done += step.Seconds() / (over * over)
	}
	return 1, nil
}

// After all entries were lost, 1,000 hot keys are loaded at once by a source that takes 50 at a time. With a
// bound for the fleet the service recovers by itself. Without it does not: the loads time each other out.
func TestServiceRecoversFromTheLossOfAllEntriesOnlyWithABound(t *testing.T) {
	for name, bound := range map[string]int{"without": 0, "with": 50} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const keys, pods, forSo = 1000, 4, 10 * time.Second
				store, src := &stampede.MemoryStore{MaxEntries: -1}, &thrashing{takes: 100 * time.Millisecond, many: 50}
				ctx, cancel := context.WithTimeout(t.Context(), forSo)
				defer cancel()
				var wg sync.WaitGroup
				for p := range pods {
					g := newGuard[int](t, store, stampede.Options{FleetLoads: bound, LoadTimeout: 2 * time.Second, WaitTimeout: 5 * time.Second, Policy: stampede.Policy{TTL: time.Hour}})
					for i := range keys {
						if i%pods != p {
							continue
						}
						wg.Go(func() { // a popular key: somebody always asks
							for ctx.Err() == nil {
								if _, err := g.Get(ctx, fmt.Sprint(i), src.load); err == nil {
									return
								}
							}
						})
					}
				}
				wg.Wait()
				served := 0
				for i := range keys {
					if e, err := store.Read(t.Context(), key(fmt.Sprint(i))); err == nil && e.Freshness() == stampede.Fresh {
						served++
					}
				}
				if recovered := served == keys; recovered != (bound > 0) {
					t.Errorf("%d of %d keys are served after %v", served, keys, forSo)
				}
			})
		})
	}
}

func TestWhoFollowsHoldsNoSeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		a, b := newPod(t, store, stampede.Options{}), newPod(t, store, stampede.Options{MaxLoads: 1, FleetLoads: 1})
		leader := going(t.Context(), a.Guard, "k", slowly(10*time.Second, 1))
		synctest.Wait()
		follower := going(t.Context(), b.Guard, "k", never(t))
		time.Sleep(tick)
		get(t.Context(), b.Guard, "other", value(2)).within(t, 2, 50*time.Millisecond) // a poll later, if it had just been tried
		(<-leader).is(t, 1, 10*time.Second)
		<-follower
	})
}

// A flight that a call of GetMany has started goes on for others who wait, when that call has returned and given its seat back.
func TestSeatOfGetManyIsGivenBackOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		a, b := newPod(t, store, stampede.Options{}), newPod(t, store, stampede.Options{MaxLoads: 1})
		failing := going(t.Context(), a.Guard, "k", (&source{takes: time.Second, fails: errBoom}).load)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		src := &source{takes: time.Second}
		many := make(chan error, 1)
		go func() {
			_, err := b.GetMany(ctx, []string{"k"}, func(ctx context.Context, _ []string) (map[string]int, error) {
				v, err := src.load(ctx)
				return map[string]int{"k": v}, err
			})
			many <- err
		}()
		synctest.Wait()
		joined := going(t.Context(), b.Guard, "k", never(t))
		if err := <-many; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("GetMany: %v", err)
		}
		(<-failing).fails(t, errBoom, time.Second)
		synctest.Wait() // now the flight of GetMany loads, for who has joined it
		other := going(t.Context(), b.Guard, "other", src.load)
		(<-joined).within(t, 1, 2*time.Second+10*time.Millisecond)
		if got := <-other; got.err != nil || got.v != 2 || got.took < 2*src.takes {
			t.Errorf("Get of another key: %+v, want 2, after the load before it", got)
		}
		get(t.Context(), b.Guard, "third", src.load).is(t, 3, src.takes)
	})
}

func TestCallersThatWaitForAKeyAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{Policy: steady, MaxWaiters: 3})
		src := &source{takes: time.Second}
		var all []<-chan answer
		for range 10 {
			all = append(all, going(t.Context(), p.Guard, "k", src.load))
		}
		served, refused := 0, 0
		for _, a := range all {
			if got := <-a; got.err == nil {
				got.is(t, 1, src.takes)
				served++
			} else {
				got.fails(t, stampede.ErrOverloaded, 0)
				refused++
			}
		}
		if served != 3 || refused != 7 {
			t.Errorf("%d served, %d refused, want 3 and 7", served, refused)
		}
		time.Sleep(steady.TTL + steady.StaleFor) // from now on there is something for when a load fails
		slow := going(t.Context(), p.Guard, "k", slowly(time.Second, 2))
		synctest.Wait()
		others := []<-chan answer{going(t.Context(), p.Guard, "k", never(t)), going(t.Context(), p.Guard, "k", never(t))}
		synctest.Wait()
		get(t.Context(), p.Guard, "k", never(t)).is(t, 1, 0)
		(<-slow).is(t, 2, time.Second)
		for _, a := range others {
			(<-a).is(t, 2, time.Second)
		}
	})
}
