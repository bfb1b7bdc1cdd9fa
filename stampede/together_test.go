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

// What options do together, and did not do well.

// many is a GetMany on a goroutine of its own.
type many struct {
	v    map[string]int
	err  error
	took time.Duration
}

func goingMany(ctx context.Context, g *stampede.Guard[int], load stampede.ManyLoader[int], keys ...string) <-chan many {
	c := make(chan many, 1)
	go func() {
		begun := time.Now()
		v, err := g.GetMany(ctx, keys, load)
		c <- many{v, err, time.Since(begun)}
	}()
	return c
}

func (m many) within(t *testing.T, took time.Duration, want map[string]int) {
	t.Helper()
	if m.err != nil || !maps.Equal(m.v, want) || m.took > took {
		t.Errorf("GetMany = %v, %v after %v, want %v within %v", m.v, m.err, m.took, want, took)
	}
}

// noMany is a ManyLoader that must not run.
func noMany(t *testing.T) stampede.ManyLoader[int] {
	return func(_ context.Context, keys []string) (map[string]int, error) {
		t.Errorf("a load of %v ran", keys)
		return nil, errBoom
	}
}

// A load asks for a key for which somebody else waits already: for the seat that the load holds.
func TestLoadThatAsksForAKeyThatWaitsForItsSeatIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{MaxLoads: 1})
		sum := going(t.Context(), p.Guard, "sum", func(ctx context.Context) (int, error) {
			time.Sleep(tick)
			part, err := p.Get(ctx, "part", value(20))
			return part + 1, err
		})
		synctest.Wait()
		part := going(t.Context(), p.Guard, "part", value(20))
		(<-sum).within(t, 21, time.Second)
		(<-part).within(t, 20, time.Second)
	})
}

// The same with a call of GetMany, which holds a seat and waits for a key for which another call waits for one.
func TestGetManyDoesNotKeepTheSeatFromAFlightItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, src := new(stampede.MemoryStore), &shelf{}
		a, b := newPod(t, store, stampede.Options{}), newPod(t, store, stampede.Options{MaxLoads: 1})
		failing := going(t.Context(), a.Guard, "k01", (&source{takes: time.Second, fails: errBoom}).load)
		synctest.Wait()
		follows := going(t.Context(), b.Guard, "k01", value(1))
		time.Sleep(tick)
		both := goingMany(t.Context(), b.Guard, src.load, "k01", "k02")
		(<-failing).fails(t, errBoom, time.Second)
		(<-follows).within(t, 1, 2*time.Second)
		(<-both).within(t, 2*time.Second, map[string]int{"k01": 1, "k02": 2})
	})
}

// A key of which a load said Pass is loaded by each caller; GetMany waits for a seat for that, with a seat.
func TestGetManyOfAKeyThatIsPassedNeedsOneSeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{MaxLoads: 1})
		_, err := p.Fetch(t.Context(), "k01", func(_ context.Context, l *stampede.Load[int]) (int, error) {
			l.Pass(time.Minute)
			return 1, nil
		})
		must(t, err)
		synctest.Wait()
		(<-goingMany(t.Context(), p.Guard, (&shelf{}).load, "k01", "k02")).within(t, time.Second, map[string]int{"k01": 1, "k02": 2})
	})
}

// Without the store copies are served, whatever MaxLoads says.
func TestGetManyServesCopiesWhileAllSeatsAreTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(bytesStore), stampede.Options{MaxLoads: 1})
		keys, values := k(0, 3)
		getMany(t, p.Guard, keys, (&shelf{}).load, values)
		busy := going(t.Context(), p.Guard, "busy", slowly(20*time.Second, 7))
		synctest.Wait()
		p.net.Down(nil)
		get(t.Context(), p.Guard, "k01", never(t)).is(t, 1, 0)
		(<-goingMany(t.Context(), p.Guard, noMany(t), keys...)).within(t, 25*time.Millisecond, values)
		<-busy
	})
}

