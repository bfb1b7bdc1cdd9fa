package stampede_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// What happens around loads that fail or are slow: ErrorBackoff, StaleIfError, SoftTimeout, WaitTimeout,
// NotFoundTTL.

func TestBackOffSpacesLoadsInTheFleetWhereSomethingStaleIsAtHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := steady
		policy.StaleFor, policy.StaleIfError, policy.MaxErrorBackoff = time.Hour, time.Hour, -1
		store, src := new(stampede.MemoryStore), &source{fails: errBoom}
		var pods []pod
		for range 4 {
			pods = append(pods, newPod(t, store, stampede.Options{Policy: policy}))
		}
		must(t, pods[0].Set(t.Context(), "k", 1))
		time.Sleep(policy.TTL)
		for range 100 { // ten seconds
			for _, p := range pods {
				get(t.Context(), p.Guard, "k", src.load).is(t, 1, 0)
			}
			synctest.Wait()
			time.Sleep(100 * time.Millisecond)
		}
		if n, _ := src.loads(); n < 9 || n > 11 {
			t.Errorf("%d loads in ten seconds with a back-off of one, want 10", n)
		}
	})
}

func TestColdCallerIsNotHeldByAnotherPodsFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		o := stampede.Options{Policy: stampede.Policy{ErrorBackoff: time.Hour}}
		a, b := newPod(t, store, o), newPod(t, store, o)
		bad := &source{fails: errBoom}
		get(t.Context(), a.Guard, "k", bad.load).fails(t, errBoom, 0)
		get(t.Context(), b.Guard, "k", slowly(time.Second, 2)).is(t, 2, time.Second)
		// Its value is stored: nothing was since the load began, so the key is protected again.
		get(t.Context(), a.Guard, "k", never(t)).is(t, 2, 0)
	})
}

// After a load that failed all pods load side by side, and the first value is stored.
func TestColdKeyIsProtectedAgainWithTheFirstValueAfterAFailure(t *testing.T) {
	for name, backoff := range map[string]time.Duration{"back-off": time.Hour, "no back-off": -1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := new(stampede.MemoryStore)
				o := stampede.Options{Policy: stampede.Policy{ErrorBackoff: backoff}}
				pods := make([]pod, 10)
				for i := range pods {
					pods[i] = newPod(t, store, o)
				}
				bad := &source{fails: errBoom}
				get(t.Context(), pods[0].Guard, "k", bad.load).fails(t, errBoom, 0)
				good := &source{takes: 100 * time.Millisecond}
				for range 20 {
					var answers []<-chan answer
					for _, p := range pods {
						answers = append(answers, going(t.Context(), p.Guard, "k", good.load))
					}
					for _, a := range answers {
						if got := <-a; got.err != nil {
							t.Error(got.err)
						}
					}
				}
				if n, _ := good.loads(); n > len(pods) {
					t.Errorf("%d loads, want one a pod at most", n)
				}
			})
		})
	}
}

// A Delete ends what a load under a marker may still store.
func TestLoadUnderAMarkerDoesNotOverwriteAChange(t *testing.T) {
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := new(stampede.MemoryStore)
				a, b := newPod(t, store, stampede.Options{}), newPod(t, store, stampede.Options{})
				get(t.Context(), a.Guard, "k", func(context.Context) (int, error) { return 0, errBoom }).fails(t, errBoom, 0)
				late := going(t.Context(), a.Guard, "k", slowly(100*time.Millisecond, 1))
				time.Sleep(50 * time.Millisecond)
				must(t, change(t.Context(), b.Guard))
				(<-late).is(t, 1, 100*time.Millisecond)
				if r, ok, _ := b.Peek(t.Context(), "k"); ok && r.Value == 1 {
					t.Error("the value from before is stored")
				}
			})
		})
	}
}

func TestLocalBackOffEndsWithTheEntryItBelongsTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{Policy: stampede.Policy{TTL: time.Second, ErrorBackoff: time.Hour, Jitter: -1, Beta: -1}})
		must(t, p.Set(t.Context(), "k", 1))
		time.Sleep(time.Second)
		bad := &source{fails: errBoom}
		for range 5 {
			get(t.Context(), p.Guard, "k", bad.load).is(t, 1, 0)
			synctest.Wait()
		}
		if n, _ := bad.loads(); n != 1 {
			t.Errorf("%d loads, want 1", n)
		}
		must(t, p.Expire(t.Context(), "k"))
		get(t.Context(), p.Guard, "k", value(2)).is(t, 1, 0)
		synctest.Wait()
		get(t.Context(), p.Guard, "k", never(t)).is(t, 2, 0)
	})
}

func TestStaleIfErrorServesWhoseLoadFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		a, b := newPod(t, store, stampede.Options{Policy: steady}), newPod(t, store, stampede.Options{Policy: steady})
		must(t, a.Set(t.Context(), "k", 1))
		time.Sleep(steady.TTL + steady.StaleFor)
		bad := &source{takes: 100 * time.Millisecond, fails: errBoom}
		one, two := going(t.Context(), a.Guard, "k", bad.load), going(t.Context(), b.Guard, "k", bad.load)
		(<-one).is(t, 1, bad.takes)
		(<-two).is(t, 1, bad.takes)
		if n, _ := bad.loads(); n != 1 {
			t.Errorf("%d loads, want 1", n)
		}
		get(t.Context(), a.Guard, "k", never(t)).is(t, 1, 0) // backed off: nobody waits
		get(t.Context(), b.Guard, "k", never(t)).is(t, 1, 0)
		time.Sleep(time.Second)
		get(t.Context(), b.Guard, "k", slowly(50*time.Millisecond, 2)).is(t, 2, 50*time.Millisecond)
		r, ok, err := a.Peek(t.Context(), "k")
		if !ok || err != nil || r.Value != 2 {
			t.Errorf("%+v, %v, %v", r, ok, err)
		}
		time.Sleep(steady.TTL + steady.StaleIfError)
		get(t.Context(), a.Guard, "k", bad.load).fails(t, errBoom, bad.takes)
	})
}

func TestSoftTimeoutServesWhoseLoadIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		o := stampede.Options{Policy: steady, SoftTimeout: 200 * time.Millisecond}
		a, b := newPod(t, store, o), newPod(t, store, o)
		must(t, a.Set(t.Context(), "k", 1))
		time.Sleep(steady.TTL + steady.StaleFor)
		one := going(t.Context(), a.Guard, "k", slowly(time.Second, 2))
		synctest.Wait()
		two := going(t.Context(), b.Guard, "k", never(t))
		(<-one).is(t, 1, o.SoftTimeout)
		(<-two).is(t, 1, o.SoftTimeout)
		time.Sleep(time.Second)
		get(t.Context(), a.Guard, "k", never(t)).is(t, 2, 0)
		get(t.Context(), b.Guard, "cold", slowly(time.Second, 3)).is(t, 3, time.Second)
	})
}

func TestSoftTimeoutHoldsForWhoLoadsForItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := stampede.Options{Policy: steady, SoftTimeout: 200 * time.Millisecond}
		g := newGuard[int](t, new(stampede.MemoryStore), o)
		must(t, g.Set(t.Context(), "k", 1))
		time.Sleep(steady.TTL + steady.StaleFor)
		go func() { _, _ = g.Fetch(t.Context(), "k", private(100*time.Millisecond, 2)) }()
		synctest.Wait()
		get(t.Context(), g, "k", slowly(time.Second, 3)).is(t, 1, o.SoftTimeout)
		time.Sleep(time.Second)
	})
}

func TestWaitTimeoutEndsInALoadOfThePodsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		o := stampede.Options{WaitTimeout: 500 * time.Millisecond}
		a, b := newPod(t, store, o), newPod(t, store, o)
		leader := going(t.Context(), a.Guard, "k", slowly(2*time.Second, 1))
		synctest.Wait()
		src := &source{takes: 100 * time.Millisecond}
		var answers []<-chan answer
		for range 8 {
			answers = append(answers, going(t.Context(), b.Guard, "k", src.load))
		}
		for _, a := range answers {
			(<-a).is(t, 1, o.WaitTimeout+src.takes)
		}
		if n, _ := src.loads(); n != 1 {
			t.Errorf("%d loads for all callers of the pod, want 1", n)
		}
		(<-leader).is(t, 1, 2*time.Second)
		synctest.Wait()
		get(t.Context(), b.Guard, "k", never(t)).is(t, 1, 0)
	})
}

func TestWaitTimeoutEndsInAnErrorIfWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		o := stampede.Options{WaitTimeout: 500 * time.Millisecond, OnWaitTimeout: stampede.FailWait, Policy: steady}
		a, b := newPod(t, store, o), newPod(t, store, o)
		must(t, a.Set(t.Context(), "old", 9))
		time.Sleep(steady.TTL + steady.StaleFor)
		leader, again := going(t.Context(), a.Guard, "k", slowly(2*time.Second, 1)), going(t.Context(), a.Guard, "old", slowly(2*time.Second, 1))
		synctest.Wait()
		cold, old := going(t.Context(), b.Guard, "k", never(t)), going(t.Context(), b.Guard, "old", never(t))
		(<-cold).fails(t, stampede.ErrWaitTimeout, o.WaitTimeout)
		(<-old).is(t, 9, o.WaitTimeout) // kept for StaleIfError
		(<-leader).is(t, 1, 2*time.Second)
		(<-again).is(t, 1, 2*time.Second)
	})
}

func TestNegativeWaitTimeoutDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		a, b := newPod(t, store, stampede.Options{}), newPod(t, store, stampede.Options{WaitTimeout: -1})
		leader := going(t.Context(), a.Guard, "k", slowly(2*time.Second, 1))
		synctest.Wait()
		get(t.Context(), b.Guard, "k", slowly(100*time.Millisecond, 2)).is(t, 2, 100*time.Millisecond)
		(<-leader).is(t, 1, 2*time.Second)
	})
}

func TestNotFoundIsRememberedWithoutStaleWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		o := stampede.Options{Policy: stampede.Policy{NotFoundTTL: 3 * time.Second, Beta: -1}}
		a, b := newPod(t, store, o), newPod(t, store, o)
		src := &source{fails: stampede.ErrNotFound}
		get(t.Context(), a.Guard, "k", src.load).fails(t, stampede.ErrNotFound, 0)
		time.Sleep(3*time.Second - time.Millisecond)
		get(t.Context(), b.Guard, "k", never(t)).fails(t, stampede.ErrNotFound, 0)
		if _, ok, err := b.Peek(t.Context(), "k"); ok || err != stampede.ErrNotFound {
			t.Errorf("Peek: %v, %v", ok, err)
		}
		time.Sleep(time.Millisecond)
		get(t.Context(), b.Guard, "k", value(1)).is(t, 1, 0)
	})
}
