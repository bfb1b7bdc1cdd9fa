package stampede_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/stampedetest"
)

// The memory tier while the store answers: Local.TTL.

// deaf is a store that is never told what other pods drop.
type deaf struct{ stampede.Store }

func (deaf) Drops(string, func(string)) func() { return func() {} }

// reads counts the reads that reach the store.
func (p pod) reads() int { return p.net.Executed(stampedetest.StepRead) }

func withLocal(policy stampede.Policy, ttl time.Duration) stampede.Options {
	return stampede.Options{Policy: policy, Local: stampede.Local{TTL: ttl}}
}

// idle is a policy under which nothing goes stale during a test.
var idle = stampede.Policy{TTL: time.Hour, StaleFor: time.Hour, Jitter: -1, Beta: -1}

func TestLocalHitAsksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(bytesStore), withLocal(idle, time.Second))
		get(t.Context(), p.Guard, "k", value(1)).is(t, 1, 0) // its own commit is its copy
		reads := p.reads()
		for range 100 {
			r := fetched(t, p.Guard, "k", func(context.Context, *stampede.Load[int]) (int, error) { return 0, errBoom })
			if r.Value != 1 || r.From != stampede.FromLocal || r.Freshness != stampede.Fresh {
				t.Fatalf("%+v", r)
			}
		}
		if n := p.reads(); n != reads {
			t.Errorf("%d reads", n-reads)
		}
		if s := p.Stats(); s.LocalHits != 100 {
			t.Errorf("%d local hits counted", s.LocalHits)
		}
	})
}

func TestLocalHitIsToldAndCountedByGetAsByFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := 0
		o := withLocal(idle, time.Minute)
		o.Observer = stampede.ObserverFunc(func(e stampede.Event) {
			if e.Kind == stampede.EventLocalHit && e.Key == "k" {
				told++
			}
		})
		p := newPod(t, new(bytesStore), o)
		get(t.Context(), p.Guard, "k", value(1)).is(t, 1, 0)
		by := p.Getter(func(context.Context, string) (int, error) { return 0, errBoom })
		for range 10 {
			get(t.Context(), p.Guard, "k", value(2)).is(t, 1, 0)
			if v, err := by.Get(t.Context(), "k"); v != 1 || err != nil {
				t.Errorf("%d, error %v", v, err)
			}
		}
		if s := p.Stats(); s.LocalHits != 20 || told != 20 {
			t.Errorf("%d local hits counted and %d told, want 20", s.LocalHits, told)
		}
		if n := testing.AllocsPerRun(100, func() { _, _ = by.Get(t.Context(), "k") }); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}

// What is wrong with a call is told also when a copy could be served.
func TestLocalHitDoesNotHideAFaultOfTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(bytesStore), withLocal(idle, time.Minute))
		get(t.Context(), p.Guard, "k", value(1)).is(t, 1, 0)
		if _, err := p.Get(t.Context(), "k", nil); !errors.Is(err, stampede.ErrNilLoader) {
			t.Errorf("without a loader: %v", err)
		}
		if _, err := p.Getter(nil).Get(t.Context(), "k"); !errors.Is(err, stampede.ErrNilLoader) {
			t.Errorf("by a getter without a loader: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p.Get(ctx, "k", func(context.Context) (int, error) { return 0, nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("with a ctx that has ended: %v", err)
		}
	})
}

func TestLocalCopyInUseIsReadAnewBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(bytesStore), withLocal(idle, time.Second))
		get(t.Context(), p.Guard, "k", value(1)).is(t, 1, 0)
		p.net.Script(func(c stampedetest.Call) stampedetest.Fault { return stampedetest.Fault{Delay: 5 * time.Millisecond} })
		const seconds = 20
		before := p.reads()
		for range seconds * 100 {
			time.Sleep(10 * time.Millisecond)
			get(t.Context(), p.Guard, "k", never(t)).is(t, 1, 0) // nobody waits for a read
		}
		if n := p.reads() - before; n < seconds || n > 2*seconds {
			t.Errorf("%d reads in %d s", n, seconds)
		}
	})
}

