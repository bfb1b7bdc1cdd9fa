package reports_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/stampedetest"
)

var errSource = errors.New("the source is down")

// exactly is a policy without chance and without values kept for errors.
func exactly(ttl, staleFor time.Duration) stampede.Policy {
	return stampede.Policy{TTL: ttl, StaleFor: staleFor, StaleIfError: -1, Jitter: -1, Beta: -1}
}

// cold is a policy under which nothing ever goes stale during a test.
var cold = exactly(time.Hour, -1)

// open makes a guard over store and closes it with t.
func open[T any](t testing.TB, store stampede.Store, o stampede.Options) *stampede.Guard[T] {
	t.Helper()
	settle(t, &o)
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

// runs counts the names that were made: a test that runs again must not find what it left in a shared server.
var runs atomic.Int64

// unique makes a name for the guards of a test.
func unique(t testing.TB) string { return fmt.Sprintf("%s-%d", t.Name(), runs.Add(1)) }

// settle names a guard after its test, and lets it log nothing, unless the test says otherwise.
func settle(t testing.TB, o *stampede.Options) {
	if o.Name == "" {
		o.Name = unique(t)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// fleet makes pods of one name over one store.
func fleet(t testing.TB, n int, store stampede.Store, o stampede.Options) *stampedetest.Fleet[int] {
	t.Helper()
	settle(t, &o)
	return stampedetest.NewFleet[int](t, n, store, &o)
}

// numbered makes loads that each take so long; the n-th of a key returns n.
func numbered(takes time.Duration) *stampedetest.Loads[int] {
	return &stampedetest.Loads[int]{Takes: takes, Value: func(_ string, n int) int { return n }}
}

// deaf makes loads like numbered that do not look at their ctx.
func deaf(takes time.Duration) *stampedetest.Loads[int] {
	l := numbered(takes)
	l.Script(func(stampedetest.Run) stampedetest.Fate { return stampedetest.Fate{Deaf: true} })
	return l
}

// forbidden is a loader that must not run.
func forbidden(t *testing.T) func(context.Context) (int, error) {
	return func(context.Context) (int, error) {
		t.Error("a load ran")
		return 0, errSource
	}
}

// crowd calls f side by side and returns when all calls have.
func crowd(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// wants demands that Get returns v.
func wants(t *testing.T, g *stampede.Guard[int], key string, load func(context.Context) (int, error), v int) {
	t.Helper()
	if got, err := g.Get(t.Context(), key, load); got != v || err != nil {
		t.Errorf("Get = %d, %v, want %d", got, err, v)
	}
}

// took demands that no more and no less than d has passed: for bubbles.
func took(t *testing.T, begun time.Time, d time.Duration) {
	t.Helper()
	if passed := time.Since(begun); passed != d {
		t.Errorf("it took %v, want %v", passed, d)
	}
}

// atMost demands that no more than d has passed.
func atMost(t *testing.T, begun time.Time, d time.Duration) {
	t.Helper()
	if passed := time.Since(begun); passed > d {
		t.Errorf("it took %v, want at most %v", passed, d)
	}
}

// free demands that nobody holds the lease of key, and that no marker is in its place.
func free(t *testing.T, store stampede.Store, key stampede.Key) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	e, err := store.Read(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	el, err := store.Elect(ctx, key, stampede.Ballot{Token: stampede.NewToken(), Length: time.Second, Seen: e.Stamp})
	if err != nil {
		t.Fatal(err)
	}
	if el.Role != stampede.RoleLeader {
		t.Errorf("the lease of %q is not free: role %d for %v", key.Key, el.Role, el.Left)
		return
	}
	if err := store.Release(ctx, key, el.Lease, stampede.Pass{}); err != nil {
		t.Fatal(err)
	}
}

// recorder is an observer that keeps events.
type recorder struct {
	mu     sync.Mutex // protects events
	events []stampede.Event
}

func (r *recorder) Observe(e stampede.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *recorder) of(kind stampede.EventKind) (found []stampede.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Kind == kind {
			found = append(found, e)
		}
	}
	return found
}
