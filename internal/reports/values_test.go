package reports_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// authzed/spicedb#2629, MikkoParkkola/trvl#40: callers changed what they had got by a pointer that others had got, too.
//
// What was asked for there as the default, a copy for each caller, is Options.CopyOnRead here: the design shares one decoded value among
// the callers of a pod, read-only, because to decode is what a hit costs most.
func TestWithCopyOnReadCallersMayChangeWhatTheyGot(t *testing.T) {
	t.Run("map", func(t *testing.T) {
		ownValues(t, func() map[string]int { return map[string]int{"n": 1} }, func(m map[string]int) int { m["n"]++; return m["n"] })
	})
	t.Run("slice", func(t *testing.T) {
		ownValues(t, func() []int { return []int{1} }, func(s []int) int { s[0]++; return s[0] })
	})
	type page struct{ N int }
	t.Run("pointer", func(t *testing.T) {
		ownValues(t, func() *page { return &page{1} }, func(p *page) int { p.N++; return p.N })
	})
}

// ownValues lets callers of every kind change their value, side by side: each sees the original and its own change.
func ownValues[T any](t *testing.T, original func() T, change func(T) int) {
	eachStore(t, func(t *testing.T, store stampede.Store) {
		g := open[T](t, store, stampede.Options{CopyOnRead: true, Policy: exactly(time.Hour, time.Hour)})
		released := make(chan struct{})
		load := func(context.Context) (T, error) {
			<-released
			return original(), nil
		}
		time.AfterFunc(20*time.Millisecond, func() { close(released) })
		get := func(int) {
			v, err := g.Get(t.Context(), "k", load)
			if err != nil {
				t.Error(err)
				return
			}
			if n := change(v); n != 2 {
				t.Errorf("a caller sees another one's change: %d", n)
			}
		}
		crowd(20, get) // of a load
		crowd(20, get) // of a hit
		// A load that is not stored, and one that changes what was stored before.
		for _, dontStore := range []bool{true, false} {
			if err := g.Expire(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			crowd(20, func(int) {
				r, err := g.Fetch(t.Context(), "k", func(_ context.Context, l *stampede.Load[T]) (T, error) {
					if previous, ok := l.Previous(); ok {
						change(previous)
					}
					if dontStore {
						l.DoNotStore()
					}
					return original(), nil
				})
				if err != nil || change(r.Value) != 2 {
					t.Errorf("Fetch = %+v, %v", r, err)
				}
			})
		}
	})
}

// laravel/framework#60626: the keys of locks were not told apart like those of the cache.
func TestGuardsOfDifferentNamesDoNotMeet(t *testing.T) {
	for name, o := range map[string]stampede.Options{
		"name":      {Name: "p2"},
		"version":   {Name: "p1", Version: "2"},
		"longer":    {Name: "p1:k"},
		"separator": {Name: "p1:"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := new(stampede.MemoryStore)
				one := open[int](t, store, stampede.Options{Name: "p1"})
				other := open[int](t, store, o)
				crowd(2, func(i int) {
					begun := time.Now()
					if i == 0 {
						wants(t, one, "k", numbered(time.Second).Loader("k"), 1)
						took(t, begun, time.Second)
						return
					}
					time.Sleep(100 * time.Millisecond) // the other guard's lease is held
					must(t, other.Set(t.Context(), "k", 7))
					must(t, other.Delete(t.Context(), "k"))
					wants(t, other, "k", deaf(0).Loader("k"), 1)
					took(t, begun, 100*time.Millisecond)
					must(t, other.Set(t.Context(), "k", 7))
				})
				wants(t, one, "k", forbidden(t), 1)
				wants(t, other, "k", forbidden(t), 7)
			})
		})
	}
}