// What is kept for StaleIfError is served when the turn of its load does not come, after SoftTimeout.
func TestGetManyServesWhatIsKeptForErrorsWhileAllSeatsAreTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{Policy: steady, MaxLoads: 1, WaitTimeout: time.Second, SoftTimeout: 100 * time.Millisecond})
		keys, values := k(0, 3)
		getMany(t, p.Guard, keys, (&shelf{}).load, values)
		time.Sleep(steady.TTL + steady.StaleFor)
		busy := going(t.Context(), p.Guard, "busy", slowly(5*time.Second, 7))
		synctest.Wait()
		get(t.Context(), p.Guard, "k01", never(t)).is(t, 1, 100*time.Millisecond)
		(<-goingMany(t.Context(), p.Guard, noMany(t), keys...)).within(t, 100*time.Millisecond, values)
		<-busy
	})
}

// Who waits for a seat is served what another pod stores meanwhile.
func TestGetManyThatWaitsForASeatIsServedByOtherPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		full, free := newPod(t, store, stampede.Options{MaxLoads: 1, WaitTimeout: 2 * time.Second}), newPod(t, store, stampede.Options{})
		busy := going(t.Context(), full.Guard, "busy", slowly(10*time.Second, 7))
		synctest.Wait()
		waits := goingMany(t.Context(), full.Guard, noMany(t), "k01")
		synctest.Wait()
		get(t.Context(), free.Guard, "k01", slowly(100*time.Millisecond, 1)).is(t, 1, 100*time.Millisecond)
		(<-waits).within(t, 100*time.Millisecond, map[string]int{"k01": 1})
		<-busy
	})
}

func TestGetManyThatFollowsHoldsNoSeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		a, b := newPod(t, store, stampede.Options{}), newPod(t, store, stampede.Options{MaxLoads: 1})
		leader := going(t.Context(), a.Guard, "k01", slowly(10*time.Second, 1))
		synctest.Wait()
		follower := goingMany(t.Context(), b.Guard, noMany(t), "k01")
		time.Sleep(tick)
		get(t.Context(), b.Guard, "other", value(2)).within(t, 2, 50*time.Millisecond)
		<-leader
		<-follower
	})
}

func TestGetManyInBypassDoesNotTouchTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{FleetLoads: 2})
		p.SetMode(stampede.Bypass)
		p.net.Hang()
		get(t.Context(), p.Guard, "k01", value(1)).is(t, 1, 0)
		(<-goingMany(t.Context(), p.Guard, (&shelf{}).load, "k01")).within(t, 0, map[string]int{"k01": 1})
		if n := p.net.Calls(stampedetest.StepElect); n != 0 {
			t.Errorf("%d elections", n)
		}
		p.net.Up()
	})
}

func TestGetManyCostsOneBudget(t *testing.T) {
	for name, o := range map[string]stampede.Options{"plain": {}, "FleetLoads": {FleetLoads: 4}} {
		for _, n := range []int{3, 600} {
			t.Run(fmt.Sprint(name, n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := newPod(t, new(stampede.MemoryStore), o)
					keys, values := k(100, 100+n)
					p.net.Hang()
					(<-goingMany(t.Context(), p.Guard, (&shelf{}).load, keys...)).within(t, 251*time.Millisecond, values)
					p.net.Up()
				})
			})
		}
	}
}

func TestGetManyThatAsksForASeatInTheFleetLeavesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{FleetLoads: 2})
		p.net.Script(func(c stampedetest.Call) stampedetest.Fault {
			if c.Step == stampedetest.StepElect {
				return stampedetest.Fault{Delay: time.Minute}
			}
			return stampedetest.Fault{}
		})
		ctx, cancel := context.WithTimeout(t.Context(), tick)
		defer cancel()
		if got := <-goingMany(ctx, p.Guard, (&shelf{}).load, "k01"); got.took != tick || !errors.Is(got.err, context.DeadlineExceeded) {
			t.Errorf("left after %v with %v", got.took, got.err)
		}
	})
}

// The time that tries for a seat take is spent while the call waits; it must not end the bound.
func TestFleetLoadsHoldsForAGetManyThatWaitsForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		a, b := newPod(t, store, stampede.Options{FleetLoads: 1}), newPod(t, store, stampede.Options{FleetLoads: 1})
		b.net.Script(func(stampedetest.Call) stampedetest.Fault { return stampedetest.Fault{Delay: 20 * time.Millisecond} })
		busy := going(t.Context(), a.Guard, "busy", slowly(20*time.Second, 1))
		synctest.Wait()
		waits := goingMany(t.Context(), b.Guard, (&shelf{}).load, "k01")
		if got := <-waits; got.took < 20*time.Second {
			t.Errorf("loaded after %v beside another load, with FleetLoads 1: %v, %v", got.took, got.v, got.err)
		}
		<-busy
	})
}

