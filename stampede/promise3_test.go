package stampede_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/stampedetest"
)

// P3: prompt wake-up.

func TestOneWaiterPerPodTalksToTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, src := new(stampede.MemoryStore), &source{takes: 200 * time.Millisecond}
		a, b := newPod(t, store, stampede.Options{}), newPod(t, store, stampede.Options{})
		leader := going(t.Context(), a.Guard, "k", src.load)
		synctest.Wait()
		var answers []<-chan answer
		for range 64 {
			answers = append(answers, going(t.Context(), b.Guard, "k", src.load))
		}
		(<-leader).is(t, 1, src.takes)
		for _, a := range answers {
			(<-a).is(t, 1, src.takes)
		}
		synctest.Wait()
		// Two elections, one before and one after the subscription, and one when woken.
		if n, w := b.net.Calls(stampedetest.StepElect), b.net.Calls(stampedetest.StepWatch); n != 3 || w != 1 {
			t.Errorf("%d elections and %d watches, want 3 and 1", n, w)
		}
	})
}

func TestCommitBetweenElectionAndSubscriptionIsNotMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		a, b := newPod(t, store, stampede.Options{}), newPod(t, store, stampede.Options{})
		leader := going(t.Context(), a.Guard, "k", slowly(100*time.Millisecond, 1))
		synctest.Wait()
		var gate stampedetest.Gate
		b.net.Next(stampedetest.StepElect, stampedetest.Fault{Reply: &gate})
		follower := going(t.Context(), b.Guard, "k", never(t))
		<-gate.Reached()
		(<-leader).is(t, 1, 100*time.Millisecond)
		gate.Open()
		(<-follower).is(t, 1, 100*time.Millisecond)
	})
}

func TestLostPushCostsOnePollInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		a, b := newPod(t, store, stampede.Options{}), newPod(t, store, stampede.Options{})
		b.net.Script(func(c stampedetest.Call) (f stampedetest.Fault) {
			if c.Step == stampedetest.StepWatch {
				f.Err = stampede.ErrUnavailable // never confirmed
			}
			return f
		})
		for _, takes := range []time.Duration{20 * time.Millisecond, 400 * time.Millisecond, 3 * time.Second, 20 * time.Second} {
			leader := going(t.Context(), a.Guard, takes.String(), slowly(takes, 1))
			synctest.Wait()
			elections := b.net.Calls(stampedetest.StepElect)
			follower := going(t.Context(), b.Guard, takes.String(), never(t))
			(<-leader).is(t, 1, takes)
			(<-follower).within(t, 1, takes+250*time.Millisecond)
			// Polls grow from 20 ms on, so a long load is not asked about every 20 ms.
			if n := b.net.Calls(stampedetest.StepElect) - elections; n > 10+int(takes/(50*time.Millisecond)) {
				t.Errorf("%d elections while a load took %v", n, takes)
			}
		}
	})
}

func TestSilentlyLostPushCostsOneLeaseAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		a, b := newPod(t, store, stampede.Options{}), newPod(t, store, stampede.Options{})
		b.net.Mute(true)
		leader := going(t.Context(), a.Guard, "k", slowly(300*time.Millisecond, 1))
		synctest.Wait()
		follower := going(t.Context(), b.Guard, "k", never(t))
		(<-leader).is(t, 1, 300*time.Millisecond)
		(<-follower).within(t, 1, 1050*time.Millisecond)
	})
}

func TestFailedLoadWakesTheWaitersOfOtherPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		a, b := newPod(t, store, stampede.Options{}), newPod(t, store, stampede.Options{})
		bad := &source{takes: 100 * time.Millisecond, fails: errBoom}
		leader := going(t.Context(), a.Guard, "k", bad.load)
		synctest.Wait()
		follower := going(t.Context(), b.Guard, "k", slowly(50*time.Millisecond, 2))
		(<-leader).fails(t, errBoom, bad.takes)
		(<-follower).is(t, 2, bad.takes+50*time.Millisecond)
	})
}
