package stampede_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// No convoys: where a load leaves nothing in the store, the pods that waited for it load in parallel.

func private(takes time.Duration, v int) func(context.Context, *stampede.Load[int]) (int, error) {
	return func(_ context.Context, l *stampede.Load[int]) (int, error) {
		l.DoNotShare()
		<-time.After(takes)
		return v, nil
	}
}

func TestPodsLoadInParallelWhenALoadLeavesNothing(t *testing.T) {
	const takes, n = 100 * time.Millisecond, 8
	big := strings.Repeat("x", 2000)
	for name, c := range map[string]struct {
		o    stampede.Options
		load func(context.Context, *stampede.Load[string]) (string, error)
		want string
		err  error
	}{
		"do not store": {load: func(_ context.Context, l *stampede.Load[string]) (string, error) { l.DoNotStore(); return "v", nil }, want: "v"},
		"no TTL":       {load: func(_ context.Context, l *stampede.Load[string]) (string, error) { l.TTL(0); return "v", nil }, want: "v"},
		"too large": {o: stampede.Options{MaxValueSize: 1000},
			load: func(context.Context, *stampede.Load[string]) (string, error) { return big, nil }, want: big},
		"failing": {load: func(context.Context, *stampede.Load[string]) (string, error) { return "", errBoom }, err: errBoom},
		"failing without back-off": {o: stampede.Options{Policy: stampede.Policy{ErrorBackoff: -1}},
			load: func(context.Context, *stampede.Load[string]) (string, error) { return "", errBoom }, err: errBoom},
		"not found, not remembered": {o: stampede.Options{Policy: stampede.Policy{NotFoundTTL: -1}},
			load: func(context.Context, *stampede.Load[string]) (string, error) { return "", stampede.ErrNotFound }, err: stampede.ErrNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := new(bytesStore)
				done := make(chan time.Duration)
				for i := range n {
					g := newGuard[string](t, store, c.o)
					go func() {
						time.Sleep(time.Duration(i) * time.Millisecond)
						begun := time.Now()
						r, err := g.Fetch(t.Context(), "k", func(ctx context.Context, l *stampede.Load[string]) (string, error) {
							<-time.After(takes)
							return c.load(ctx, l)
						})
						if r.Value != c.want || err != c.err {
							t.Errorf("Fetch = %.10q, %v", r.Value, err)
						}
						done <- time.Since(begun)
					}()
				}
				for range n {
					if d := <-done; d > 2*takes {
						t.Errorf("a caller waited %v, for more than the first load and its own", d)
					}
				}
			})
		})
	}
}

// fullStore cannot write: as Redis does then, it leaves a marker in the place of the lease.
type fullStore struct{ bytesStore }

func (s *fullStore) Commit(ctx context.Context, key stampede.Key, lease stampede.Stamp, _ stampede.Entry) (stampede.Verdict, error) {
	_, _ = s.Fail(ctx, key, lease, stampede.Backoff{First: time.Second})
	return stampede.NotStored, errServer
}

func TestPodsAreServedInParallelWhenTheStoreRefusesWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(fullStore)
		var answers []<-chan answer
		for range 8 {
			p := newPod(t, store, stampede.Options{})
			answers = append(answers, going(t.Context(), p.Guard, "k", slowly(100*time.Millisecond, 1)))
		}
		for _, a := range answers {
			(<-a).within(t, 1, 200*time.Millisecond)
		}
	})
}

func TestPassMarkerEndsWithSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		a, b := newGuard[int](t, store, stampede.Options{}), newGuard[int](t, store, stampede.Options{})
		pass := func(_ context.Context, l *stampede.Load[int]) (int, error) {
			l.Pass(time.Minute)
			<-time.After(100 * time.Millisecond)
			return 1, nil
		}
		_, err := a.Fetch(t.Context(), "k", pass)
		must(t, err)
		time.Sleep(30 * time.Second)
		c := make(chan time.Duration)
		for i := range 16 {
			g := []*stampede.Guard[int]{a, b}[i%2]
			go func() {
				begun := time.Now()
				if _, err := g.Fetch(t.Context(), "k", pass); err != nil {
					t.Error(err)
				}
				c <- time.Since(begun)
			}()
		}
		for range 16 {
			if d := <-c; d != 100*time.Millisecond {
				t.Errorf("a caller waited %v while the pass marker says to load", d)
			}
		}
		must(t, b.Set(t.Context(), "k", 5))
		get(t.Context(), a, "k", never(t)).is(t, 5, 0)
	})
}

func TestReleaseWaitersLetsThemGoBeforeTheLoadEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		a, b := newGuard[int](t, store, stampede.Options{}), newGuard[int](t, store, stampede.Options{})
		stream := func(_ context.Context, l *stampede.Load[int]) (int, error) {
			<-time.After(100 * time.Millisecond)
			l.ReleaseWaiters()
			<-time.After(20 * time.Second)
			return 1, nil
		}
		done := make(chan stampede.Result[int])
		go func() {
			r, err := a.Fetch(t.Context(), "k", stream)
			if err != nil {
				t.Error(err)
			}
			done <- r
		}()
		synctest.Wait()
		one, two := going(t.Context(), a, "k", value(2)), going(t.Context(), b, "k", value(3))
		(<-one).is(t, 2, 100*time.Millisecond)
		(<-two).is(t, 3, 100*time.Millisecond)
		if r := <-done; r.Value != 1 || r.Stored || r.Shared {
			t.Errorf("%+v", r)
		}
	})
}
