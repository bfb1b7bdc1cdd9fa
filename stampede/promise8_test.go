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

// P8: lease loss is felt.

func TestLoadEndsWhenItsLeaseIsFoundWithAnotherPod(t *testing.T) {
	for name, ends := range map[string]func(context.Context) error{
		"returns ctx's error":   func(ctx context.Context) error { return ctx.Err() },
		"returns ctx's cause":   context.Cause,
		"returns its own error": func(context.Context) error { return errors.New("canceling statement due to user request") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPod(t, new(stampede.MemoryStore), stampede.Options{})
				p.net.Next(stampedetest.StepRenew, stampedetest.Fault{}, stampedetest.Fault{Steal: time.Second})
				begun, n := time.Now(), 0
				got := get(t.Context(), p.Guard, "k", func(ctx context.Context) (int, error) {
					if n++; n == 2 {
						return 2, nil
					}
					<-ctx.Done()
					if d := time.Since(begun); context.Cause(ctx) != stampede.ErrLeaseLost || d < 666*time.Millisecond || d > 667*time.Millisecond {
						t.Errorf("the loader's ctx ended with %v after %v", context.Cause(ctx), d)
					}
					return 0, ends(ctx)
				})
				// It follows the thief, who never commits, until that lease ends.
				if got.v != 2 || got.err != nil || got.took > 1750*time.Millisecond {
					t.Errorf("Get = %d, %v after %v", got.v, got.err, got.took)
				}
				if s := p.Stats(); s.LeasesLost != 1 {
					t.Errorf("%d leases lost, want 1", s.LeasesLost)
				}
			})
		})
	}
}

func TestLoadGoesOnWhenItsLeaseIsFoundAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{})
		src := &source{takes: 3 * time.Second}
		p.net.Next(stampedetest.StepRenew, stampedetest.Fault{EndLease: true})
		get(t.Context(), p.Guard, "k", src.load).is(t, 1, src.takes)
		synctest.Wait()
		if s := p.Stats(); s.LeasesGone != 1 || s.Refused != 1 || s.LeasesLost != 0 || p.net.Calls(stampedetest.StepRenew) != 1 {
			t.Errorf("%+v", s)
		}
		get(t.Context(), p.Guard, "k", src.load).is(t, 2, src.takes)
	})
}

func TestRenewalsComeAtAThirdOfTheLeaseAndStopWithTheLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{Lease: 3 * time.Second})
		begun := time.Now()
		p.net.Script(func(c stampedetest.Call) stampedetest.Fault {
			if d := time.Since(begun); c.Step == stampedetest.StepRenew && d != time.Duration(c.N)*time.Second {
				t.Errorf("renewal %d after %v", c.N, d)
			}
			return stampedetest.Fault{}
		})
		get(t.Context(), p.Guard, "k", slowly(10500*time.Millisecond, 1)).is(t, 1, 10500*time.Millisecond)
		time.Sleep(time.Minute)
		if n := p.net.Calls(stampedetest.StepRenew); n != 10 {
			t.Errorf("%d renewals, want 10", n)
		}
	})
}

func TestRenewalWithoutAnAnswerIsNotALoss(t *testing.T) {
	for name, fault := range map[string]stampedetest.Fault{
		"refused": {Err: errServer}, "late": {Delay: time.Hour}, "unanswered": {Lost: errServer},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPod(t, new(stampede.MemoryStore), stampede.Options{})
				p.net.Next(stampedetest.StepRenew, fault, stampedetest.Fault{}, fault, stampedetest.Fault{}, fault)
				src := &source{takes: 5 * time.Second}
				get(t.Context(), p.Guard, "k", src.load).is(t, 1, src.takes)
				get(t.Context(), p.Guard, "k", never(t)).is(t, 1, 0)
			})
		})
	}
}

func TestAnswerOfARenewalThatComesAfterTheLoadChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{})
		var reply stampedetest.Gate
		p.net.Next(stampedetest.StepRenew, stampedetest.Fault{Steal: time.Minute, Reply: &reply, Deaf: true})
		got := going(t.Context(), p.Guard, "k", slowly(500*time.Millisecond, 1))
		(<-got).is(t, 1, 500*time.Millisecond)
		reply.Open()
		synctest.Wait()
		if s := p.Stats(); s.LeasesLost != 0 || s.Refused != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// A loader that does not look at its ctx costs nobody more than it must: what the pod that has the lease now stores is told to
// who waits, and so is what is stored after a Delete.
func TestCallersOfADeafLoadAreToldWhatAnotherPodStores(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, a, b pod){
		"taken": func(t *testing.T, a, b pod) {
			a.net.Script(func(c stampedetest.Call) stampedetest.Fault {
				if c.Step == stampedetest.StepRenew && c.N < 4 {
					return stampedetest.Fault{Err: errServer}
				}
				return stampedetest.Fault{}
			})
			time.Sleep(2100 * time.Millisecond)
		},
		"deleted": func(t *testing.T, a, b pod) {
			time.Sleep(100 * time.Millisecond)
			must(t, b.Delete(t.Context(), "k"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := new(stampede.MemoryStore)
				a, b := newPod(t, store, stampede.Options{}), newPod(t, store, stampede.Options{})
				deaf := slowly(20*time.Second, 1)
				waits, also := going(t.Context(), a.Guard, "k", deaf), going(t.Context(), a.Guard, "k", deaf)
				synctest.Wait()
				lose(t, a, b)
				get(t.Context(), b.Guard, "k", slowly(5*time.Second, 2)).is(t, 2, 5*time.Second)
				stored := time.Now()
				for _, w := range []<-chan answer{waits, also} {
					if got := <-w; got.v != 2 || got.err != nil || time.Since(stored) > time.Second {
						t.Errorf("Get = %d, %v, %v after it was stored", got.v, got.err, time.Since(stored))
					}
				}
			})
		})
	}
}
