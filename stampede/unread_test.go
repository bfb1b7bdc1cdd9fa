package stampede_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/stampedetest"
)

// Callers who stand for election without having read. What holds for who has read holds for them.

// guessing is a pod whose callers do so: most of what it had no copy of was not stored either.
func guessing(t *testing.T, store stampede.Store, o stampede.Options) pod {
	t.Helper()
	p := newPod(t, store, o)
	for i := range 8 {
		get(t.Context(), p.Guard, fmt.Sprint("warm ", i), value(1)).within(t, 1, time.Second)
	}
	return p
}

// steps returns how many steps of each kind a call took that may find out what is stored.
func (p pod) steps(call func()) (reads, elections int) {
	r, e := p.net.Calls(stampedetest.StepRead), p.net.Calls(stampedetest.StepElect)
	call()
	return p.net.Calls(stampedetest.StepRead) - r, p.net.Calls(stampedetest.StepElect) - e
}

func (p pod) takes(t *testing.T, reads, elections int, call func()) {
	t.Helper()
	if r, e := p.steps(call); r != reads || e != elections {
		t.Errorf("%d reads and %d elections, want %d and %d", r, e, reads, elections)
	}
}

func TestCallerThatLikelyHasToLoadDoesNotReadFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(bytesStore)
		p := guessing(t, store, stampede.Options{Policy: steady})
		before := p.Stats()
		p.takes(t, 0, 1, func() { get(t.Context(), p.Guard, "k", value(1)).is(t, 1, 0) })
		if s := p.Stats(); s.Misses != before.Misses+1 || s.Hits != before.Hits || s.Again != before.Again {
			t.Errorf("%+v after %+v: a cold call is one miss", s, before)
		}
		time.Sleep(steady.TTL)
		before = p.Stats()
		p.takes(t, 0, 1, func() {
			r, err := p.Fetch(t.Context(), "k", say(2, func(l *stampede.Load[int]) {
				if v, ok := l.Previous(); l.Reason() != stampede.WentStale || v != 1 || !ok {
					t.Errorf("reason %v, previous value %d, %v", l.Reason(), v, ok)
				}
			}))
			must(t, err)
			if r.Value != 1 || r.From != stampede.FromStore || r.Freshness != stampede.Stale || !r.Behind || !r.Shared || !r.Stored || r.Age != steady.TTL {
				t.Errorf("%+v", r)
			}
			synctest.Wait()
		})
		if s := p.Stats(); s.Misses != before.Misses || s.Stale != before.Stale+1 || s.Waited != before.Waited || s.Again != before.Again {
			t.Errorf("%+v after %+v: a stale call is one", s, before)
		}
		p.takes(t, 1, 0, func() { get(t.Context(), p.Guard, "k", never(t)).is(t, 2, 0) })
	})
}

func TestPodThatHasJustStartedReadsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(bytesStore), stampede.Options{Policy: steady})
		p.takes(t, 1, 1, func() { get(t.Context(), p.Guard, "k", value(1)).is(t, 1, 0) })
	})
}

func TestGuessThatProvesWrongIsAHit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(bytesStore)
		p, other := guessing(t, store, stampede.Options{Policy: steady}), newPod(t, store, stampede.Options{Policy: steady})
		must(t, other.Set(t.Context(), "fresh", 1))
		must(t, other.Set(t.Context(), "stale", 1))
		must(t, other.Expire(t.Context(), "stale"))
		get(t.Context(), other.Guard, "absent", func(context.Context) (int, error) { return 0, stampede.ErrNotFound }).fails(t, stampede.ErrNotFound, 0)
		get(t.Context(), other.Guard, "stale", slowly(10*time.Second, 2)).is(t, 1, 0) // it loads behind
		synctest.Wait()
		before := p.Stats()
		for key, fr := range map[string]stampede.Freshness{"fresh": stampede.Fresh, "stale": stampede.Stale} {
			p.takes(t, 0, 1, func() {
				r, err := p.Fetch(t.Context(), key, say(9, func(*stampede.Load[int]) { t.Error("a load ran") }))
				if err != nil || r.Value != 1 || r.From != stampede.FromStore || r.Freshness != fr || r.Behind || !r.Shared || !r.Stored {
					t.Errorf("%+v, %v", r, err)
				}
			})
		}
		p.takes(t, 0, 1, func() { get(t.Context(), p.Guard, "absent", never(t)).fails(t, stampede.ErrNotFound, 0) })
		if s := p.Stats(); s.Hits != before.Hits+2 || s.Stale != before.Stale+1 || s.Misses != before.Misses || s.Waited != before.Waited || s.Again != before.Again {
			t.Errorf("%+v after %+v", s, before)
		}
	})
}

