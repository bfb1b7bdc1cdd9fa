package reports_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/stampedetest"
)

// SandeepVashishtha/Eventra#19040, SandeepVashishtha/Eventra#19115: a lock shorter than the load gave two loads, and who did not get it
// slept once and then loaded without lock and store.
func TestALoadThatOutlivesItsLeaseStaysAlone(t *testing.T) {
	for name, lease := range map[string]time.Duration{"a third of the load": time.Second, "a hundredth": 30 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fl, loads := fleet(t, 8, new(stampede.MemoryStore), stampede.Options{Name: "n", Lease: lease}), numbered(3*time.Second)
				for _, a := range fl.GetAll(t.Context(), 10, "k", loads.Loader("k")) {
					if a.Value != 1 || a.Err != nil || a.Took != 3*time.Second {
						t.Errorf("Get = %d, %v after %v", a.Value, a.Err, a.Took)
					}
				}
				loads.AssertMost(t, 1)
			})
		})
	}
}

// flyingsquirrel0419/layercache#59, flyingsquirrel0419/layercache#65: the leader died, all who waited ran out of time together, and
// all loaded. sqlalchemy/dogpile.cache#261, nautobot/nautobot#2356, learningequality/kolibri#7463, bbangert/retools#8: the lock of who had
// died had to be removed by hand.
func TestADeadLeaderCostsOneLeaseAndOneLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		fl, loads := fleet(t, 8, store, stampede.Options{Name: "n"}), numbered(100*time.Millisecond)
		dead, end := context.WithCancel(t.Context())
		loads.Next(stampedetest.Fate{Takes: time.Hour, Deaf: true})
		crowd(1+7*50, func(i int) {
			if i == 0 {
				_, _ = fl.Pods[0].Get(dead, "k", loads.Loader("k"))
				return
			}
			time.Sleep(10 * time.Millisecond)
			fl.Faulty[0].Down(nil) // nothing of the leader reaches the store any more
			end()
			begun := time.Now()
			wants(t, fl.Pods[1+i%7], "k", loads.Loader("k"), 2)
			atMost(t, begun, time.Second+250*time.Millisecond+100*time.Millisecond) // lease, poll, load
		})
		loads.AssertLoads(t, 2)
		time.Sleep(time.Hour)
	})
}

// symfony/symfony#63592: who waited behind a holder that hung piled up without limit.
func TestWhoWaitsForAHungLeaderGetsAnAnswer(t *testing.T) {
	ifError := exactly(time.Second, -1)
	ifError.StaleIfError = time.Hour
	for _, c := range []struct {
		name   string
		opts   stampede.Options
		stored bool
		want   int
		err    error
		after  time.Duration
	}{
		{"by default with a load of its own, at LoadTimeout", stampede.Options{Policy: cold}, false, 7, nil, 30 * time.Second},
		{"load anyway", stampede.Options{Policy: cold, WaitTimeout: 3 * time.Second}, false, 7, nil, 3 * time.Second},
		{"fail", stampede.Options{Policy: cold, WaitTimeout: 3 * time.Second, OnWaitTimeout: stampede.FailWait}, false, 0, stampede.ErrWaitTimeout, 3 * time.Second},
		{"fail, with something kept for errors", stampede.Options{Policy: ifError, WaitTimeout: 3 * time.Second, OnWaitTimeout: stampede.FailWait}, true, 5, nil, 3 * time.Second},
		{"not at all", stampede.Options{Policy: cold, WaitTimeout: -1}, false, 7, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := new(stampede.MemoryStore)
				c.opts.Name = "n"
				hung := c.opts
				hung.LoadTimeout = time.Minute // it renews its lease for as long
				holder, g := open[int](t, store, hung), open[int](t, store, c.opts)
				if c.stored {
					must(t, g.Set(t.Context(), "k", 5))
					time.Sleep(time.Second)
				}
				must(t, holder.Refresh(t.Context(), "k", deaf(10*time.Minute).Loader("k")))
				synctest.Wait()
				crowd(50, func(int) {
					begun := time.Now()
					v, err := g.Get(t.Context(), "k", func(context.Context) (int, error) {
						time.Sleep(10 * time.Millisecond)
						return 7, nil
					})
					if v != c.want || !errors.Is(err, c.err) {
						t.Errorf("Get = %d, %v", v, err)
					}
					atMost(t, begun, c.after+20*time.Millisecond)
					if passed := time.Since(begun); passed < c.after {
						t.Errorf("it took %v only", passed)
					}
				})
				// A load without a lease is for those who came before it began. Who did not is in the next one.
				if s := g.Stats(); s.Loads > 2 {
					t.Errorf("%d loads for 50 callers", s.Loads)
				}
				// The holder is given up, and its lease with it.
				time.Sleep(time.Minute)
				begun := time.Now()
				if _, err := g.Get(t.Context(), "k", func(context.Context) (int, error) { return 8, nil }); err != nil {
					t.Error(err)
				}
				took(t, begun, 0)
				time.Sleep(10 * time.Minute)
			})
		})
	}
}

