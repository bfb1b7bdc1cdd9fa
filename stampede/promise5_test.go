package stampede_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/internal/budget"
	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/stampedetest"
)

// P5: the cache never makes it worse.

const (
	storeBudget = 250 * time.Millisecond
	copyBudget  = 25 * time.Millisecond
)

var errServer = errors.New("the server is in trouble")

// troubles are what a store can come to. Each is switched on, for all steps or for one.
var troubles = map[string]func(*stampedetest.Faulty, stampedetest.Step){
	"down": func(f *stampedetest.Faulty, only stampedetest.Step) {
		inflict(f, only, stampedetest.Fault{Err: errServer})
	},
	"slow": func(f *stampedetest.Faulty, only stampedetest.Step) {
		inflict(f, only, stampedetest.Fault{Delay: time.Hour})
	},
	"lost": func(f *stampedetest.Faulty, only stampedetest.Step) {
		inflict(f, only, stampedetest.Fault{Lost: errServer})
	},
	"mute": func(f *stampedetest.Faulty, only stampedetest.Step) {
		inflict(f, only, stampedetest.Fault{Reply: new(stampedetest.Gate)})
	},
	"full": func(f *stampedetest.Faulty, only stampedetest.Step) {
		inflict(f, only, stampedetest.Fault{Full: errServer})
	},
}

const allSteps = stampedetest.Step("")

func inflict(f *stampedetest.Faulty, only stampedetest.Step, fault stampedetest.Fault) {
	f.Script(func(c stampedetest.Call) stampedetest.Fault {
		if only == allSteps || c.Step == only {
			return fault
		}
		return stampedetest.Fault{}
	})
}

// inTrouble runs body for each trouble of each step.
func inTrouble(t *testing.T, body func(t *testing.T, p pod)) {
	for name, trouble := range troubles {
		for _, step := range []stampedetest.Step{allSteps, stampedetest.StepRead, stampedetest.StepElect, stampedetest.StepCommit,
			stampedetest.StepRenew, stampedetest.StepFail, stampedetest.StepRelease} {
			t.Run(fmt.Sprintf("%s/%s", name, step), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := newPod(t, new(bytesStore), stampede.Options{Policy: steady})
					get(t.Context(), p.Guard, "seen", value(1)).is(t, 1, 0)
					get(t.Context(), p.Guard, "dying", value(1)).is(t, 1, 0)
					time.Sleep(time.Millisecond)
					trouble(p.net, step)
					body(t, p)
					time.Sleep(time.Hour)
				})
			})
		}
	}
}

func TestColdCallersAreServedInTimeWhateverTheStoreDoes(t *testing.T) {
	inTrouble(t, func(t *testing.T, p pod) {
		src := &source{takes: 100 * time.Millisecond}
		var answers []<-chan answer
		for range 8 {
			answers = append(answers, going(t.Context(), p.Guard, "k", src.load))
		}
		// Who came after a load began cannot have its value when it is not stored, and is served by the next.
		for _, a := range answers {
			if got := <-a; got.err != nil || got.v < 1 || got.took > storeBudget+2*src.takes {
				t.Errorf("Get = %d, %v after %v", got.v, got.err, got.took)
			}
		}
		if n, top := src.loads(); n > 2 || top != 1 {
			t.Errorf("%d loads, %d at once: a pod collapses its callers without the store", n, top)
		}
	})
}

func TestFreshAndStaleValuesAreServedInTimeWhateverTheStoreDoes(t *testing.T) {
	inTrouble(t, func(t *testing.T, p pod) {
		get(t.Context(), p.Guard, "seen", never(t)).within(t, 1, copyBudget)
		time.Sleep(steady.TTL)
		get(t.Context(), p.Guard, "seen", value(1)).within(t, 1, copyBudget)
		time.Sleep(100 * time.Millisecond)
		get(t.Context(), p.Guard, "seen", value(1)).within(t, 1, copyBudget)
	})
}

func TestLoadersErrorsReachCallersWhateverTheStoreDoes(t *testing.T) {
	inTrouble(t, func(t *testing.T, p pod) {
		src := &source{takes: 10 * time.Millisecond, fails: errBoom}
		got := get(t.Context(), p.Guard, "k", src.load)
		if got.err != errBoom || got.took > storeBudget+src.takes {
			t.Errorf("Get returned %v after %v, want the loader's own error", got.err, got.took)
		}
	})
}

func TestBudgetIsOneOverAllStepsOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(bytesStore), stampede.Options{})
		inflict(p.net, allSteps, stampedetest.Fault{Delay: 100 * time.Millisecond})
		get(t.Context(), p.Guard, "a", slowly(time.Second, 1)).is(t, 1, time.Second+storeBudget)
		inflict(p.net, allSteps, stampedetest.Fault{Delay: 200 * time.Millisecond})
		get(t.Context(), p.Guard, "b", slowly(time.Second, 1)).is(t, 1, time.Second+storeBudget)
		inflict(p.net, allSteps, stampedetest.Fault{Delay: 20 * time.Millisecond})
		get(t.Context(), p.Guard, "c", slowly(time.Second, 1)).is(t, 1, time.Second+60*time.Millisecond)
	})
}

