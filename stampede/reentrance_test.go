package stampede_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

func TestLoaderThatAsksForItsOwnKeyIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		a := newPod(t, store, stampede.Options{})
		// Directly, and by another guard of the same name: they share the lease.
		for _, g := range []*stampede.Guard[int]{a.Guard, newGuard[int](t, a.net, stampede.Options{})} {
			get(t.Context(), a.Guard, "k", func(ctx context.Context) (int, error) {
				return g.Get(ctx, "k", never(t))
			}).fails(t, stampede.ErrReentrant, 0)
			time.Sleep(time.Second)
		}
		// Round a circle of keys.
		keys := []string{"x", "y", "z"}
		var circle func(i int) func(context.Context) (int, error)
		circle = func(i int) func(context.Context) (int, error) {
			return func(ctx context.Context) (int, error) {
				next := (i + 1) % len(keys)
				return a.Get(ctx, keys[next], circle(next))
			}
		}
		get(t.Context(), a.Guard, "x", circle(0)).fails(t, stampede.ErrReentrant, 0)
		// Another name, another key or another store, as behind a cache of caches, is another matter.
		behind := newGuard[int](t, new(stampede.MemoryStore), stampede.Options{})
		get(t.Context(), a.Guard, "tiers", func(ctx context.Context) (int, error) {
			return behind.Get(ctx, "tiers", value(6))
		}).is(t, 6, 0)
		other := newGuard[int](t, store, stampede.Options{Name: "other"})
		get(t.Context(), a.Guard, "w", func(ctx context.Context) (int, error) {
			return other.Get(ctx, "w", value(5))
		}).is(t, 5, 0)
	})
}

func TestLoadersThatWaitForEachOtherEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		o := stampede.Options{LoadTimeout: time.Second}
		a, b := newPod(t, store, o), newPod(t, store, o)
		x := going(t.Context(), a.Guard, "x", func(ctx context.Context) (int, error) {
			<-time.After(tick)
			return a.Get(ctx, "y", value(1))
		})
		y := going(t.Context(), b.Guard, "y", func(ctx context.Context) (int, error) {
			<-time.After(tick)
			return b.Get(ctx, "x", value(1))
		})
		if a, b := <-x, <-y; a.took > 2*o.LoadTimeout || b.took > 2*o.LoadTimeout {
			t.Errorf("%+v, %+v", a, b)
		}
		time.Sleep(2 * time.Second)
		if got := get(t.Context(), a.Guard, "x", value(2)); got.err != nil || got.took > 0 {
			t.Errorf("%+v", got) // 2, or what one of them has stored
		}
	})
}

func TestLoaderMayReadItsOwnKeyWhenThatNeedsNoWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{Policy: steady})
		must(t, p.Set(t.Context(), "k", 1))
		must(t, p.Expire(t.Context(), "k"))
		get(t.Context(), p.Guard, "k", func(ctx context.Context) (int, error) {
			v, err := p.Get(ctx, "k", never(t))
			return v + 1, err
		}).is(t, 1, 0)
		synctest.Wait()
		get(t.Context(), p.Guard, "k", never(t)).is(t, 2, 0)
	})
}

func TestContextOfALoadThatHasEndedMayBeUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{})
		var kept context.Context
		get(t.Context(), p.Guard, "k", func(ctx context.Context) (int, error) { kept = ctx; return 1, nil }).is(t, 1, 0)
		must(t, p.Delete(t.Context(), "k"))
		get(context.WithoutCancel(kept), p.Guard, "k", value(2)).is(t, 2, 0)
	})
}