// apache/trafficserver#8614, #9279, #7092, #12845: who waited for a slow leader fell back, waited again, and went round in a circle.
func TestWhoFallsBackDoesNotWaitAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fl := fleet(t, 4, new(stampede.MemoryStore), stampede.Options{Name: "n", WaitTimeout: time.Second})
		loads := numbered(5 * time.Second)
		crowd(1+3*20, func(i int) {
			if i == 0 {
				wants(t, fl.Pods[0], "k", loads.Loader("k"), 1)
				return
			}
			time.Sleep(time.Millisecond)
			begun := time.Now()
			if v, err := fl.Pods[1+i%3].Get(t.Context(), "k", loads.Loader("k")); v == 0 || err != nil {
				t.Errorf("Get = %d, %v", v, err)
			}
			atMost(t, begun, 6*time.Second)
		})
		loads.AssertLoads(t, 4) // one in each pod
	})
}

// redisson/redisson#7272, redisson/redisson#1626: a renewal that overtook the unlock kept a key alive for ever.
// swarthy/redis-semaphore#206: a renewal that raced the release looked like a lost lock.
func TestRenewalsThatRaceTheEndOfALoadDoNoHarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen recorder
		const lease = 30 * time.Millisecond
		store := &stampede.MemoryStore{MaxEntries: -1}
		fl := fleet(t, 1, store, stampede.Options{Name: "n", Policy: cold, Lease: lease, Observer: &seen, StoreBudget: time.Second})
		fl.Faulty[0].Script(func(c stampedetest.Call) (f stampedetest.Fault) {
			switch c.Step {
			case stampedetest.StepRenew, stampedetest.StepCommit, stampedetest.StepRelease, stampedetest.StepFail:
				f.Delay = rand.N(lease / 4)
			}
			return f
		})
		const keys = 2000
		loads := numbered(0)
		loads.Script(func(r stampedetest.Run) (f stampedetest.Fate) {
			f.Takes = lease/3 - time.Millisecond + rand.N(2*time.Millisecond) // when the first renewal is due
			if r.N%3 == 0 {
				f.Err = errSource
			}
			return f
		})
		for i := range keys {
			if _, err := fl.Pods[0].Get(t.Context(), strconv.Itoa(i), loads.Loader(strconv.Itoa(i))); err != nil && !errors.Is(err, errSource) {
				t.Error(err)
			}
		}
		time.Sleep(2 * time.Second) // the back-off, and more than a lease
		for i := range keys {
			free(t, store, stampede.Key{Space: "n", Key: strconv.Itoa(i)})
		}
		if lost, gone := len(seen.of(stampede.EventLeaseLost)), len(seen.of(stampede.EventLeaseGone)); lost+gone > 0 || fl.Faulty[0].Calls(stampedetest.StepRenew) == 0 {
			t.Errorf("%d leases seemed lost, %d gone, after %d renewals", lost, gone, fl.Faulty[0].Calls(stampedetest.StepRenew))
		}
	})
}

