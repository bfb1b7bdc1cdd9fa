package stampede_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/stampedetest"
)

type fetch = func(context.Context, *stampede.Load[int]) (int, error)

// say makes a loader that says something about its value.
func say(v int, what func(*stampede.Load[int])) fetch {
	return func(_ context.Context, l *stampede.Load[int]) (int, error) { what(l); return v, nil }
}

func fetched(t *testing.T, g *stampede.Guard[int], key string, load fetch) stampede.Result[int] {
	t.Helper()
	r, err := g.Fetch(t.Context(), key, load)
	if err != nil {
		t.Errorf("Fetch: %v", err)
	}
	return r
}

func TestLoaderIsToldItsKeyAndWhyItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := stampede.Policy{TTL: time.Minute, Beta: 1000, Jitter: -1, StaleFor: time.Minute, StaleIfError: time.Hour}
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{Policy: policy})
		want := func(reason stampede.Reason, leased bool) fetch {
			return func(_ context.Context, l *stampede.Load[int]) (int, error) {
				if l.Key() != "k" || l.Reason() != reason || l.Leased() != leased {
					t.Errorf("key %q, reason %v, leased %v; want reason %v, leased %v", l.Key(), l.Reason(), l.Leased(), reason, leased)
				}
				<-time.After(time.Second)
				return 1, nil
			}
		}
		settle := func() { time.Sleep(time.Second); synctest.Wait() }
		fetched(t, p.Guard, "k", want(stampede.Missing, true))
		time.Sleep(time.Minute - time.Millisecond)
		fetched(t, p.Guard, "k", want(stampede.NearlyStale, true))
		settle()
		time.Sleep(policy.TTL)
		fetched(t, p.Guard, "k", want(stampede.WentStale, true))
		settle()
		time.Sleep(policy.TTL + policy.StaleFor)
		fetched(t, p.Guard, "k", want(stampede.WentStale, true))
		p.net.Down(nil)
		fetched(t, p.Guard, "k", want(stampede.Missing, false))
		p.net.Up()
		if n := p.Stats().Loads; n != 5 {
			t.Errorf("%d loads, want 5", n)
		}
	})
}

func TestPreviousIsWhatTheWinningElectionReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{Policy: steady})
		previous := func(want int, wantOK bool) fetch {
			return func(_ context.Context, l *stampede.Load[int]) (int, error) {
				if v, ok := l.Previous(); v != want || ok != wantOK {
					t.Errorf("Previous = %d, %v, want %d, %v", v, ok, want, wantOK)
				}
				return want + 1, nil
			}
		}
		fetched(t, p.Guard, "k", previous(0, false))
		time.Sleep(steady.TTL)
		// What the caller read is replaced before its election.
		var gate stampedetest.Gate
		p.net.Next(stampedetest.StepElect, stampedetest.Fault{Gate: &gate})
		fetched(t, p.Guard, "k", previous(7, true))
		<-gate.Reached()
		must(t, p.Set(t.Context(), "k", 7))
		must(t, p.Expire(t.Context(), "k"))
		gate.Open()
		synctest.Wait()
		get(t.Context(), p.Guard, "k", never(t)).is(t, 8, 0)
		time.Sleep(steady.TTL + steady.StaleFor)
		fetched(t, p.Guard, "k", previous(8, true)) // kept for StaleIfError: a loader may still ask "if changed since"
		must(t, p.Delete(t.Context(), "k"))
		fetched(t, p.Guard, "k", previous(0, false))
		must(t, p.Delete(t.Context(), "k"))
		get(t.Context(), p.Guard, "k", func(context.Context) (int, error) { return 0, stampede.ErrNotFound })
		must(t, p.Refresh(t.Context(), "k", value(1)))
		synctest.Wait()
		get(t.Context(), p.Guard, "k", never(t)).is(t, 1, 0)
	})
}

func TestPreviousOfARememberedNotFoundIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard[int](t, new(stampede.MemoryStore), stampede.Options{Policy: stampede.Policy{NotFoundTTL: time.Hour, Beta: 1000}})
		_, err := g.Fetch(t.Context(), "k", func(_ context.Context, l *stampede.Load[int]) (int, error) {
			<-time.After(time.Second)
			return 5, stampede.ErrNotFound
		})
		if err != stampede.ErrNotFound {
			t.Error(err)
		}
		time.Sleep(time.Hour - time.Millisecond)
		ran := false
		_, err = g.Fetch(t.Context(), "k", func(_ context.Context, l *stampede.Load[int]) (int, error) {
			ran = true
			if v, ok := l.Previous(); ok || v != 0 {
				t.Errorf("Previous = %d, %v", v, ok)
			}
			return l.NotModified()
		})
		synctest.Wait()
		if err != stampede.ErrNotFound || !ran {
			t.Errorf("%v, an early load ran: %v", err, ran)
		}
	})
}

func TestNotModifiedStoresThePreviousValueAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(bytesStore), stampede.Options{Policy: steady})
		same := func(_ context.Context, l *stampede.Load[int]) (int, error) { return l.NotModified() }
		if _, err := p.Fetch(t.Context(), "k", same); !errors.Is(err, stampede.ErrNoPrevious) {
			t.Errorf("without a previous value: %v", err)
		}
		time.Sleep(time.Second)
		must(t, p.Set(t.Context(), "k", 1))
		for range 5 {
			time.Sleep(steady.TTL)
			if r := fetched(t, p.Guard, "k", same); r.Value != 1 || r.Freshness != stampede.Stale {
				t.Errorf("%+v", r)
			}
			synctest.Wait()
			if r := fetched(t, p.Guard, "k", same); r.Value != 1 || r.Freshness != stampede.Fresh || r.FreshFor != steady.TTL {
				t.Errorf("%+v", r)
			}
		}
	})
}

func TestLoaderSetsTheLifeOfItsValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard[int](t, new(stampede.MemoryStore), stampede.Options{Policy: stampede.Policy{Jitter: 1, Beta: -1, ErrorBackoff: -1}})
		fetched(t, g, "k", say(1, func(l *stampede.Load[int]) {
			l.TTL(time.Hour) // exactly: without jitter
			l.StaleFor(2 * time.Hour)
			l.StaleIfError(4 * time.Hour)
		}))
		state := func(after time.Duration, want stampede.Freshness) {
			t.Helper()
			time.Sleep(after)
			r := fetched(t, g, "k", func(context.Context, *stampede.Load[int]) (int, error) { return 0, errBoom })
			if r.Value != 1 || r.Freshness != want {
				t.Errorf("%+v, want freshness %v", r, want)
			}
			synctest.Wait()
		}
		state(time.Hour-time.Millisecond, stampede.Fresh)
		state(time.Millisecond, stampede.Stale)
		state(2*time.Hour-time.Millisecond, stampede.Stale)
		state(time.Millisecond, stampede.OnlyIfError)
		state(2*time.Hour-time.Millisecond, stampede.OnlyIfError)
		time.Sleep(time.Millisecond)
		get(t.Context(), g, "k", func(context.Context) (int, error) { return 0, errBoom }).fails(t, errBoom, 0)

		fetched(t, g, "short", say(1, func(l *stampede.Load[int]) { l.TTL(time.Second); l.StaleFor(-1); l.StaleIfError(0) }))
		time.Sleep(time.Second)
		get(t.Context(), g, "short", value(2)).is(t, 2, 0)
	})
}

func TestExtremeLivesOfAValueDoNotHurt(t *testing.T) {
	for name, d := range map[string]time.Duration{"longest": 1<<63 - 1, "shortest": 1, "less than a millisecond": 999 * time.Microsecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := new(bytesStore)
				p, reader := newPod(t, store, stampede.Options{}), newPod(t, store, stampede.Options{})
				lives := say(1, func(l *stampede.Load[int]) { l.TTL(d); l.StaleFor(1<<63 - 1); l.StaleIfError(1<<63 - 1) })
				for range 3 {
					if r := fetched(t, p.Guard, "k", lives); r.Value != 1 {
						t.Errorf("%+v", r)
					}
					time.Sleep(10 * time.Millisecond)
				}
				must(t, p.Expire(t.Context(), "k"))
				fetched(t, reader.Guard, "k", lives)
				p.net.Down(nil)
				reader.net.Down(nil)
				for range 3 {
					for _, p := range []pod{p, reader} {
						if r := fetched(t, p.Guard, "k", lives); r.Value != 1 {
							t.Errorf("%+v", r)
						}
					}
					time.Sleep(10 * time.Millisecond)
				}
			})
		})
	}
}

