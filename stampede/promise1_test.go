package stampede_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/stampedetest"
)

// P1: one load.

func TestStaleKeyIsLoadedOnceInTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, src := new(stampede.MemoryStore), &source{takes: 100 * time.Millisecond}
		var pods []pod
		for range 4 {
			pods = append(pods, newPod(t, store, stampede.Options{Policy: steady}))
		}
		get(t.Context(), pods[0].Guard, "k", src.load).is(t, 1, src.takes)
		time.Sleep(steady.TTL)
		var answers []<-chan answer
		for range 16 {
			for _, p := range pods {
				answers = append(answers, going(t.Context(), p.Guard, "k", src.load))
			}
		}
		for _, a := range answers {
			(<-a).is(t, 1, 0)
		}
		time.Sleep(src.takes)
		synctest.Wait()
		for _, p := range pods {
			get(t.Context(), p.Guard, "k", src.load).is(t, 2, 0)
		}
		if n, top := src.loads(); n != 2 || top != 1 {
			t.Errorf("%d loads, %d at once, want 2, one at a time", n, top)
		}
	})
}

func TestPodRunsOneLoadOfAKeyAtATimeEvenWhenLoadsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{})
		src := &source{takes: 10 * time.Millisecond, fails: errBoom}
		for range 10 {
			var answers []<-chan answer
			for range 32 {
				answers = append(answers, going(t.Context(), p.Guard, "k", src.load))
			}
			for _, a := range answers {
				(<-a).fails(t, errBoom, src.takes)
			}
		}
		if n, top := src.loads(); n != 10 || top != 1 {
			t.Errorf("%d loads, %d at once, want 10, one at a time", n, top)
		}
	})
}

func TestCommitBetweenReadAndElectionIsNotLoadedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		a, b := newPod(t, store, stampede.Options{}), newPod(t, store, stampede.Options{})
		var gate stampedetest.Gate
		b.net.Next(stampedetest.StepElect, stampedetest.Fault{Gate: &gate})
		late := going(t.Context(), b.Guard, "k", never(t))
		<-gate.Reached()
		get(t.Context(), a.Guard, "k", value(1)).is(t, 1, 0)
		gate.Open()
		(<-late).is(t, 1, 0)
	})
}

func TestLongLoadKeepsItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, src := new(stampede.MemoryStore), &source{takes: 20 * time.Second}
		a, b := newPod(t, store, stampede.Options{}), newPod(t, store, stampede.Options{})
		first, second := going(t.Context(), a.Guard, "k", src.load), going(t.Context(), b.Guard, "k", src.load)
		(<-first).is(t, 1, src.takes)
		(<-second).is(t, 1, src.takes)
	})
}

func TestPodThatDiedKeepsOthersForOneLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		a := newPod(t, store, stampede.Options{})
		b := newPod(t, store, stampede.Options{})
		dead := going(t.Context(), a.Guard, "k", slowly(5*time.Second, 1))
		synctest.Wait()
		a.net.Down(nil)
		first, second := going(t.Context(), b.Guard, "k", value(2)), going(t.Context(), b.Guard, "k", value(2))
		one, two := <-first, <-second
		one.within(t, 2, 1050*time.Millisecond)
		two.within(t, 2, 1050*time.Millisecond)
		if one.took < time.Second || b.Stats().Loads != 1 {
			t.Errorf("%d loads after %v, want one, not before the lease has ended", b.Stats().Loads, one.took)
		}
		(<-dead).within(t, 1, 5250*time.Millisecond)
	})
}

func TestChangeOfTheKeyAllowsOneMoreLoad(t *testing.T) {
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, src := new(stampede.MemoryStore), &source{takes: time.Second}
				a, b := newPod(t, store, stampede.Options{Policy: steady}), newPod(t, store, stampede.Options{Policy: steady})
				first := going(t.Context(), a.Guard, "k", src.load)
				time.Sleep(100 * time.Millisecond)
				must(t, change(t.Context(), b.Guard))
				if name == "Set" {
					get(t.Context(), b.Guard, "k", src.load).is(t, 99, 0)
					(<-first).within(t, 99, 400*time.Millisecond) // seen when the lease was to be renewed
					return
				}
				var answers []<-chan answer
				for range 8 {
					answers = append(answers, going(t.Context(), a.Guard, "k", src.load), going(t.Context(), b.Guard, "k", src.load))
				}
				(<-first).is(t, 2, 1100*time.Millisecond) // its load ended when the lease was found with b
				for _, a := range answers {
					(<-a).is(t, 2, src.takes)
				}
				if n, top := src.loads(); n != 2 || top != 2 {
					t.Errorf("%d loads, %d at once, want 2 and 2", n, top)
				}
			})
		})
	}
}

// A store that lost what it had, or evicted it, is as slow as before: what a read that found nothing has cost is not missing at the
// election, though the pods had copies when they began to read.
func TestEntryThatIsGoneIsLoadedOnceByPodsThatHadCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const roundTrip = 20 * time.Millisecond
		store, src := new(bytesStore), &source{takes: 100 * time.Millisecond}
		var pods []pod
		for range 4 {
			p := newPod(t, store, stampede.Options{Policy: steady})
			get(t.Context(), p.Guard, "k", value(99)).is(t, 99, 0)
			p.net.Mute(true)
			pods = append(pods, p)
		}
		must(t, store.Delete(t.Context(), stampede.Key{Space: "test", Key: "k"}))
		for _, p := range pods {
			p.net.Mute(false)
			inflict(p.net, allSteps, stampedetest.Fault{Delay: roundTrip})
		}
		var answers []<-chan answer
		for range 8 {
			for _, p := range pods {
				answers = append(answers, going(t.Context(), p.Guard, "k", src.load))
			}
		}
		for _, a := range answers {
			(<-a).within(t, 1, storeBudget+src.takes)
		}
		if n, _ := src.loads(); n != 1 {
			t.Errorf("%d loads, want 1", n)
		}
	})
}