func TestLocalCopyIsNotServedBeyondItsTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(bytesStore)
		p := newPod(t, deaf{store}, withLocal(idle, time.Second))
		other := newPod(t, store, stampede.Options{Policy: idle})
		get(t.Context(), p.Guard, "k", value(1)).is(t, 1, 0)
		get(t.Context(), p.Guard, "untouched", value(1)).is(t, 1, 0)
		must(t, other.Set(t.Context(), "k", 2))
		must(t, other.Set(t.Context(), "untouched", 2))
		time.Sleep(time.Second - time.Millisecond)
		get(t.Context(), p.Guard, "k", never(t)).is(t, 1, 0) // as far as it may lag behind
		time.Sleep(time.Millisecond)
		get(t.Context(), p.Guard, "k", never(t)).is(t, 2, 0)
		get(t.Context(), p.Guard, "untouched", never(t)).is(t, 2, 0)
	})
}

func TestChangeOnAnyPodEndsLocalCopies(t *testing.T) {
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := new(bytesStore)
				o := withLocal(idle, time.Minute)
				a, b := newPod(t, store, o), newPod(t, store, o)
				for _, p := range []pod{a, b} {
					get(t.Context(), p.Guard, "k", value(1)).is(t, 1, 0)
					get(t.Context(), p.Guard, "k", never(t)).is(t, 1, 0)
				}
				must(t, change(t.Context(), b.Guard))
				for _, p := range []pod{a, b} {
					before := p.reads()
					get(t.Context(), p.Guard, "k", value(2))
					if p.reads() == before {
						t.Error("a copy was served")
					}
				}
			})
		})
	}
}

func TestReadFromBeforeAChangeDoesNotFillTheLocalTier(t *testing.T) {
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPod(t, new(bytesStore), withLocal(idle, time.Minute))
				must(t, p.Set(t.Context(), "k", 1))
				var reply stampedetest.Gate
				p.net.Next(stampedetest.StepRead, stampedetest.Fault{Reply: &reply})
				reading := going(t.Context(), p.Guard, "k", never(t))
				<-reply.Reached()
				must(t, change(t.Context(), p.Guard))
				reply.Open()
				(<-reading).is(t, 1, 0) // it was there during this Get
				before := p.reads()
				get(t.Context(), p.Guard, "k", value(2))
				if p.reads() == before {
					t.Error("a copy from before the change was served")
				}
			})
		})
	}
}

func TestStaleLocalCopyIsServedAtOnceAndReadBehindEvery20ms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(bytesStore)
		policy := stampede.Policy{TTL: time.Second, StaleFor: time.Minute, Jitter: -1, Beta: -1}
		a := newPod(t, store, stampede.Options{Policy: policy})
		b := newPod(t, store, withLocal(policy, time.Minute))
		src := &source{takes: 500 * time.Millisecond}
		get(t.Context(), a.Guard, "k", src.load).is(t, 1, src.takes)
		get(t.Context(), b.Guard, "k", never(t)).is(t, 1, 0)
		time.Sleep(policy.TTL)
		get(t.Context(), a.Guard, "k", src.load).is(t, 1, 0) // loads behind
		synctest.Wait()
		before := b.reads()
		for range 500 {
			get(t.Context(), b.Guard, "k", never(t)).is(t, 1, 0)
			time.Sleep(time.Millisecond)
		}
		if n := b.reads() - before; n < 20 || n > 26 {
			t.Errorf("%d reads in 500 ms, want one each 20 ms", n)
		}
		time.Sleep(20 * time.Millisecond)
		get(t.Context(), b.Guard, "k", never(t))
		synctest.Wait()
		get(t.Context(), b.Guard, "k", never(t)).is(t, 2, 0) // seen within 20 ms of the commit
	})
}

func TestStaleLocalCopyIsLoadedAnewByOnePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, src := new(bytesStore), &source{takes: 100 * time.Millisecond}
		policy := stampede.Policy{TTL: time.Second, StaleFor: time.Minute, Jitter: -1, Beta: -1}
		var pods []pod
		for range 4 {
			pods = append(pods, newPod(t, store, withLocal(policy, time.Minute)))
		}
		end := time.Now().Add(20 * (policy.TTL + src.takes))
		var wg sync.WaitGroup
		for _, p := range pods {
			for range 4 {
				wg.Go(func() {
					for time.Now().Before(end) {
						a := get(t.Context(), p.Guard, "k", src.load)
						if a.err != nil || a.took > src.takes {
							t.Error(a)
						}
						time.Sleep(time.Millisecond + rand.N(time.Millisecond))
					}
				})
			}
		}
		wg.Wait()
		if n, top := src.loads(); n < 18 || n > 21 || top != 1 {
			t.Errorf("%d loads in 20 lives of the entry, %d at once", n, top)
		}
	})
}

