package stampede_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// P6: a caller is its own.

type ctxKey struct{}

func TestCallersLeaveWhenTheirContextEndsAndTakeNobodyWithThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		a, b := newPod(t, store, stampede.Options{}), newPod(t, store, stampede.Options{})
		src := &source{takes: time.Second} // ends early if its ctx does
		short, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer stop()
		bare, cancel := context.WithCancel(t.Context())
		time.AfterFunc(200*time.Millisecond, cancel)
		starter := going(short, a.Guard, "k", src.load)
		synctest.Wait()
		cancelled, stays := going(bare, a.Guard, "k", src.load), going(t.Context(), a.Guard, "k", src.load)
		leaves, follows := going(short, b.Guard, "k", src.load), going(t.Context(), b.Guard, "k", src.load)
		(<-starter).fails(t, context.DeadlineExceeded, 100*time.Millisecond)
		(<-leaves).fails(t, context.DeadlineExceeded, 100*time.Millisecond)
		(<-cancelled).fails(t, context.Canceled, 200*time.Millisecond)
		(<-stays).is(t, 1, src.takes)
		(<-follows).is(t, 1, src.takes)
	})
}

func TestLoadWhoseOnlyCallerLeftIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		src := &source{takes: 100 * time.Millisecond}
		get(ctx, p.Guard, "k", src.load).fails(t, context.DeadlineExceeded, 10*time.Millisecond)
		time.Sleep(src.takes)
		synctest.Wait()
		get(t.Context(), p.Guard, "k", never(t)).is(t, 1, 0)
	})
}

func TestLoadersContextHasTheCallersValuesAndNotItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{LoadTimeout: time.Minute})
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), ctxKey{}, "trace"), time.Second)
		defer cancel()
		got := get(ctx, p.Guard, "k", func(ctx context.Context) (int, error) {
			if v := ctx.Value(ctxKey{}); v != "trace" {
				t.Errorf("the loader's ctx holds %v", v)
			}
			if d, ok := ctx.Deadline(); !ok || time.Until(d) != time.Minute {
				t.Errorf("the loader has %v, want LoadTimeout", time.Until(d))
			}
			cancel()
			return 1, ctx.Err()
		})
		if got.err != nil && got.err != context.Canceled {
			t.Error(got.err)
		}
		synctest.Wait()
		get(t.Context(), p.Guard, "k", never(t)).is(t, 1, 0)
	})
}

func TestCallerLeavesAStoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(bytesStore), stampede.Options{})
		p.net.Hang()
		short, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer stop()
		get(short, p.Guard, "k", never(t)).fails(t, context.DeadlineExceeded, 50*time.Millisecond)
		bare, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		get(bare, p.Guard, "k", never(t)).fails(t, context.Canceled, 100*time.Millisecond)
	})
}

func TestEndedContextAsksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{})
		must(t, p.Set(t.Context(), "k", 1))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		late, stop := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		defer stop()
		get(ended, p.Guard, "k", never(t)).fails(t, context.Canceled, 0)
		get(late, p.Guard, "k", never(t)).fails(t, context.DeadlineExceeded, 0)
		if n := p.net.Calls("Read"); n != 0 {
			t.Errorf("%d reads", n)
		}
	})
}