// Rounds of one call do not run beside each other: it is one load.
func TestRoundsOfGetManyKeepToMaxLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, src := new(stampede.MemoryStore), &source{takes: time.Second}
		a, b := newPod(t, store, stampede.Options{}), newPod(t, store, stampede.Options{MaxLoads: 1})
		keys, _ := k(0, 5)
		for i, key := range keys {
			going(t.Context(), a.Guard, key, (&source{takes: time.Duration(i+1) * 100 * time.Millisecond, fails: errBoom}).load)
		}
		synctest.Wait()
		<-goingMany(t.Context(), b.Guard, func(ctx context.Context, keys []string) (map[string]int, error) {
			v, err := src.load(ctx)
			return map[string]int{keys[0]: v}, err
		}, keys...)
		if n, top := src.loads(); top > 1 {
			t.Errorf("%d loads, %d at once, want 1", n, top)
		}
	})
}

// What a load has loaded behind goes on when that load has given its seat back.
func TestWhatALoadHasLoadedBehindNeedsASeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, src := newPod(t, new(stampede.MemoryStore), stampede.Options{Policy: steady, MaxLoads: 1}), &source{takes: time.Second}
		keys, values := k(0, 20)
		getMany(t, p.Guard, keys, (&shelf{}).load, values)
		time.Sleep(steady.TTL)
		get(t.Context(), p.Guard, "sum", func(ctx context.Context) (sum int, err error) {
			for _, key := range keys {
				part, _ := p.Get(ctx, key, src.load) // stale: at once
				sum += part
			}
			time.Sleep(tick)
			return sum, nil
		}).is(t, 190, tick)
		time.Sleep(5 * time.Second)
		if n, top := src.loads(); top > 1 {
			t.Errorf("%d loads, %d at once, with MaxLoads 1", n, top)
		}
	})
}

// For MaxLoads and FleetLoads a call of GetMany is one load.
func TestGetManyLoadsBehindOnOneSeat(t *testing.T) {
	for name, o := range map[string]stampede.Options{"MaxLoads": {MaxLoads: 1}, "FleetLoads": {FleetLoads: 1}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o.Policy = steady
				p, src := newPod(t, new(stampede.MemoryStore), o), &shelf{}
				keys, values := k(0, 10)
				getMany(t, p.Guard, keys, src.load, values)
				time.Sleep(steady.TTL)
				getMany(t, p.Guard, keys, src.load, values)
				synctest.Wait()
				if calls := src.asked(); len(calls) != 2 || !slices.Equal(calls[1], keys) {
					t.Errorf("calls: %v, want all that is stale together", calls[1:])
				}
			})
		})
	}
}

// That a loader of many keys panicked with ErrNotFound says nothing of any key.
func TestPanicOfAManyLoaderIsNoAbsence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{})
		keys, values := k(0, 5)
		_, err := p.GetMany(t.Context(), keys, func(context.Context, []string) (map[string]int, error) { panic(stampede.ErrNotFound) })
		if perr := (*stampede.PanicError)(nil); !errors.As(err, &perr) {
			t.Errorf("the panic is told as %v", err)
		}
		synctest.Wait()
		getMany(t, p.Guard, keys, (&shelf{}).load, values)
	})
}

// ErrorBackoff off: the next caller loads.
func TestWithoutABackOffTheNextCallerLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := steady
		policy.ErrorBackoff = -1
		p, src := newPod(t, new(stampede.MemoryStore), stampede.Options{Policy: policy}), &source{fails: errBoom}
		get(t.Context(), p.Guard, "k", value(1)).is(t, 1, 0)
		time.Sleep(policy.TTL)
		for range 3 {
			get(t.Context(), p.Guard, "k", src.load).is(t, 1, 0)
			synctest.Wait()
			time.Sleep(tick)
		}
		if n, _ := src.loads(); n != 3 {
			t.Errorf("%d loads, want 3", n)
		}
	})
}

