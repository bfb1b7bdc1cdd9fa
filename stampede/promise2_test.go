package stampede_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/stampedetest"
)

// P2: stale never waits.

func TestStaleIsServedWithoutWaitingForElectionLeaseOrLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, hang := new(stampede.MemoryStore), make(chan struct{})
		defer close(hang)
		a, b := newPod(t, store, stampede.Options{Policy: steady}), newPod(t, store, stampede.Options{Policy: steady})
		get(t.Context(), a.Guard, "k", value(1)).is(t, 1, 0)
		time.Sleep(steady.TTL)
		b.net.Next(stampedetest.StepElect, stampedetest.Fault{Delay: time.Hour})
		hanging := func(context.Context) (int, error) { <-hang; return 0, errBoom }
		for range 1000 {
			get(t.Context(), a.Guard, "k", hanging).is(t, 1, 0)
			get(t.Context(), b.Guard, "k", hanging).is(t, 1, 0)
		}
		time.Sleep(steady.StaleFor - time.Millisecond)
		get(t.Context(), a.Guard, "k", hanging).is(t, 1, 0)
		get(t.Context(), b.Guard, "k", hanging).is(t, 1, 0)
		must(t, a.Delete(t.Context(), "k"))
	})
}

func TestFollowersOfAStaleKeyElectOncePerLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		a, b := newPod(t, store, stampede.Options{Policy: steady}), newPod(t, store, stampede.Options{Policy: steady})
		get(t.Context(), a.Guard, "k", value(1)).is(t, 1, 0)
		time.Sleep(steady.TTL)
		get(t.Context(), a.Guard, "k", slowly(500*time.Millisecond, 2)).is(t, 1, 0)
		synctest.Wait()
		for range 100 {
			get(t.Context(), b.Guard, "k", never(t)).is(t, 1, 0)
			synctest.Wait()
		}
		if n := b.net.Calls(stampedetest.StepElect); n != 1 {
			t.Errorf("%d elections, want 1", n)
		}
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		get(t.Context(), b.Guard, "k", never(t)).is(t, 2, 0)
	})
}

func TestMemoryOfALeaseEndsWithTheVersionItBelongsTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		a, b := newPod(t, store, stampede.Options{Policy: steady}), newPod(t, store, stampede.Options{Policy: steady})
		get(t.Context(), a.Guard, "k", value(1)).is(t, 1, 0)
		time.Sleep(steady.TTL)
		get(t.Context(), a.Guard, "k", slowly(900*time.Millisecond, 2)).is(t, 1, 0)
		synctest.Wait()
		b.net.Mute(true)                                     // nobody tells it of changes
		get(t.Context(), b.Guard, "k", never(t)).is(t, 1, 0) // b now remembers a's lease
		synctest.Wait()
		must(t, a.Expire(t.Context(), "k")) // which ends the lease
		get(t.Context(), b.Guard, "k", value(3)).is(t, 1, 0)
		synctest.Wait()
		get(t.Context(), b.Guard, "k", never(t)).is(t, 3, 0)
		time.Sleep(time.Second)
	})
}

func TestWaiterIsServedWhatIsStaleByTheTimeOfItsElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{Policy: steady})
		var gate stampedetest.Gate
		p.net.Next(stampedetest.StepElect, stampedetest.Fault{Gate: &gate})
		waiter := going(t.Context(), p.Guard, "k", slowly(10*time.Second, 2))
		<-gate.Reached()
		must(t, p.Set(t.Context(), "k", 1))
		must(t, p.Expire(t.Context(), "k"))
		gate.Open()
		(<-waiter).is(t, 1, 0)
	})
}