func TestBudgetOfWhoHasACopyIsOneOverAllSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(bytesStore), stampede.Options{Policy: steady})
		get(t.Context(), p.Guard, "k", value(1)).is(t, 1, 0)
		time.Sleep(steady.TTL + steady.StaleFor) // only good enough if a load fails
		inflict(p.net, allSteps, stampedetest.Fault{Delay: 20 * time.Millisecond})
		for range 2 { // the pod knows that reads are slow
			_, _, err := p.Peek(t.Context(), "other")
			must(t, err)
		}
		get(t.Context(), p.Guard, "k", slowly(time.Second, 2)).is(t, 2, time.Second+copyBudget)
		inflict(p.net, allSteps, stampedetest.Fault{Delay: time.Minute})
		get(t.Context(), p.Guard, "k", never(t)).is(t, 2, copyBudget)
	})
}

func TestWhoJoinsALoadBehindIsNotKeptWaitingByItsCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(bytesStore)
		p := newPod(t, store, stampede.Options{Policy: steady})
		get(t.Context(), p.Guard, "k", value(1)).is(t, 1, 0)
		time.Sleep(steady.TTL)
		inflict(p.net, stampedetest.StepCommit, stampedetest.Fault{Delay: time.Hour})
		get(t.Context(), p.Guard, "k", slowly(100*time.Millisecond, 2)).is(t, 1, 0)
		synctest.Wait()
		must(t, store.Delete(t.Context(), stampede.Key{Space: "test", Key: "k"}))
		get(t.Context(), p.Guard, "k", slowly(100*time.Millisecond, 3)).within(t, 3, 200*time.Millisecond+2*storeBudget)
	})
}

func TestStoreThatComesBackNeedsNoRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(bytesStore), stampede.Options{Policy: steady})
		p.net.Hang()
		get(t.Context(), p.Guard, "k", value(1)).is(t, 1, storeBudget)
		p.net.Up()
		get(t.Context(), p.Guard, "k", value(2)).is(t, 2, 0)
		get(t.Context(), p.Guard, "k", never(t)).is(t, 2, 0)
		if r, ok, err := p.Peek(t.Context(), "k"); !ok || err != nil || r.Value != 2 || r.From != stampede.FromStore {
			t.Errorf("%+v, %v, %v", r, ok, err)
		}
	})
}

func TestStoreLostInMidLoadServesThisPodAndOverwritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(bytesStore)
		a, b := newPod(t, store, stampede.Options{}), newPod(t, store, stampede.Options{})
		loading := going(t.Context(), a.Guard, "k", slowly(3*time.Second, 1))
		synctest.Wait()
		a.net.Down(nil)
		time.Sleep(2500 * time.Millisecond)
		get(t.Context(), b.Guard, "k", value(2)).is(t, 2, 0)
		(<-loading).is(t, 1, 3*time.Second)
		get(t.Context(), a.Guard, "k", never(t)).is(t, 1, 0) // its copy, while it is cut off
		a.net.Up()
		get(t.Context(), a.Guard, "k", never(t)).is(t, 2, 0)
	})
}

func TestWhatChangesTheStoreReturnsWhatItMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(bytesStore), stampede.Options{})
		p.net.Down(errServer)
		_, _, peek := p.Peek(t.Context(), "k")
		for what, err := range map[string]error{
			"Peek": peek, "Set": p.Set(t.Context(), "k", 1),
			"Delete": p.Delete(t.Context(), "k"), "Expire": p.Expire(t.Context(), "k"),
		} {
			if !errors.Is(err, errServer) {
				t.Errorf("%s: %v, want the store's error", what, err)
			}
		}
		p.net.Up()
		p.net.Next(stampedetest.StepSet, stampedetest.Fault{Lost: errServer})
		if err := p.Set(t.Context(), "k", 1); !errors.Is(err, stampede.ErrOutcomeUnknown) {
			t.Errorf("Set without an answer: %v", err)
		}
		p.net.Hang()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		if err := p.Delete(ctx, "k"); !errors.Is(err, context.Canceled) {
			t.Errorf("Delete whose ctx ends: %v", err)
		}
		begun := time.Now()
		if err := p.Delete(t.Context(), "k"); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Second {
			t.Errorf("Delete of a store that hangs: %v after %v", err, time.Since(begun))
		}
	})
}

func TestBudgetMayBeSharedByCallsForOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{StoreBudget: 250 * time.Millisecond})
		ctx := context.WithValue(t.Context(), budget.Key, new(budget.Spent))
		p.net.Hang()
		get(ctx, p.Guard, "a", value(1)).is(t, 1, 250*time.Millisecond)
		get(ctx, p.Guard, "b", value(1)).within(t, 1, time.Millisecond)
		if _, _, err := p.Peek(ctx, "c"); err == nil {
			t.Error("Peek was answered")
		}
		get(t.Context(), p.Guard, "d", value(1)).is(t, 1, 250*time.Millisecond)
		p.net.Up()
	})
}