// A load that ends since its only caller has left has not timed out.
func TestLoadWhoseOnlyCallerLeftIsNoTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{})
		_, err := p.Fetch(t.Context(), "k", func(_ context.Context, l *stampede.Load[int]) (int, error) {
			l.Pass(time.Minute)
			return 1, nil
		})
		must(t, err)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), tick)
		defer cancel()
		get(ctx, p.Guard, "k", func(ctx context.Context) (int, error) {
			<-ctx.Done()
			time.Sleep(tick)
			return 0, ctx.Err()
		}).fails(t, context.DeadlineExceeded, tick)
		time.Sleep(time.Second)
		if s := p.Stats(); s.LoadsTimedOut != 0 {
			t.Errorf("%d loads are told of as timed out after %v, with a LoadTimeout of 30s", s.LoadsTimedOut, tick)
		}
	})
}

// Who joined those who wait a moment before their time was over has not waited.
func TestWhoCameLaterHasTheWholeWaitTimeout(t *testing.T) {
	t.Run("FailWait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := new(stampede.MemoryStore)
			a, b := newPod(t, store, stampede.Options{}), newPod(t, store, stampede.Options{WaitTimeout: time.Second, OnWaitTimeout: stampede.FailWait})
			leader := going(t.Context(), a.Guard, "k", slowly(1500*time.Millisecond, 1))
			synctest.Wait()
			first := going(t.Context(), b.Guard, "k", never(t))
			time.Sleep(900 * time.Millisecond)
			later := going(t.Context(), b.Guard, "k", never(t))
			(<-first).fails(t, stampede.ErrWaitTimeout, time.Second)
			(<-later).is(t, 1, 600*time.Millisecond)
			<-leader
		})
	})
	t.Run("MaxLoads", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newPod(t, new(stampede.MemoryStore), stampede.Options{WaitTimeout: time.Second, MaxLoads: 1})
			busy := going(t.Context(), p.Guard, "busy", slowly(1500*time.Millisecond, 1))
			synctest.Wait()
			first := going(t.Context(), p.Guard, "k", value(2))
			time.Sleep(900 * time.Millisecond)
			later := going(t.Context(), p.Guard, "k", value(2))
			(<-first).fails(t, stampede.ErrOverloaded, time.Second)
			(<-later).is(t, 2, 600*time.Millisecond)
			<-busy
		})
	})
}

// A hedge is there to help: that it fails is no answer as long as the load that it was to help goes on.
func TestHedgeThatFailsDoesNotKeepCallersFromTheValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := hedging(t, new(stampede.MemoryStore), 2, stampede.Options{Policy: steady, Hedge: 2})
		slow := going(t.Context(), pods[0].Guard, "k", slowly(5*usually, 1))
		synctest.Wait()
		other := going(t.Context(), pods[1].Guard, "k", (&source{fails: errBoom}).load)
		(<-slow).is(t, 1, 5*usually)
		(<-other).is(t, 1, 5*usually)
	})
}

// SoftTimeout is for the call, not for each of its rounds.
func TestSoftTimeoutIsForAllRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{Policy: steady, SoftTimeout: time.Second})
		get(t.Context(), p.Guard, "k", value(1)).is(t, 1, 0)
		time.Sleep(steady.TTL + steady.StaleFor)
		p.net.Script(func(c stampedetest.Call) stampedetest.Fault {
			if c.Step == stampedetest.StepRenew && c.KeyN == 1 {
				return stampedetest.Fault{Steal: time.Second}
			}
			return stampedetest.Fault{}
		})
		get(t.Context(), p.Guard, "k", func(ctx context.Context) (int, error) {
			<-ctx.Done()
			time.Sleep(500 * time.Millisecond)
			return 0, context.Cause(ctx)
		}).within(t, 1, time.Second)
		time.Sleep(time.Minute)
	})
}

// A chunk of keys that had to wait for the one before it has not waited for another pod.
func TestWaitTimeoutIsNotSpentByTheLoadOfOtherKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		a, b := newPod(t, store, stampede.Options{}), newPod(t, store, stampede.Options{WaitTimeout: time.Second, OnWaitTimeout: stampede.FailWait})
		keys, values := k(100, 400)
		leader := going(t.Context(), a.Guard, "k399", slowly(2100*time.Millisecond, 399))
		synctest.Wait()
		got := <-goingMany(t.Context(), b.Guard, (&shelf{takes: 2 * time.Second}).load, keys...)
		got.within(t, 5*time.Second, values)
		<-leader
	})
}