// A guess costs the store more than a read: it is given up where it is mostly wrong, and comes back where it is right.
func TestGuessesAreMadeWhereTheyMostlyProveRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(bytesStore)
		p, other := guessing(t, store, stampede.Options{Policy: steady}), newPod(t, store, stampede.Options{Policy: steady})
		guessed := func(prefix string, n int) (count int) {
			for i := range n {
				_, e := p.steps(func() { get(t.Context(), p.Guard, fmt.Sprint(prefix, i), value(1)).is(t, 1, 0) })
				count += e
			}
			return count
		}
		for i := range 200 {
			must(t, other.Set(t.Context(), fmt.Sprint("there ", i), 1))
		}
		if n := guessed("there ", 200); n == 0 || n > 30 {
			t.Errorf("%d elections for 200 values that were there", n)
		}
		if reads, _ := p.steps(func() { guessed("gone ", 20) }); reads == 0 || reads > 10 {
			t.Errorf("%d reads for 20 values that were not there", reads)
		}
		// The same for copies that went stale, which others have loaded anew by then.
		for i := range 200 {
			get(t.Context(), p.Guard, fmt.Sprint("there ", i), never(t)).is(t, 1, 0)
		}
		p.net.Mute(true)
		time.Sleep(steady.TTL)
		for i := range 200 {
			must(t, other.Set(t.Context(), fmt.Sprint("there ", i), 1))
		}
		if n := guessed("there ", 200); n == 0 || n > 30 {
			t.Errorf("%d elections for 200 values that were loaded anew", n)
		}
		time.Sleep(steady.TTL)
		if reads, _ := p.steps(func() { guessed("there ", 20); synctest.Wait() }); reads == 0 || reads > 10 {
			t.Errorf("%d reads for 20 values that went stale", reads)
		}
	})
}

// What a caller waits for, where that matters, it knows beforehand.
func TestCallersReadFirstWhereItMattersWhetherTheyWait(t *testing.T) {
	for name, o := range map[string]stampede.Options{
		"SoftTimeout": {SoftTimeout: time.Second}, "MaxWaiters": {MaxWaiters: 1}, "MaxLoads": {MaxLoads: 1}, "FleetLoads": {FleetLoads: 1},
		"Tags": {Tags: true}, "no copies": {Local: stampede.Local{Entries: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o.Policy = steady
				p := guessing(t, new(bytesStore), o)
				reads, _ := p.steps(func() {
					get(t.Context(), p.Guard, "k", value(1)).within(t, 1, time.Second)
					time.Sleep(steady.TTL)
					get(t.Context(), p.Guard, "k", value(2)).within(t, 1, time.Second)
				})
				if reads < 2 { // more where seats are waited for
					t.Errorf("%d reads", reads)
				}
			})
		})
	}
}