func TestValueThatTheStoreDoesNotVouchForIsNotServedFromTheLocalTier(t *testing.T) {
	for name, fault := range map[string]stampedetest.Fault{
		"commit not answered": {Err: errServer}, "store is full": {Full: errServer},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPod(t, new(bytesStore), withLocal(idle, time.Minute))
				p.net.Next(stampedetest.StepCommit, fault)
				get(t.Context(), p.Guard, "k", value(1)).is(t, 1, 0)
				get(t.Context(), p.Guard, "k", value(2)).is(t, 2, 0)
			})
		})
	}
}

func TestLocalCopiesAreAskedForWhenDropsMayHaveBeenMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &forgetful{Store: new(bytesStore)}
		p := newPod(t, store, withLocal(idle, time.Minute))
		get(t.Context(), p.Guard, "k", value(1)).is(t, 1, 0)
		store.tell("")
		before := p.reads()
		get(t.Context(), p.Guard, "k", never(t)).is(t, 1, 0)
		get(t.Context(), p.Guard, "k", never(t)).is(t, 1, 0)
		if n := p.reads() - before; n != 1 {
			t.Errorf("%d reads, want 1", n)
		}
		p.net.Down(nil)
		store.tell("")
		get(t.Context(), p.Guard, "k", never(t)).is(t, 1, 0) // for an outage it is still good
	})
}

// forgetful is a store whose news of drops come from the test.
type forgetful struct {
	stampede.Store
	tell func(string)
}

func (f *forgetful) Drops(_ string, fn func(string)) func() {
	f.tell = fn
	return func() {}
}

func TestNotFoundIsServedFromTheLocalTier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(bytesStore), withLocal(idle, time.Minute))
		get(t.Context(), p.Guard, "k", func(context.Context) (int, error) { return 0, stampede.ErrNotFound }).fails(t, stampede.ErrNotFound, 0)
		before := p.reads()
		get(t.Context(), p.Guard, "k", never(t)).fails(t, stampede.ErrNotFound, 0)
		if p.reads() != before {
			t.Error("the store was asked")
		}
		time.Sleep(5 * time.Second) // the default of NotFoundTTL
		get(t.Context(), p.Guard, "k", value(1)).is(t, 1, 0)
	})
}

func TestCopyOnReadHoldsForLocalHits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := withLocal(idle, time.Minute)
		o.CopyOnRead = true
		g := newGuard[[]int](t, stampedetest.NewFaulty(new(bytesStore)), o)
		for i := range 3 {
			v, err := g.Get(t.Context(), "k", func(context.Context) ([]int, error) { return []int{7}, nil })
			must(t, err)
			if v[0] != 7 {
				t.Fatalf("call %d sees another caller's change", i)
			}
			v[0] = 0
		}
	})
}

func TestClosedGuardServesFromTheLocalTier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(bytesStore), withLocal(idle, time.Second))
		get(t.Context(), p.Guard, "k", value(1)).is(t, 1, 0)
		must(t, p.Close(t.Context()))
		time.Sleep(900 * time.Millisecond) // due to be read anew
		get(t.Context(), p.Guard, "k", never(t)).is(t, 1, 0)
	})
}

// A pod's own changes are never missed, however its reads, loads and changes race: a Get that begins
// after a Set returned does not see an older value.
func TestOwnChangeIsNeverMissedByTheLocalTier(t *testing.T) {
	g := newGuard[int](t, new(bytesStore), withLocal(idle, time.Minute))
	const keys = 3
	var wg sync.WaitGroup
	var mu [keys]sync.Mutex
	var last [keys]int
	for w := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(w)))
			for n := 1; n < 2000; n++ {
				k := r.IntN(keys)
				key := fmt.Sprint(k)
				mu[k].Lock()
				least := last[k]
				mu[k].Unlock()
				if r.IntN(4) > 0 {
					v, err := g.Get(t.Context(), key, func(context.Context) (int, error) { // the source
						mu[k].Lock()
						defer mu[k].Unlock()
						return last[k], nil
					})
					if err != nil || v < least {
						t.Errorf("got %d, %v after a change to %d", v, err, least)
						return
					}
					continue
				}
				mu[k].Lock()
				next := last[k] + 1
				err := g.Set(t.Context(), key, next)
				last[k] = next
				mu[k].Unlock()
				must(t, err)
			}
		})
	}
	wg.Wait()
}
