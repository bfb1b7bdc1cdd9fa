package stampede_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

func newGuard[T any](t *testing.T, store stampede.Store, o stampede.Options) *stampede.Guard[T] {
	t.Helper()
	if o.Name == "" {
		o.Name = "test"
	}
	g, err := stampede.New[T](store, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := g.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return g
}

func TestGetLoadsOnceForAllCallersOfAllPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		var mu sync.Mutex
		loads := 0
		var wg sync.WaitGroup
		for range 8 {
			g := newGuard[int](t, store, stampede.Options{})
			for range 64 {
				wg.Go(func() {
					begun := time.Now()
					v, err := g.Get(t.Context(), "k", func(context.Context) (int, error) {
						time.Sleep(200 * time.Millisecond)
						mu.Lock()
						defer mu.Unlock()
						loads++
						return 42, nil
					})
					if v != 42 || err != nil {
						t.Errorf("Get = %d, %v", v, err)
					}
					if d := time.Since(begun); d != 200*time.Millisecond {
						t.Errorf("Get took %v", d)
					}
				})
			}
		}
		wg.Wait()
		if loads != 1 {
			t.Errorf("%d loads, want 1", loads)
		}
	})
}

func TestStaleIsServedAtOnceWhileOneLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard[int](t, new(stampede.MemoryStore), stampede.Options{Policy: stampede.Policy{TTL: time.Second, Jitter: -1, Beta: -1}})
		n := 0
		load := func(context.Context) (int, error) {
			n++
			time.Sleep(100 * time.Millisecond)
			return n, nil
		}
		if v, err := g.Get(t.Context(), "k", load); v != 1 || err != nil {
			t.Fatal(v, err)
		}
		time.Sleep(time.Second)
		for range 1000 {
			begun := time.Now()
			if v, err := g.Get(t.Context(), "k", load); v != 1 || err != nil || time.Since(begun) != 0 {
				t.Fatal(v, err, time.Since(begun))
			}
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if v, err := g.Get(t.Context(), "k", load); v != 2 || err != nil || n != 2 {
			t.Fatal(v, err, n)
		}
	})
}

func TestLoaderMisbehaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard[int](t, new(stampede.MemoryStore), stampede.Options{})
		boom := errors.New("boom")
		_, err := g.Get(t.Context(), "k", func(context.Context) (int, error) { return 0, boom })
		if err != boom {
			t.Error(err)
		}
		_, err = g.Get(t.Context(), "k", func(context.Context) (int, error) { panic(boom) })
		var p *stampede.PanicError
		if !errors.As(err, &p) || !errors.Is(err, boom) {
			t.Error(err)
		}
		v, err := g.Get(t.Context(), "k", func(context.Context) (int, error) { return 7, nil })
		if v != 7 || err != nil {
			t.Error(v, err)
		}
	})
}