// P2 holds for who joins a caller that has not read: something stale may be there after all.
func TestWhoJoinsAGuessDoesNotWaitWhereSomethingStaleIsThere(t *testing.T) {
	for name, lease := range map[string]bool{"and loads": false, "and another pod loads": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := new(bytesStore)
				p, other := guessing(t, store, stampede.Options{Policy: steady}), newPod(t, store, stampede.Options{Policy: steady})
				must(t, other.Set(t.Context(), "k", 1))
				must(t, other.Expire(t.Context(), "k"))
				if lease {
					get(t.Context(), other.Guard, "k", slowly(10*time.Second, 2)).is(t, 1, 0)
					synctest.Wait()
				}
				var reply stampedetest.Gate
				p.net.Next(stampedetest.StepElect, stampedetest.Fault{Delay: tick, Reply: &reply})
				starter := going(t.Context(), p.Guard, "k", slowly(10*time.Second, 2))
				synctest.Wait()
				early := going(t.Context(), p.Guard, "k", never(t))
				<-reply.Reached()
				late := going(t.Context(), p.Guard, "k", never(t))
				synctest.Wait()
				reply.Open()
				(<-starter).is(t, 1, tick)
				(<-early).is(t, 1, tick)
				(<-late).is(t, 1, 0)
			})
		})
	}
}

func TestWhoJoinsAGuessIsNotServedWhatWasDeletedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(bytesStore)
		p, other := guessing(t, store, stampede.Options{Policy: steady}), newPod(t, store, stampede.Options{Policy: steady})
		must(t, other.Set(t.Context(), "k", 1))
		p.net.Mute(true) // it hears of nothing
		var reply stampedetest.Gate
		p.net.Next(stampedetest.StepElect, stampedetest.Fault{Delay: tick, Reply: &reply})
		early := going(t.Context(), p.Guard, "k", never(t))
		<-reply.Reached() // the election has seen 1
		must(t, other.Delete(t.Context(), "k"))
		late := going(t.Context(), p.Guard, "k", value(2))
		synctest.Wait()
		reply.Open()
		(<-early).is(t, 1, tick)
		(<-late).is(t, 2, 0)
	})
}

// P5: what an election that nobody answers costs is on the budget of all who wait for it.
func TestGuessesAreServedInTimeWhateverTheStoreDoes(t *testing.T) {
	for name, trouble := range troubles {
		for _, step := range []stampedetest.Step{allSteps, stampedetest.StepRead, stampedetest.StepElect, stampedetest.StepCommit,
			stampedetest.StepRenew, stampedetest.StepFail, stampedetest.StepRelease} {
			in := func(what string, body func(t *testing.T, p pod)) {
				t.Run(fmt.Sprintf("%s/%s/%s", name, step, what), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						p := guessing(t, new(bytesStore), stampede.Options{Policy: steady, Lease: 10 * time.Second})
						get(t.Context(), p.Guard, "stale", value(1)).is(t, 1, 0)
						time.Sleep(steady.StaleFor / 2)
						get(t.Context(), p.Guard, "staler", value(1)).is(t, 1, 0)
						time.Sleep(steady.TTL)
						must(t, p.Set(t.Context(), "fresh", 1)) // there is no copy
						trouble(p.net, step)
						body(t, p)
						time.Sleep(time.Hour)
					})
				})
			}
			in("cold", func(t *testing.T, p pod) {
				src := &source{takes: 100 * time.Millisecond}
				var answers []<-chan answer
				for i := range 8 {
					answers = append(answers, going(t.Context(), p.Guard, "k", src.load))
					if i == 4 {
						time.Sleep(tick)
					}
				}
				for _, a := range answers {
					if got := <-a; got.err != nil || got.v < 1 || got.took > storeBudget+2*src.takes {
						t.Errorf("Get = %d, %v after %v", got.v, got.err, got.took)
					}
				}
				if n, top := src.loads(); n > 2 || top != 1 {
					t.Errorf("%d loads, %d at once", n, top)
				}
			})
			in("stale", func(t *testing.T, p pod) {
				for _, key := range []string{"stale", "staler"} {
					answers := []<-chan answer{going(t.Context(), p.Guard, key, value(2)), going(t.Context(), p.Guard, key, value(2))}
					for _, a := range answers {
						if got := <-a; got.err != nil || got.took > copyBudget || got.v != 1 && got.v != 2 {
							t.Errorf("Get = %d, %v after %v", got.v, got.err, got.took)
						}
					}
				}
			})
			in("failing", func(t *testing.T, p pod) {
				src := &source{takes: 10 * time.Millisecond, fails: errBoom}
				a, b := going(t.Context(), p.Guard, "k", src.load), going(t.Context(), p.Guard, "k", src.load)
				for _, got := range []answer{<-a, <-b} {
					if got.err != errBoom || got.took > storeBudget+2*src.takes {
						t.Errorf("Get returned %v after %v, want the loader's own error", got.err, got.took)
					}
				}
			})
			in("fresh", func(t *testing.T, p pod) {
				if got := get(t.Context(), p.Guard, "fresh", value(2)); got.err != nil || got.v < 1 || got.took > storeBudget {
					t.Errorf("Get = %d, %v after %v", got.v, got.err, got.took)
				}
			})
		}
	}
}

