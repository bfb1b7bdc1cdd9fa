package stampede_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/stampedetest"
)

// P9: delete means delete. Who may get which value: who came before the command was sent that vouches
// for it, or before the load began. Below, "early" comes before that, "late" after.

const tick = 10 * time.Millisecond

func TestElectionVouchesOnlyForWhoCameBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		a, b := newPod(t, store, stampede.Options{}), newPod(t, store, stampede.Options{})
		var reply, read stampedetest.Gate
		a.net.Next(stampedetest.StepRead, stampedetest.Fault{}, stampedetest.Fault{Reply: &read})
		a.net.Next(stampedetest.StepElect, stampedetest.Fault{Delay: tick, Reply: &reply})
		early := going(t.Context(), a.Guard, "k", value(7)) // reads a miss
		synctest.Wait()
		must(t, b.Set(t.Context(), "k", 1))
		<-reply.Reached()                                  // the election has seen 1
		must(t, b.Delete(t.Context(), "k"))                // and 1 is gone
		late := going(t.Context(), a.Guard, "k", value(2)) // joins the flight
		synctest.Wait()
		read.Open()
		synctest.Wait()
		reply.Open()
		(<-early).within(t, 1, tick)
		(<-late).within(t, 2, 0)
	})
}

func TestAcceptedCommitVouchesForWhoCameBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{})
		var before stampedetest.Gate
		p.net.Next(stampedetest.StepCommit, stampedetest.Fault{Reply: &before})
		early := going(t.Context(), p.Guard, "k", slowly(tick, 1))
		time.Sleep(tick / 2) // the load has begun
		joined := going(t.Context(), p.Guard, "k", never(t))
		<-before.Reached() // the commit is done
		must(t, p.Delete(t.Context(), "k"))
		late := going(t.Context(), p.Guard, "k", value(2))
		synctest.Wait()
		before.Open()
		(<-early).is(t, 1, tick)
		(<-joined).is(t, 1, tick/2)
		(<-late).is(t, 2, 0)
	})
}

func TestCommitThatVouchesForNothingServesOnlyWhoCameBeforeTheLoad(t *testing.T) {
	for name, fault := range map[string]stampedetest.Fault{
		"refused":    {EndLease: true},
		"unanswered": {Lost: errServer},
		"unknown":    {Err: errServer},
		"not stored": {Full: errServer},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPod(t, new(stampede.MemoryStore), stampede.Options{Policy: steady})
				p.net.Next(stampedetest.StepCommit, fault)
				var elected stampedetest.Gate
				p.net.Next(stampedetest.StepElect, stampedetest.Fault{Gate: &elected})
				src := &source{takes: tick}
				early := []<-chan answer{going(t.Context(), p.Guard, "k", src.load), going(t.Context(), p.Guard, "k", src.load)}
				synctest.Wait()
				elected.Open()
				time.Sleep(tick / 2)
				var late []<-chan answer
				for range 8 {
					late = append(late, going(t.Context(), p.Guard, "k", src.load))
				}
				for _, a := range early {
					(<-a).is(t, 1, tick)
				}
				for _, a := range late {
					got := <-a
					if name == "unanswered" { // it had been stored
						got.is(t, 1, tick/2)
						continue
					}
					got.is(t, 2, tick+tick/2) // one round more, and not one each
				}
			})
		})
	}
}

func TestWhoAsksAfterADeleteDuringALoadGetsALoadFromAfterIt(t *testing.T) {
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := new(stampede.MemoryStore)
				a, b := newPod(t, store, stampede.Options{Policy: steady}), newPod(t, store, stampede.Options{Policy: steady})
				early := going(t.Context(), a.Guard, "k", slowly(tick, 1))
				synctest.Wait()
				must(t, change(t.Context(), b.Guard))
				want := 2
				if name == "Set" {
					want = 99
				}
				late := []<-chan answer{going(t.Context(), a.Guard, "k", value(2)), going(t.Context(), b.Guard, "k", value(2))}
				(<-early).is(t, 1, tick)
				for _, a := range late {
					(<-a).within(t, want, tick)
				}
			})
		})
	}
}

func TestEndlessDeletesDoNotKeepCallersFromAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		a, b := newPod(t, store, stampede.Options{}), newPod(t, store, stampede.Options{})
		done := make(chan struct{})
		go func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(tick):
					_ = b.Delete(t.Context(), "k")
				}
			}
		}()
		src := &source{takes: 10 * tick}
		var answers []<-chan answer
		for range 20 {
			answers = append(answers, going(t.Context(), a.Guard, "k", src.load), going(t.Context(), b.Guard, "k", src.load))
			time.Sleep(tick / 2)
		}
		for i, c := range answers {
			if got := <-c; got.err != nil || got.v == 0 || got.took > 3*src.takes {
				t.Errorf("caller %d: %d, %v after %v", i, got.v, got.err, got.took)
			}
		}
		close(done)
	})
}

func TestPrivateValueIsForTheCallerWhoseLoaderMadeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		a, b := newPod(t, store, stampede.Options{}), newPod(t, store, stampede.Options{})
		type got struct {
			who, v int
			err    error
			took   time.Duration
		}
		c := make(chan got)
		for i := range 12 {
			g := []pod{a, b}[i%2]
			go func() {
				begun := time.Now()
				r, err := g.Fetch(t.Context(), "k", private(100*time.Millisecond, i))
				c <- got{i, r.Value, err, time.Since(begun)}
			}()
		}
		for range 12 {
			// All who waited load in parallel, at the end of the first load.
			if r := <-c; r.v != r.who || r.err != nil || r.took > 200*time.Millisecond {
				t.Errorf("caller %d got %d, %v after %v", r.who, r.v, r.err, r.took)
			}
		}
		if _, ok, _ := a.Peek(t.Context(), "k"); ok {
			t.Error("a private value was stored")
		}
	})
}