// redisson/redisson#3712, redisson/redisson#3194: after a loss, the lock that the same process took next was not renewed.
func TestALeaseThatIsTakenAgainIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		fl, loads := fleet(t, 2, store, stampede.Options{Name: "n"}), numbered(0)
		loads.Next(stampedetest.Fate{Takes: 10 * time.Second}, stampedetest.Fate{Takes: 5 * time.Second})
		crowd(3, func(i int) {
			time.Sleep(time.Duration(i) * 500 * time.Millisecond)
			switch i {
			case 1: // somebody takes the lease away, and the next pod of the process loads
				must(t, store.Delete(t.Context(), stampede.Key{Space: "n", Key: "k"}))
				wants(t, fl.Pods[1], "k", loads.Loader("k"), 2)
			default: // the loader sees that its lease has another owner
				begun := time.Now()
				wants(t, fl.Pods[0], "k", loads.Loader("k"), 2)
				atMost(t, begun, 5500*time.Millisecond)
			}
		})
		loads.AssertLoads(t, 2)
		if s := fl.Pods[1].Stats(); s.LeasesRenewed < 10 || s.Committed != 1 {
			t.Errorf("the second lease was renewed %d times for 5 s, and its load committed %d times", s.LeasesRenewed, s.Committed)
		}
	})
}

// redisson/redisson#4698: nobody was told when a renewal found the lock lost.
// mike-marcacci/node-redlock#309: after a loss, seconds went into trying to release.
// go-redsync/redsync#107, #143, #144, #158: lost, taken and unreachable were one and the same error.
func TestALostLeaseAGoneOneAndAnUnansweredRenewalAreToldApart(t *testing.T) {
	for _, c := range []struct {
		name   string
		fault  stampedetest.Fault
		kind   stampede.EventKind
		cause  error
		stored bool
	}{
		{"lost", stampedetest.Fault{Steal: 10 * time.Second}, stampede.EventLeaseLost, stampede.ErrLeaseLost, false},
		{"gone", stampedetest.Fault{EndLease: true}, stampede.EventLeaseGone, nil, false},
		{"unreachable", stampedetest.Fault{Err: stampede.ErrUnavailable}, stampede.EventTrouble, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var seen recorder
				fl := fleet(t, 1, new(stampede.MemoryStore), stampede.Options{Name: "n", Observer: &seen})
				fl.Faulty[0].Next(stampedetest.StepRenew, c.fault)
				begun := time.Now()
				var cause error
				v, err := fl.Pods[0].Get(t.Context(), "k", func(ctx context.Context) (int, error) {
					select {
					case <-ctx.Done():
						cause = context.Cause(ctx)
						if lost := time.Since(begun); lost > time.Second/3+10*time.Millisecond {
							t.Errorf("it was told after %v", lost)
						}
						time.Sleep(time.Second - time.Since(begun)) // and goes on all the same
					case <-time.After(time.Second):
					}
					return 1, nil
				})
				// Whoever came before the load began takes its value, and waits for nothing else.
				if v != 1 || err != nil {
					t.Errorf("Get = %d, %v", v, err)
				}
				took(t, begun, time.Second)
				if !errors.Is(cause, c.cause) {
					t.Errorf("the loader's ctx ended with %v, want %v", cause, c.cause)
				}
				synctest.Wait()
				if n := len(seen.of(c.kind)); n != 1 {
					t.Errorf("%d events of the kind %v", n, c.kind)
				}
				for _, kind := range []stampede.EventKind{stampede.EventLeaseLost, stampede.EventLeaseGone, stampede.EventTrouble} {
					if n := len(seen.of(kind)); kind != c.kind && n != 0 {
						t.Errorf("%d events of the kind %v", n, kind)
					}
				}
				if committed := len(seen.of(stampede.EventCommitted)) == 1; committed != c.stored {
					t.Errorf("committed: %v", committed)
				}
			})
		})
	}
}

// go-redsync/redsync#151, bsm/redislock#83: one extension that failed in the network was the end of the lock.
func TestALoadOutlivesRenewalsThatFail(t *testing.T) {
	for name, fault := range map[string]stampedetest.Fault{
		"refused": {Err: errSource}, "lost": {Lost: errSource}, "late": {Delay: 300 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fl, loads := fleet(t, 2, new(stampede.MemoryStore), stampede.Options{Name: "n"}), numbered(10*time.Second)
				fl.Faulty[0].Script(func(c stampedetest.Call) (f stampedetest.Fault) {
					if c.Step == stampedetest.StepRenew && c.N%2 == 1 {
						return fault
					}
					return f
				})
				crowd(2, func(i int) {
					time.Sleep(time.Duration(i) * time.Millisecond)
					wants(t, fl.Pods[i], "k", loads.Loader("k"), 1)
				})
				loads.AssertLoads(t, 1)
			})
		})
	}
}

