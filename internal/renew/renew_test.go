package renew_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/internal/renew"
)

func TestRenewsAtEveryIntervalUntilStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, n := time.Now(), 0
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), t, "kept"))
		w := renew.Start(ctx, time.Second, func(ctx context.Context) bool {
			n++
			if d := time.Since(begun); d != time.Duration(n)*time.Second || ctx.Err() != nil || ctx.Value(t) != "kept" {
				t.Errorf("renewal %d after %v, ctx %v", n, d, ctx.Err())
			}
			return true
		})
		cancel() // the caller's end is not the load's
		time.Sleep(5500 * time.Millisecond)
		w.Stop()
		w.Stop()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n != 5 {
			t.Errorf("%d renewals, want 5", n)
		}
	})
}

func TestSlowAnswersDoNotEatIntoTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var at []time.Duration
		w := renew.Start(t.Context(), time.Second, func(context.Context) bool {
			at = append(at, time.Since(begun))
			time.Sleep([]time.Duration{700 * time.Millisecond, 1500 * time.Millisecond, 0}[min(len(at)-1, 2)])
			return len(at) < 4
		})
		defer w.Stop()
		time.Sleep(time.Minute)
		synctest.Wait()
		want := []time.Duration{time.Second, 2 * time.Second, 3500 * time.Millisecond, 4500 * time.Millisecond}
		if len(at) != len(want) {
			t.Fatalf("renewals at %v, want %v", at, want)
		}
		for i := range at {
			if at[i] != want[i] {
				t.Errorf("renewals at %v, want %v", at, want)
			}
		}
	})
}

func TestStopDoesNotWaitForARenewalAndEndsItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		w := renew.Start(t.Context(), time.Second, func(ctx context.Context) bool {
			n++
			<-ctx.Done()
			return true
		})
		time.Sleep(1500 * time.Millisecond)
		begun := time.Now()
		w.Stop()
		if d := time.Since(begun); d != 0 {
			t.Errorf("Stop took %v", d)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n != 1 {
			t.Errorf("%d renewals, want 1", n)
		}
	})
}
