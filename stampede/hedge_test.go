package stampede_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// Hedge.

// usually is how long loads take in these tests, but for one that hangs.
const usually = 100 * time.Millisecond

// hedging are pods that know it.
func hedging(t *testing.T, store stampede.Store, n int, o stampede.Options) []pod {
	t.Helper()
	pods := make([]pod, n)
	for i := range pods {
		pods[i] = newPod(t, store, o)
		get(t.Context(), pods[i].Guard, "of pod "+string(rune('a'+i)), slowly(usually, 0)).is(t, 0, usually)
	}
	return pods
}

func TestOnePodLoadsBesideALoadThatTakesTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := hedging(t, new(stampede.MemoryStore), 4, stampede.Options{Policy: steady, Hedge: 3})
		src := &source{takes: usually}
		hung := going(t.Context(), pods[0].Guard, "k", slowly(10*time.Second, -1))
		synctest.Wait()
		var rest []<-chan answer
		for _, p := range pods[1:] {
			rest = append(rest, going(t.Context(), p.Guard, "k", src.load), going(t.Context(), p.Guard, "k", src.load))
		}
		for _, a := range rest {
			(<-a).is(t, 1, 3*usually+usually)
		}
		if n, _ := src.loads(); n != 1 {
			t.Errorf("%d pods loaded beside, want 1", n)
		}
		(<-hung).within(t, 1, 4*usually+time.Second) // told when its lease is looked after
		get(t.Context(), pods[0].Guard, "k", never(t)).is(t, 1, 0)
		time.Sleep(11 * time.Second) // the load that hung has ended
		if s := pods[0].Stats(); s.Refused != 1 {
			t.Errorf("the late value was refused %d times, want once", s.Refused)
		}
		hedges := uint64(0)
		for _, p := range pods {
			hedges += p.Stats().Hedges
		}
		if hedges != 1 {
			t.Errorf("%d hedges told of, want 1", hedges)
		}
	})
}

func TestHedgeDoesNotKeepCallersFromAValueThatComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := hedging(t, new(stampede.MemoryStore), 2, stampede.Options{Policy: steady, Hedge: 2})
		slow := going(t.Context(), pods[0].Guard, "k", slowly(5*usually, 1))
		synctest.Wait()
		other := going(t.Context(), pods[1].Guard, "k", (&source{takes: time.Hour}).load)
		(<-slow).is(t, 1, 5*usually)
		(<-other).is(t, 1, 5*usually)
		if n := pods[1].Stats().Hedges; n != 1 {
			t.Errorf("%d hedges, want 1: this shows nothing", n)
		}
	})
}

// What a hedge heard of while it ran is not lost to who waits when it fails.
func TestHedgeThatFailsDoesNotMissTheEndOfTheOtherLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := hedging(t, new(stampede.MemoryStore), 2, stampede.Options{Policy: steady, Hedge: 3, Lease: 10 * time.Second})
		first := going(t.Context(), pods[0].Guard, "k", (&source{takes: 4 * usually, fails: errBoom}).load)
		synctest.Wait()
		loads := 0
		other := going(t.Context(), pods[1].Guard, "k", func(context.Context) (int, error) {
			if loads++; loads > 1 {
				return 7, nil
			}
			<-time.After(2 * usually)
			return 0, errBoom
		})
		(<-first).fails(t, errBoom, 4*usually)
		(<-other).is(t, 7, 5*usually)
		if n := pods[1].Stats().Hedges; n != 1 {
			t.Errorf("%d hedges, want 1: this shows nothing", n)
		}
	})
}

func TestHedgeOverwritesNothingThatWasChangedSinceItBegan(t *testing.T) {
	for what, change := range map[string]func(ctx context.Context, p pod) error{
		"set":    func(ctx context.Context, p pod) error { return p.Set(ctx, "k", 7) },
		"delete": func(ctx context.Context, p pod) error { return p.Delete(ctx, "k") },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pods := hedging(t, new(stampede.MemoryStore), 2, stampede.Options{Policy: steady, Hedge: 2})
				going(t.Context(), pods[0].Guard, "k", (&source{takes: time.Minute}).load)
				synctest.Wait()
				hedge := going(t.Context(), pods[1].Guard, "k", slowly(usually, 2))
				time.Sleep(2*usually + usually/2)
				if n := pods[1].Stats().Hedges; n != 1 {
					t.Fatalf("%d hedges, want 1: this shows nothing", n)
				}
				if err := change(t.Context(), pods[0]); err != nil {
					t.Fatal(err)
				}
				<-hedge // it called before the change: both values are right
				r, ok, err := pods[1].Peek(t.Context(), "k")
				if err != nil || ok && r.Value != 7 || ok != (what == "set") {
					t.Errorf("stored after the hedge: %+v, %v, %v", r, ok, err)
				}
			})
		})
	}
}

func TestNothingIsHedgedThatTakesNoLongerThanUsual(t *testing.T) {
	for name, o := range map[string]stampede.Options{
		"off": {Policy: steady}, "negative": {Policy: steady, Hedge: -1}, "in time": {Policy: steady, Hedge: 6},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pods := hedging(t, new(stampede.MemoryStore), 2, o)
				leader := going(t.Context(), pods[0].Guard, "k", slowly(5*usually, 1))
				synctest.Wait()
				get(t.Context(), pods[1].Guard, "k", never(t)).is(t, 1, 5*usually)
				<-leader
			})
		})
	}
}

// What is stored knows how long its loads take, also in a pod that has never loaded.
func TestHedgeKnowsTheUsualTimeFromTheEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, o := new(stampede.MemoryStore), stampede.Options{Policy: steady, Hedge: 3}
		a, b := newPod(t, store, o), newPod(t, store, o)
		get(t.Context(), a.Guard, "k", slowly(usually, 1)).is(t, 1, usually)
		time.Sleep(steady.TTL + steady.StaleFor)
		going(t.Context(), a.Guard, "k", (&source{takes: time.Minute}).load)
		synctest.Wait()
		get(t.Context(), b.Guard, "k", slowly(usually, 3)).is(t, 3, 4*usually)
	})
}

func TestHedgeNeedsASeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := hedging(t, new(stampede.MemoryStore), 2, stampede.Options{Policy: steady, Hedge: 2, MaxLoads: 1})
		going(t.Context(), pods[0].Guard, "k", (&source{takes: time.Minute}).load)
		synctest.Wait()
		waiter := going(t.Context(), pods[1].Guard, "k", slowly(usually, 2))
		synctest.Wait()
		busy := going(t.Context(), pods[1].Guard, "busy", slowly(10*usually, 3))
		(<-busy).is(t, 3, 10*usually)
		(<-waiter).within(t, 2, 11*usually+250*time.Millisecond)
		if got := (<-going(t.Context(), pods[1].Guard, "k", never(t))); got.err != nil {
			t.Error(got)
		}
	})
}