// redis/redis-py#623, redis/redis-py#1391, c2corg/v6_api#368: to release a lock that had run out was an error, and what had been computed was lost.
// redisson/redisson#2665: a frozen holder outlived its lease, and its unlock failed. samcook/RedLock.net#93: it believed that it still held it.
// redisson/redisson#5698: nobody noticed that renewals did not get through. ZiggyCreatures/FusionCache#612: a job was to run exactly once.
//
// A pod that is paused or cut off may cause a second load: that is not promised away. And P8 says that not to know is not to have lost, so
// the loader's ctx is not ended because renewals get no answer; it is when the lease is found with another owner.
func TestALeaderThatWasCutOffIsAnsweredAndOverwritesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		back time.Duration
		want int
	}{
		"back before its load ends": {3 * time.Second, 2}, // its lease is gone, and there is something else
		"back after it":             {6 * time.Second, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fl := fleet(t, 2, new(stampede.MemoryStore), stampede.Options{Name: "n", Policy: cold})
				old, next := fl.Pods[0], fl.Pods[1]
				loads := deaf(0)
				loads.Next(stampedetest.Fate{Takes: 5 * time.Second, Deaf: true}, stampedetest.Fate{Takes: time.Second, Deaf: true})
				crowd(3, func(i int) {
					switch i {
					case 0:
						begun := time.Now()
						wants(t, old, "k", loads.Loader("k"), c.want)
						atMost(t, begun, 5*time.Second+250*time.Millisecond) // no more than the budget on top
					case 1:
						time.Sleep(100 * time.Millisecond)
						fl.Faulty[0].Hang()
						time.Sleep(c.back)
						fl.Faulty[0].Up()
					case 2:
						time.Sleep(2 * time.Second)
						wants(t, next, "k", loads.Loader("k"), 2)
					}
				})
				time.Sleep(2 * time.Second)
				loads.AssertLoads(t, 2) // this is why loads must have no effects that may happen only once
				wants(t, old, "k", forbidden(t), 2)
				wants(t, next, "k", forbidden(t), 2)
				if s := old.Stats(); s.Committed != 0 {
					t.Errorf("the late load was committed")
				}
			})
		})
	}
}

// ZiggyCreatures/FusionCache#644, ZiggyCreatures/FusionCache#646: where nothing was written, the lock stayed.
func TestALoadThatStoresNothingLeavesNoLease(t *testing.T) {
	full := stampedetest.Fault{Full: errSource}
	for name, c := range map[string]struct {
		say   func(l *stampede.Load[string])
		fault stampedetest.Fault
		err   error
	}{
		"do not store":       {say: (*stampede.Load[string]).DoNotStore},
		"do not share":       {say: (*stampede.Load[string]).DoNotShare},
		"a TTL of zero":      {say: func(l *stampede.Load[string]) { l.TTL(0) }},
		"a TTL below":        {say: func(l *stampede.Load[string]) { l.TTL(-time.Second) }},
		"too large":          {say: func(*stampede.Load[string]) {}},
		"waiters released":   {say: (*stampede.Load[string]).ReleaseWaiters},
		"the store is full":  {say: func(*stampede.Load[string]) {}, fault: full},
		"unremembered error": {say: func(*stampede.Load[string]) {}, err: stampede.ErrNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := cold
				p.NotFoundTTL = -1
				store := new(stampede.MemoryStore)
				net := stampedetest.NewFaulty(store)
				net.Next(stampedetest.StepCommit, c.fault)
				o := stampede.Options{Name: "n", Policy: p, CopyOnRead: true} // so that there are bytes
				if name == "too large" {
					o.MaxValueSize = 3
				}
				a, b := open[string](t, net, o), open[string](t, store, o)
				load := func(_ context.Context, l *stampede.Load[string]) (string, error) {
					c.say(l)
					time.Sleep(time.Second)
					return "value", c.err
				}
				begun := time.Now()
				crowd(2*10, func(i int) {
					g := a
					if i > 0 {
						time.Sleep(time.Millisecond)
						if i%2 == 0 {
							g = b
						}
					}
					r, err := g.Fetch(t.Context(), "k", load)
					if r.Value != "value" && c.err == nil || !errors.Is(err, c.err) {
						t.Errorf("Fetch = %+v, %v", r, err)
					}
					atMost(t, begun, 2*time.Second+time.Millisecond) // the load followed, then one beside all others
				})
				time.Sleep(time.Second) // the markers
				free(t, store, stampede.Key{Space: "n", Key: "k"})
			})
		})
	}
}

