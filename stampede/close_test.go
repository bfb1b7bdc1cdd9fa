package stampede_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

func TestClosedGuardServesWhatNeedsNoLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(bytesStore), stampede.Options{Policy: steady})
		must(t, p.Set(t.Context(), "k", 1))
		must(t, p.Close(t.Context()))
		get(t.Context(), p.Guard, "k", never(t)).is(t, 1, 0)
		get(t.Context(), p.Guard, "cold", never(t)).fails(t, stampede.ErrClosed, 0)
		time.Sleep(steady.TTL)
		get(t.Context(), p.Guard, "k", never(t)).is(t, 1, 0) // stale, and not loaded
		time.Sleep(steady.StaleFor)
		get(t.Context(), p.Guard, "k", never(t)).is(t, 1, 0) // kept for when a load fails
		if err := p.Refresh(t.Context(), "k", never(t)); err != stampede.ErrClosed {
			t.Errorf("Refresh: %v", err)
		}
		p.net.Down(nil)
		get(t.Context(), p.Guard, "k", never(t)).is(t, 1, 0)
		get(t.Context(), p.Guard, "cold", never(t)).fails(t, stampede.ErrClosed, 0)
		p.net.Up()
		must(t, p.Set(t.Context(), "k", 2))
		must(t, p.Delete(t.Context(), "k"))
		get(t.Context(), p.Guard, "k", never(t)).fails(t, stampede.ErrClosed, 0)
		must(t, p.Close(t.Context()))
	})
}

func TestCloseWaitsForLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		a, b := newPod(t, store, stampede.Options{}), newPod(t, store, stampede.Options{})
		loading := going(t.Context(), a.Guard, "k", slowly(5*time.Second, 1))
		synctest.Wait()
		begun := time.Now()
		must(t, a.Close(t.Context()))
		if d := time.Since(begun); d != 5*time.Second {
			t.Errorf("Close took %v", d)
		}
		(<-loading).is(t, 1, 5*time.Second)
		get(t.Context(), b.Guard, "k", never(t)).is(t, 1, 0)
	})
}

func TestCloseCancelsLoadsWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		a, b := newPod(t, store, stampede.Options{}), newPod(t, store, stampede.Options{})
		obedient := going(t.Context(), a.Guard, "a", func(ctx context.Context) (int, error) {
			<-ctx.Done()
			if context.Cause(ctx) != stampede.ErrClosed {
				t.Errorf("cause %v", context.Cause(ctx))
			}
			return 0, ctx.Err()
		})
		deaf := going(t.Context(), a.Guard, "b", slowly(time.Minute, 1))
		elsewhere := going(t.Context(), b.Guard, "c", slowly(10*time.Second, 1))
		synctest.Wait()
		follower := going(t.Context(), a.Guard, "c", never(t))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := a.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v", err)
		}
		(<-obedient).fails(t, stampede.ErrClosed, time.Second)
		(<-deaf).fails(t, stampede.ErrClosed, time.Second)
		(<-follower).fails(t, stampede.ErrClosed, time.Second)
		// Their leases were given back, and no failure is remembered.
		synctest.Wait()
		get(t.Context(), b.Guard, "a", value(2)).is(t, 2, 0)
		get(t.Context(), b.Guard, "b", value(2)).is(t, 2, 0)
		(<-elsewhere).is(t, 1, 10*time.Second)
		time.Sleep(time.Minute)
	})
}

func TestCloseOfAnIdleGuardIsNilWhateverItsContext(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		g := newGuard[int](t, new(stampede.MemoryStore), stampede.Options{})
		if err := g.Close(ended); err != nil {
			t.Fatal(err)
		}
	}
}