// An election that was not answered may have been held all the same: its lease is nobody's to wait for.
func TestCallerDoesNotFollowTheLeaseOfItsOwnElectionThatWasNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := guessing(t, new(bytesStore), stampede.Options{Policy: steady, Lease: 10 * time.Second})
		p.net.Next(stampedetest.StepElect, stampedetest.Fault{Lost: errServer, Ghost: true})
		a, b := going(t.Context(), p.Guard, "k", slowly(tick, 1)), going(t.Context(), p.Guard, "k", slowly(tick, 1))
		(<-a).within(t, 1, 2*tick)
		(<-b).within(t, 1, 2*tick)
	})
}

// The election is given a half of the budget: a read may be answered where it is not.
func TestValueIsReadWhereAnElectionIsNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(bytesStore)
		p, other := guessing(t, store, stampede.Options{Policy: steady}), newPod(t, store, stampede.Options{Policy: steady})
		for i := range 20 {
			must(t, other.Set(t.Context(), fmt.Sprint("k", i), 1))
		}
		inflict(p.net, stampedetest.StepElect, stampedetest.Fault{Delay: time.Hour})
		get(t.Context(), p.Guard, "k0", never(t)).is(t, 1, storeBudget/2)
		for i := 1; i < 20; i++ { // and it is not tried again
			get(t.Context(), p.Guard, fmt.Sprint("k", i), never(t)).is(t, 1, 0)
		}
	})
}

func TestWhoJoinsAGuessHasOneBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := guessing(t, new(bytesStore), stampede.Options{Policy: steady})
		p.net.Hang()
		starter := going(t.Context(), p.Guard, "k", slowly(tick, 1))
		synctest.Wait()
		joined := going(t.Context(), p.Guard, "k", slowly(tick, 1))
		time.Sleep(tick)
		late := going(t.Context(), p.Guard, "k", slowly(tick, 1))
		(<-starter).within(t, 1, storeBudget+2*tick)
		(<-joined).within(t, 1, storeBudget+2*tick)
		(<-late).within(t, 1, storeBudget+2*tick)
		p.net.Up()
	})
}

// What is good enough if a load fails is found though nobody has looked for it before.
func TestGuessIsServedWithWhatIsGoodEnoughIfALoadFails(t *testing.T) {
	for name, backoff := range map[string]time.Duration{"back-off": time.Minute, "no back-off": -1} {
		for _, copied := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, copy %v", name, copied), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := new(bytesStore)
					o := stampede.Options{Policy: steady}
					o.Policy.ErrorBackoff = backoff
					o.Policy.MaxErrorBackoff = -1
					p, other := guessing(t, store, o), newPod(t, store, o)
					get(t.Context(), other.Guard, "k", value(1)).is(t, 1, 0)
					if copied {
						get(t.Context(), p.Guard, "k", never(t)).is(t, 1, 0)
					}
					time.Sleep(steady.TTL + steady.StaleFor)
					before := p.Stats()
					p.net.Next(stampedetest.StepElect, stampedetest.Fault{Delay: tick}) // the others join meanwhile
					var answers []<-chan answer
					src := &source{takes: tick, fails: errBoom}
					for range 3 {
						answers = append(answers, going(t.Context(), p.Guard, "k", src.load))
						synctest.Wait()
					}
					for _, a := range answers {
						(<-a).within(t, 1, 3*tick)
					}
					get(t.Context(), p.Guard, "k", src.load).within(t, 1, tick)
					s := p.Stats()
					if n := s.IfError - before.IfError; n != 4 || s.Misses-before.Misses != 4 || s.Hits != before.Hits || s.Stale != before.Stale {
						t.Errorf("%+v after %+v: 4 calls are misses that were served because loads fail", s, before)
					}
					if n, top := src.loads(); top != 1 || backoff > 0 && n != 1 || n > 4 {
						t.Errorf("%d loads, %d at once", n, top)
					}
				})
			})
		}
	}
}