// A store that panics is in trouble; it takes no seat along.
func TestStorePanicLeaksNoSeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{MaxLoads: 1, FleetLoads: 1, WaitTimeout: time.Second})
		p.net.Script(func(c stampedetest.Call) stampedetest.Fault {
			if c.Step == stampedetest.StepElect && c.N == 1 {
				panic("out")
			}
			return stampedetest.Fault{}
		})
		get(t.Context(), p.Guard, "k", value(1))
		synctest.Wait()
		get(t.Context(), p.Guard, "k2", value(2)).within(t, 2, 500*time.Millisecond)
	})
}

// A key whose lease is lost is loaded by its round all the same: its callers need no other load beside that.
func TestKeyOfARoundWhoseLeaseIsLostIsNotLoadedTwiceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, src := newPod(t, new(stampede.MemoryStore), stampede.Options{}), &shelf{takes: 900 * time.Millisecond}
		p.net.Script(func(c stampedetest.Call) stampedetest.Fault {
			if c.Step == stampedetest.StepRenew && c.KeyN == 1 && c.Key.Key != "k00" {
				return stampedetest.Fault{Steal: 50 * time.Millisecond}
			}
			return stampedetest.Fault{}
		})
		keys, values := k(0, 3)
		(<-goingMany(t.Context(), p.Guard, src.load, keys...)).within(t, 2*time.Second, values)
		if calls := src.asked(); len(calls) != 1 { // the others began while the first went on
			t.Errorf("calls: %v", calls)
		}
	})
}

// The ctx of a ManyLoader has a deadline, as that of any loader has.
func TestManyLoadersContextHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{})
		_, err := p.GetMany(t.Context(), []string{"k01"}, func(ctx context.Context, _ []string) (map[string]int, error) {
			if d, ok := ctx.Deadline(); !ok || time.Until(d) > 30*time.Second {
				t.Errorf("deadline: %v, %v", d, ok)
			}
			return nil, nil
		})
		must(t, err)
	})
}

// A caller that has waited is not told that too many wait, by those who came after it.
func TestCallerThatGoesRoundAgainKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		p := newPod(t, store, stampede.Options{MaxWaiters: 1})
		first := going(t.Context(), p.Guard, "k", func(ctx context.Context) (int, error) { // its lease will be lost
			<-ctx.Done()
			return 0, context.Cause(ctx)
		})
		p.net.Next(stampedetest.StepRenew, stampedetest.Fault{Steal: tick})
		p.net.Script(func(c stampedetest.Call) stampedetest.Fault {
			return stampedetest.Fault{Delay: time.Duration(c.N%2) * tick} // the first one has to look longer
		})
		var others sync.WaitGroup
		for i := range 20 {
			others.Go(func() {
				time.Sleep(300*time.Millisecond + time.Duration(i)*5*time.Millisecond)
				get(t.Context(), p.Guard, "k", slowly(500*time.Millisecond, 2))
			})
		}
		if got := <-first; got.err != nil {
			t.Errorf("after %v: %v", got.took, got.err)
		}
		others.Wait()
	})
}

// When Close has returned, no loader begins, whatever the store was busy with.
func TestNothingIsLoadedOnceCloseHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{})
		p.net.Next(stampedetest.StepElect, stampedetest.Fault{Delay: 200 * time.Millisecond})
		var src source
		waits := going(t.Context(), p.Guard, "k", src.load)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), tick)
		defer cancel()
		if err := p.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v", err)
		}
		<-waits
		synctest.Wait()
		if n, _ := src.loads(); n != 0 {
			t.Errorf("%d loads began after Close", n)
		}
	})
}

// FleetLoads refuses nobody while there are seats.
func TestFreeSeatOfTheFleetIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		busy, p := newPod(t, store, stampede.Options{FleetLoads: 16}), newPod(t, store, stampede.Options{FleetLoads: 16, WaitTimeout: -1})
		for i := range 12 {
			going(t.Context(), busy.Guard, fmt.Sprint("busy", i), slowly(20*time.Second, 1))
		}
		time.Sleep(10 * time.Second)
		for i := range 20 {
			if got := get(t.Context(), p.Guard, fmt.Sprint(i), value(1)); got.err != nil {
				t.Fatal(got.err)
			}
			synctest.Wait()
		}
	})
}