// Altinn/dialogporten#4252, Altinn/dialogporten#4300: a read of the database hung inside a factory; the key's lock was held for a day, and
// the replica was a zombie with green probes. spring-projects/spring-integration#3821, #2660: a lock of the process outlived its lease.
// chenyahui/gin-cache#4: one slow call held up all others; here Options.LoadTimeout is when a load is given up, and there is no hedging.
func TestHungLoadersAreGivenUpCountedAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen recorder
		g := open[int](t, new(stampede.MemoryStore), stampede.Options{
			Name: "n", Policy: cold, LoadTimeout: time.Second, MaxAbandoned: 4, Observer: &seen,
		})
		loads := numbered(0)
		loads.Script(func(r stampedetest.Run) (f stampedetest.Fate) {
			if r.N <= 4 {
				f = stampedetest.Fate{Takes: time.Hour, Deaf: true}
			}
			return f
		})
		for n := range 4 {
			crowd(200, func(i int) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*10*time.Millisecond)
				defer cancel()
				begun := time.Now()
				_, err := g.Get(ctx, "k", loads.Loader("k"))
				want := context.DeadlineExceeded
				if i >= 100 {
					want = stampede.ErrLoadTimeout
				}
				if i != 99 && !errors.Is(err, want) || err == nil {
					t.Errorf("Get = %v", err)
				}
				atMost(t, begun, min(time.Duration(i+1)*10*time.Millisecond, time.Second))
			})
			if s := g.Stats(); s.Abandoned != n+1 || s.Loading != 0 {
				t.Errorf("%d abandoned, %d loading, want %d and none", s.Abandoned, s.Loading, n+1)
			}
		}
		if _, err := g.Get(t.Context(), "k", loads.Loader("k")); !errors.Is(err, stampede.ErrOverloaded) {
			t.Errorf("with as many as MaxAbandoned Get = %v", err)
		}
		loads.AssertLoads(t, 4)
		time.Sleep(time.Hour) // they end, one by one, and what they bring is dropped
		synctest.Wait()
		if n := len(seen.of(stampede.EventAbandoned)); n != 4 || g.Stats().Abandoned != 0 {
			t.Errorf("%d ended, %d are still abandoned", n, g.Stats().Abandoned)
		}
		wants(t, g, "k", loads.Loader("k"), 5)
		wants(t, g, "k", forbidden(t), 5)
	})
}

// bsm/redislock#74, bsm/redislock#27: one duration was the lock's life and how long to wait for it.
func TestLeaseWaitAndTheCallersTimeAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fl := fleet(t, 2, new(stampede.MemoryStore), stampede.Options{
			Name: "n", Lease: 50 * time.Millisecond, WaitTimeout: time.Second, OnWaitTimeout: stampede.FailWait,
		})
		loads := numbered(2 * time.Second)
		crowd(3, func(i int) {
			begun := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			want, after := error(nil), 2*time.Second
			switch i {
			case 1: // the wait ends after many leases, and before the caller's time
				time.Sleep(10 * time.Millisecond)
				want, after = stampede.ErrWaitTimeout, 1010*time.Millisecond
			case 2: // the caller's time ends before the wait
				time.Sleep(10 * time.Millisecond)
				ctx, cancel = context.WithTimeout(t.Context(), 500*time.Millisecond)
				want, after = context.DeadlineExceeded, 510*time.Millisecond
			}
			defer cancel()
			if _, err := fl.Pods[min(i, 1)].Get(ctx, "k", loads.Loader("k")); !errors.Is(err, want) {
				t.Errorf("Get = %v, want %v", err, want)
			}
			took(t, begun, after)
		})
		loads.AssertLoads(t, 1)
	})
}