func TestGuessGetsTheErrorOfItsLoadWhereThereIsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := guessing(t, new(bytesStore), stampede.Options{Policy: steady})
		src := &source{takes: tick, fails: errBoom}
		p.takes(t, 0, 1, func() {
			a := going(t.Context(), p.Guard, "k", src.load)
			synctest.Wait()
			b := going(t.Context(), p.Guard, "k", src.load)
			(<-a).fails(t, errBoom, tick)
			(<-b).fails(t, errBoom, tick)
		})
		if n, _ := src.loads(); n != 1 {
			t.Errorf("%d loads", n)
		}
	})
}

// Loads tell their reason and what was there, also those without a lease.
func TestGuessesLoadKnowsWhyItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(bytesStore)
		o := stampede.Options{Policy: steady, WaitTimeout: 2 * tick}
		p, other := guessing(t, store, o), newPod(t, store, o)
		get(t.Context(), other.Guard, "k", value(1)).is(t, 1, 0)
		time.Sleep(steady.TTL + steady.StaleFor)
		loading := going(t.Context(), other.Guard, "k", slowly(10*tick, 2))
		synctest.Wait()
		reason := stampede.Reason(99)
		r, err := p.Fetch(t.Context(), "k", say(3, func(l *stampede.Load[int]) { reason = l.Reason() }))
		if err != nil || r.Value != 3 || reason != stampede.WentStale {
			t.Errorf("%+v, %v; the load's reason is %v", r, err, reason)
		}
		<-loading
	})
}

// Who joins late has waited for less: its WaitTimeout is its own.
func TestWhoJoinsAGuessWaitsForItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(bytesStore)
		o := stampede.Options{Policy: steady, WaitTimeout: 4 * tick, OnWaitTimeout: stampede.FailWait}
		p, other := guessing(t, store, o), newPod(t, store, o)
		get(t.Context(), other.Guard, "k", value(1)).is(t, 1, 0)
		time.Sleep(steady.TTL + steady.StaleFor + steady.StaleIfError)
		get(t.Context(), other.Guard, "kept", value(1)).is(t, 1, 0)
		time.Sleep(steady.TTL + steady.StaleFor)
		for key, ends := range map[string]func(answer){
			"k":    func(a answer) { a.fails(t, stampede.ErrWaitTimeout, 4*tick) },
			"kept": func(a answer) { a.is(t, 1, 4*tick) },
		} {
			loading := going(t.Context(), other.Guard, key, slowly(20*tick, 2))
			synctest.Wait()
			p.net.Next(stampedetest.StepElect, stampedetest.Fault{Delay: 2 * tick})
			first := going(t.Context(), p.Guard, key, never(t))
			time.Sleep(tick)
			second := going(t.Context(), p.Guard, key, never(t))
			ends(<-first)
			ends(<-second)
			<-loading
		}
	})
}

