package stampede_test

import (
	"sync"
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
		var elected stampedetest.Gate
		b.net.Next(stampedetest.StepElect, stampedetest.Fault{Gate: &elected})
		var answers []<-chan answer
		for range 64 {
			answers = append(answers, going(t.Context(), b.Guard, "k", src.load))
		}
		synctest.Wait()
		elected.Open()
		(<-leader).is(t, 1, src.takes)
		for _, a := range answers {
			(<-a).is(t, 1, src.takes)
		}
		synctest.Wait()
		// Two elections, one before and one after the subscription. The value comes with the wake-up.
		if n, w := b.net.Calls(stampedetest.StepElect), b.net.Calls(stampedetest.StepWatch); n != 2 || w != 1 {
			t.Errorf("%d elections and %d watches, want 2 and 1", n, w)
		}
	})
}

// slowNews is a store whose watches tell nothing before the test lets them.
type slowNews struct {
	stampede.Store
	held chan struct{} // closed to let go
}

type slowWatch struct {
	stampede.Watch
	c    chan stampede.Change
	quit chan struct{}
	once sync.Once
}

func (s *slowNews) Watch(key stampede.Key) stampede.Watch {
	w := &slowWatch{Watch: s.Store.Watch(key), c: make(chan stampede.Change, 8), quit: make(chan struct{})}
	go func() {
		for {
			select {
			case c := <-w.Watch.C():
				select {
				case <-s.held:
					w.c <- c
				case <-w.quit:
					return
				}
			case <-w.quit:
				return
			}
		}
	}()
	return w
}

func (w *slowWatch) C() <-chan stampede.Change { return w.c }
func (w *slowWatch) Close()                    { w.once.Do(func() { close(w.quit) }); w.Watch.Close() }

// A value that comes with a wake-up was in the store after the election that found the lease held. Who came
// after that may have come after a Delete of it.
func TestValueThatComesWithAWakeUpIsOnlyForWhoCameBeforeTheElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		slow := &slowNews{store, make(chan struct{})}
		a, b := newPod(t, store, stampede.Options{}), newPod(t, slow, stampede.Options{})
		leader := going(t.Context(), a.Guard, "k", slowly(100*time.Millisecond, 1))
		synctest.Wait()
		early := going(t.Context(), b.Guard, "k", value(2))
		synctest.Wait()
		(<-leader).is(t, 1, 100*time.Millisecond)
		must(t, a.Delete(t.Context(), "k"))
		late := going(t.Context(), b.Guard, "k", value(2))
		synctest.Wait()
		close(slow.held)
		(<-early).is(t, 1, 100*time.Millisecond)
		(<-late).is(t, 2, 0)
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

// News travels slowly: what was committed under an earlier lease may have been deleted before the election that
// found the present one.
func TestLateNewsOfAnEarlierCommitIsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		slow := &slowNews{store, make(chan struct{})}
		a, b, c := newPod(t, store, stampede.Options{}), newPod(t, slow, stampede.Options{}), newPod(t, store, stampede.Options{})
		first := going(t.Context(), a.Guard, "k", slowly(100*time.Millisecond, 1))
		synctest.Wait()
		early := going(t.Context(), b.Guard, "k", never(t))
		(<-first).is(t, 1, 100*time.Millisecond)
		must(t, a.Delete(t.Context(), "k"))
		second := going(t.Context(), c.Guard, "k", slowly(5*time.Second, 2))
		synctest.Wait()
		late := going(t.Context(), b.Guard, "k", never(t))
		time.Sleep(1200 * time.Millisecond) // the first lease would have ended: it looks again, and follows the second
		close(slow.held)
		(<-late).is(t, 2, 5*time.Second)
		(<-early).is(t, 2, 5100*time.Millisecond)
		(<-second).is(t, 2, 5*time.Second)
	})
}