func TestValuesThatAreNotToBeStoredAreNot(t *testing.T) {
	for name, what := range map[string]func(*stampede.Load[int]){
		"DoNotStore":     func(l *stampede.Load[int]) { l.DoNotStore() },
		"DoNotShare":     func(l *stampede.Load[int]) { l.DoNotShare() },
		"Pass":           func(l *stampede.Load[int]) { l.Pass(time.Millisecond) },
		"ReleaseWaiters": func(l *stampede.Load[int]) { l.ReleaseWaiters(); l.ReleaseWaiters() },
		"TTL zero":       func(l *stampede.Load[int]) { l.TTL(0); l.TTL(time.Hour) },
		"TTL negative":   func(l *stampede.Load[int]) { l.TTL(-time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPod(t, new(stampede.MemoryStore), stampede.Options{Policy: steady})
				if r := fetched(t, p.Guard, "k", say(1, what)); r.Value != 1 || r.Stored || r.From != stampede.FromLoad {
					t.Errorf("%+v", r)
				}
				synctest.Wait()
				if r, ok, err := p.Peek(t.Context(), "k"); ok || err != nil {
					t.Errorf("stored: %+v, %v", r, err)
				}
				time.Sleep(time.Second)
				get(t.Context(), p.Guard, "k", value(2)).is(t, 2, 0)
				get(t.Context(), p.Guard, "k", never(t)).is(t, 2, 0)
			})
		})
	}
}

func TestPassIsAnsweredForAsLongAsItWasSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{})
		fetched(t, p.Guard, "k", say(1, func(l *stampede.Load[int]) { l.Pass(time.Minute) }))
		time.Sleep(59 * time.Second)
		for i := range 3 { // nobody is elected, so nothing is stored
			get(t.Context(), p.Guard, "k", value(i)).is(t, i, 0)
		}
		time.Sleep(time.Second)
		get(t.Context(), p.Guard, "k", value(7)).is(t, 7, 0)
		get(t.Context(), p.Guard, "k", never(t)).is(t, 7, 0)
	})
}

func TestWhatALoaderSaysAfterItsEndHasNoEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{LoadTimeout: time.Second})
		var kept *stampede.Load[int]
		fetched(t, p.Guard, "k", say(1, func(l *stampede.Load[int]) { kept = l }))
		late := func() {
			kept.TTL(0)
			kept.DoNotStore()
			kept.Pass(time.Hour)
			kept.ReleaseWaiters()
		}
		late()
		get(t.Context(), p.Guard, "k", never(t)).is(t, 1, 0)
		_, err := p.Fetch(t.Context(), "slow", func(_ context.Context, l *stampede.Load[int]) (int, error) {
			<-time.After(time.Minute)
			kept = l
			late()
			return 1, nil
		})
		if !errors.Is(err, stampede.ErrLoadTimeout) {
			t.Error(err)
		}
		time.Sleep(time.Second)
		loading := going(t.Context(), p.Guard, "slow", slowly(500*time.Millisecond, 2))
		(<-loading).is(t, 2, 500*time.Millisecond)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := p.net.Calls(stampedetest.StepRelease); n != 0 {
			t.Errorf("%d releases by loads that had ended", n)
		}
		var ended *stampede.Load[int]
		_, _ = p.Fetch(t.Context(), "exits", func(_ context.Context, l *stampede.Load[int]) (int, error) { ended = l; panic("out") })
		loading = going(t.Context(), p.Guard, "exits", slowly(500*time.Millisecond, 3))
		synctest.Wait()
		ended.ReleaseWaiters()
		(<-loading).is(t, 3, 500*time.Millisecond)
	})
}

func TestResultSaysWhereAValueIsFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(bytesStore), stampede.Options{Policy: steady})
		load := func(context.Context, *stampede.Load[int]) (int, error) {
			<-time.After(100 * time.Millisecond)
			return 1, nil
		}
		waiter := make(chan stampede.Result[int])
		go func() { r, _ := p.Fetch(t.Context(), "k", load); waiter <- r }()
		synctest.Wait()
		type result = stampede.Result[int]
		check := func(got, want result) {
			t.Helper()
			if got != want {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		}
		check(fetched(t, p.Guard, "k", load), result{Value: 1, From: stampede.FromLoad, Freshness: stampede.Fresh, FreshFor: time.Second, Shared: true, Stored: true})
		check(<-waiter, result{Value: 1, From: stampede.FromLoad, Freshness: stampede.Fresh, FreshFor: time.Second, Stored: true})
		time.Sleep(300 * time.Millisecond)
		check(fetched(t, p.Guard, "k", load), result{Value: 1, From: stampede.FromStore, Freshness: stampede.Fresh,
			FreshFor: 700 * time.Millisecond, Age: 300 * time.Millisecond, Shared: true, Stored: true})
		time.Sleep(time.Second)
		p.net.Down(nil)
		check(fetched(t, p.Guard, "k", load), result{Value: 1, From: stampede.FromCopy, Freshness: stampede.Stale,
			FreshFor: -300 * time.Millisecond, Age: 1300 * time.Millisecond, Shared: true})
		p.net.Up()
		check(fetched(t, p.Guard, "k", load), result{Value: 1, From: stampede.FromStore, Freshness: stampede.Stale,
			FreshFor: -300 * time.Millisecond, Age: 1300 * time.Millisecond, Shared: true, Stored: true, Behind: true})
		time.Sleep(time.Second)
	})
}

func TestResultSaysWhetherTheCallHasStartedSomethingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(bytesStore), stampede.Options{Policy: steady, Local: stampede.Local{TTL: 200 * time.Millisecond}})
		load := func(context.Context, *stampede.Load[int]) (int, error) {
			<-time.After(500 * time.Millisecond)
			return 1, nil
		}
		behind := func(want bool, from stampede.Source) {
			t.Helper()
			if r := fetched(t, p.Guard, "k", load); r.Behind != want || r.From != from {
				t.Errorf("%+v, want Behind %v from %v", r, want, from)
			}
		}
		behind(false, stampede.FromLoad)
		behind(false, stampede.FromLocal)
		time.Sleep(180 * time.Millisecond)
		behind(true, stampede.FromLocal) // soon to be asked for again
		behind(false, stampede.FromLocal)
		time.Sleep(steady.TTL)
		behind(true, stampede.FromStore)
		behind(false, stampede.FromLocal)
		time.Sleep(time.Second)
	})
}

func TestResultSaysThatALoadGoesOnOfWhichTheCallHasNotWaitedForTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, o := new(stampede.MemoryStore), stampede.Options{Policy: steady, SoftTimeout: 200 * time.Millisecond}
		p, other := newPod(t, store, o), newPod(t, store, o)
		load := func(ctx context.Context, l *stampede.Load[int]) (int, error) {
			l.DoNotShare()
			<-time.After(500 * time.Millisecond)
			return 1, nil
		}
		fetch := func() <-chan stampede.Result[int] {
			c := make(chan stampede.Result[int], 1)
			go func() { c <- fetched(t, p.Guard, "k", load) }()
			synctest.Wait()
			return c
		}
		must(t, p.Set(t.Context(), "k", 7))
		time.Sleep(steady.TTL + steady.StaleFor)
		starter, joiner := fetch(), fetch()
		if r := <-starter; r.Value != 7 || !r.Behind {
			t.Errorf("who has started the load got %+v, want Behind", r)
		}
		if r := <-joiner; r.Value != 7 || r.Behind {
			t.Errorf("who has joined it got %+v, want not Behind", r)
		}
		time.Sleep(time.Second)
		must(t, p.Delete(t.Context(), "k"))
		starter = fetch()
		must(t, other.Set(t.Context(), "k", 8)) // seen when the lease is to be renewed
		if r := <-starter; r.Value != 8 || !r.Behind {
			t.Errorf("who was told of another value got %+v, want Behind", r)
		}
		time.Sleep(time.Second)
	})
}