func TestWhoJoinsAGuessIsLetGoByItsLoad(t *testing.T) {
	for name, kept := range map[string]bool{"nothing is there": false, "something for when loads fail": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := new(bytesStore)
				p, other := guessing(t, store, stampede.Options{Policy: steady}), newPod(t, store, stampede.Options{Policy: steady})
				if kept {
					get(t.Context(), other.Guard, "k", value(1)).is(t, 1, 0)
					time.Sleep(steady.TTL + steady.StaleFor)
				}
				p.net.Next(stampedetest.StepElect, stampedetest.Fault{Delay: tick})
				starter := fetching(t, p.Guard, "k", func(_ context.Context, l *stampede.Load[int]) (int, error) {
					l.ReleaseWaiters()
					<-time.After(time.Second)
					return 7, nil
				})
				synctest.Wait()
				joined := going(t.Context(), p.Guard, "k", value(2))
				(<-joined).is(t, 2, tick)
				if r := <-starter; r.Value != 7 {
					t.Errorf("%+v", r)
				}
			})
		})
	}
}

func TestPrivateValueOfAGuessIsForItsCallerAlone(t *testing.T) {
	for name, kept := range map[string]bool{"nothing is there": false, "something for when loads fail": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := new(bytesStore)
				p, other := guessing(t, store, stampede.Options{Policy: steady}), newPod(t, store, stampede.Options{Policy: steady})
				if kept {
					get(t.Context(), other.Guard, "k", value(1)).is(t, 1, 0)
					time.Sleep(steady.TTL + steady.StaleFor)
				}
				var all []<-chan stampede.Result[int]
				for i := range 4 {
					all = append(all, fetching(t, p.Guard, "k", private(tick, 10+i)))
					synctest.Wait()
				}
				begun := time.Now()
				for i, c := range all {
					if r := <-c; r.Value != 10+i {
						t.Errorf("caller %d got %+v", i, r)
					}
				}
				if took := time.Since(begun); took > 2*tick {
					t.Errorf("they took %v: one by one", took)
				}
			})
		})
	}
}

// A copy of what an election has found gone is no good any more, whoever removed it.
func TestElectionWithoutAReadForgetsTheCopyOfWhatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(bytesStore)
		p, other := newPod(t, store, stampede.Options{Policy: steady}), newPod(t, store, stampede.Options{Policy: steady})
		get(t.Context(), p.Guard, "k", value(1)).is(t, 1, 0)
		time.Sleep(steady.TTL)
		p.net.Mute(true)
		must(t, other.Delete(t.Context(), "k"))
		p.takes(t, 0, 1, func() {
			get(t.Context(), p.Guard, "k", func(context.Context) (int, error) { return 0, errBoom }).fails(t, errBoom, 0)
		})
		p.net.Down(nil)
		get(t.Context(), p.Guard, "k", value(2)).is(t, 2, 0)
	})
}

// Who turns out to have no copy has the time of who has none.
func TestGuessThatFindsNothingHasTheWholeBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(bytesStore)
		p, other := newPod(t, store, stampede.Options{Policy: steady}), newPod(t, store, stampede.Options{Policy: steady})
		get(t.Context(), p.Guard, "k", value(1)).is(t, 1, 0)
		time.Sleep(steady.TTL)
		p.net.Mute(true)
		must(t, other.Delete(t.Context(), "k"))
		p.net.Next(stampedetest.StepCommit, stampedetest.Fault{Delay: 2 * copyBudget})
		src := &source{takes: tick}
		var first, late <-chan answer
		p.takes(t, 0, 1, func() { // late joins
			first = going(t.Context(), p.Guard, "k", src.load)
			time.Sleep(tick / 2)
			late = going(t.Context(), p.Guard, "k", src.load)
			(<-first).is(t, 1, tick+2*copyBudget)
			(<-late).is(t, 1, tick/2+2*copyBudget)
		})
	})
}

func TestClosedGuardServesGuessesWhatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(bytesStore)
		p, other := guessing(t, store, stampede.Options{Policy: steady}), newPod(t, store, stampede.Options{Policy: steady})
		for _, key := range []string{"stale", "kept"} {
			get(t.Context(), p.Guard, key, value(1)).is(t, 1, 0)
			if key == "kept" {
				break
			}
		}
		get(t.Context(), p.Guard, "kept", value(1)).is(t, 1, 0)
		time.Sleep(steady.TTL + steady.StaleFor/2)
		must(t, other.Set(t.Context(), "fresh", 1))
		must(t, p.Close(t.Context()))
		get(t.Context(), p.Guard, "fresh", never(t)).is(t, 1, 0)
		get(t.Context(), p.Guard, "stale", never(t)).is(t, 1, 0)
		get(t.Context(), p.Guard, "nothing", never(t)).fails(t, stampede.ErrClosed, 0)
		time.Sleep(steady.StaleFor)
		get(t.Context(), p.Guard, "kept", never(t)).is(t, 1, 0)
	})
}

func TestCloseDuringAGuess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(bytesStore)
		p := guessing(t, store, stampede.Options{Policy: steady})
		get(t.Context(), p.Guard, "kept", value(1)).is(t, 1, 0)
		time.Sleep(steady.TTL + steady.StaleFor)
		kept := going(t.Context(), p.Guard, "kept", slowly(10*time.Second, 2))
		cold := going(t.Context(), p.Guard, "cold", slowly(10*time.Second, 2))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), tick)
		defer cancel()
		if err := p.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v", err)
		}
		(<-kept).is(t, 1, tick)
		(<-cold).fails(t, stampede.ErrClosed, tick)
		time.Sleep(time.Hour)
	})
}

func TestModeDuringAGuess(t *testing.T) {
	for _, mode := range []stampede.Mode{stampede.ReadOnly, stampede.Bypass} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := new(bytesStore)
				p := guessing(t, store, stampede.Options{Policy: steady})
				get(t.Context(), p.Guard, "stale", value(1)).is(t, 1, 0)
				time.Sleep(steady.TTL)
				p.net.Next(stampedetest.StepElect, stampedetest.Fault{Delay: tick}, stampedetest.Fault{Delay: tick})
				stale := going(t.Context(), p.Guard, "stale", value(2))
				cold := going(t.Context(), p.Guard, "cold", value(2))
				synctest.Wait()
				p.SetMode(mode)
				(<-stale).is(t, 1, tick)
				(<-cold).is(t, 2, tick)
				synctest.Wait()
				p.SetMode(stampede.Normal)
				if _, ok, err := p.Peek(t.Context(), "cold"); ok || err != nil {
					t.Errorf("it was stored: %v, %v", ok, err)
				}
			})
		})
	}
}

func TestCallerLeavesAGuessWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := guessing(t, new(bytesStore), stampede.Options{Policy: steady})
		var gate stampedetest.Gate
		p.net.Next(stampedetest.StepElect, stampedetest.Fault{Gate: &gate})
		ctx, cancel := context.WithCancel(t.Context())
		starter := going(ctx, p.Guard, "k", slowly(tick, 1))
		synctest.Wait()
		ctx2, cancel2 := context.WithTimeout(t.Context(), tick)
		defer cancel2()
		leaves, stays := going(ctx2, p.Guard, "k", never(t)), going(t.Context(), p.Guard, "k", never(t))
		synctest.Wait()
		cancel()
		(<-starter).fails(t, context.Canceled, 0)
		(<-leaves).fails(t, context.DeadlineExceeded, tick)
		gate.Open()
		(<-stays).is(t, 1, 2*tick)
	})
}

func TestGuessReplacesWhatItCannotUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(bytesStore)
		p := guessing(t, store, stampede.Options{Policy: steady})
		strings := newGuard[string](t, store, stampede.Options{Policy: steady})
		must(t, strings.Set(t.Context(), "k", "other"))
		before := p.Stats()
		src := &source{takes: tick}
		a, b := going(t.Context(), p.Guard, "k", src.load), going(t.Context(), p.Guard, "k", src.load)
		(<-a).is(t, 1, tick)
		(<-b).is(t, 1, tick)
		if n, _ := src.loads(); n != 1 {
			t.Errorf("%d loads", n)
		}
		if s := p.Stats(); s.BadEntries == before.BadEntries || s.Hits != before.Hits {
			t.Errorf("%+v after %+v", s, before)
		}
		get(t.Context(), p.Guard, "k", never(t)).is(t, 1, 0)
	})
}

// Each caller has a value of its own where it asked for that, from an election as well.
func TestGuessesCopyOnRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(bytesStore)
		o := stampede.Options{Policy: steady, CopyOnRead: true}
		g, other := newGuard[[]int](t, store, o), newGuard[[]int](t, store, o)
		for i := range 8 {
			_, err := g.Get(t.Context(), fmt.Sprint("warm ", i), value([]int{1}))
			must(t, err)
		}
		must(t, other.Set(t.Context(), "k", []int{1}))
		values := make(chan []int, 4)
		for range 4 {
			go func() {
				v, err := g.Get(t.Context(), "k", value([]int{2}))
				if err != nil {
					t.Error(err)
				}
				v[0]++
				values <- v
			}()
		}
		for range 4 {
			if v := <-values; v[0] != 2 {
				t.Errorf("%v: it is shared", v)
			}
		}
	})
}

// GetMany, Refresh and Peek beside a guess.
func TestGuessBesideOtherCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := guessing(t, new(bytesStore), stampede.Options{Policy: steady})
		p.net.Next(stampedetest.StepElect, stampedetest.Fault{Delay: tick})
		src := &source{takes: tick}
		first := going(t.Context(), p.Guard, "k", src.load)
		synctest.Wait()
		many := goingMany(t.Context(), p.Guard, noMany(t), "k")
		must(t, p.Refresh(t.Context(), "k", never(t)))
		if _, ok, err := p.Peek(t.Context(), "k"); ok || err != nil {
			t.Errorf("Peek: %v, %v", ok, err)
		}
		(<-first).is(t, 1, 2*tick)
		(<-many).within(t, 2*tick, map[string]int{"k": 1})
		if n, _ := src.loads(); n != 1 {
			t.Errorf("%d loads", n)
		}
	})
}

// Changes at each moment of a guess: no later Get returns as fresh what was there before.
func TestChangesDuringAGuess(t *testing.T) {
	for name, change := range changes {
		for _, at := range []string{"before the election", "after the election", "before the commit", "after the commit"} {
			t.Run(name+" "+at, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := new(bytesStore)
					p, other := guessing(t, store, stampede.Options{Policy: steady}), newPod(t, store, stampede.Options{Policy: steady})
					var gate stampedetest.Gate
					switch at {
					case "before the election":
						p.net.Next(stampedetest.StepElect, stampedetest.Fault{Gate: &gate})
					case "after the election":
						p.net.Next(stampedetest.StepElect, stampedetest.Fault{Reply: &gate})
					case "before the commit":
						p.net.Next(stampedetest.StepCommit, stampedetest.Fault{Gate: &gate})
					default:
						p.net.Next(stampedetest.StepCommit, stampedetest.Fault{Reply: &gate})
					}
					first := going(t.Context(), p.Guard, "k", value(1))
					synctest.Wait()
					must(t, change(t.Context(), other.Guard))
					second := going(t.Context(), p.Guard, "k", value(2))
					synctest.Wait()
					gate.Open()
					if a := <-first; a.err != nil || a.v != 1 && (name != "Set" || a.v != 99) {
						t.Errorf("who came before: %+v", a)
					}
					want := map[bool]int{true: 99, false: 2}[name == "Set"]
					if a := <-second; a.err != nil || a.v != want && (name == "Set" || at != "before the election" && at != "after the election" || a.v != 1) &&
						(name != "Expire" || at != "after the commit" || a.v != 1) {
						t.Errorf("who came after: %+v", a)
					}
				})
			})
		}
	}
}
