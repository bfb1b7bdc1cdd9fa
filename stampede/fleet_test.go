package stampede_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/stampedetest"
)

// steady is a policy that leaves nothing to chance.
var steady = stampede.Policy{TTL: time.Second, StaleFor: time.Second, StaleIfError: 10 * time.Second, Jitter: -1, Beta: -1}

var errBoom = errors.New("boom")

// bytesStore is a MemoryStore that keeps bytes, as Redis does.
type bytesStore struct{ stampede.MemoryStore }

func (*bytesStore) Encoded() bool { return true }

// pod is a guard with a store connection of its own.
type pod struct {
	*stampede.Guard[int]
	net *stampedetest.Faulty
}

func newPod(t *testing.T, store stampede.Store, o stampede.Options) pod {
	t.Helper()
	net := stampedetest.NewFaulty(store)
	return pod{newGuard[int](t, net, o), net}
}

// source is a loader that counts. Its n-th load returns n after the time it takes, or early, with an
// error, when its ctx ends.
type source struct {
	takes time.Duration
	fails error // each load ends with it

	mu                  sync.Mutex // protects what follows
	count, running, top int
}

func (s *source) load(ctx context.Context) (int, error) {
	s.mu.Lock()
	s.count++
	n := s.count
	s.running++
	s.top = max(s.top, s.running)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running--
	}()
	if s.takes > 0 {
		timer := time.NewTimer(s.takes)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	if s.fails != nil {
		return 0, s.fails
	}
	return n, nil
}

// loads returns how many loads were started, and how many ran at once.
func (s *source) loads() (count, top int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count, s.top
}

// value is a loader that returns v at once.
func value[T any](v T) func(context.Context) (T, error) {
	return func(context.Context) (T, error) { return v, nil }
}

// never is a loader that must not run.
func never(t *testing.T) func(context.Context) (int, error) {
	return func(context.Context) (int, error) {
		t.Error("a load ran")
		return 0, errBoom
	}
}

// slowly returns v after d, whatever becomes of its ctx.
func slowly(d time.Duration, v int) func(context.Context) (int, error) {
	return func(context.Context) (int, error) {
		<-time.After(d)
		return v, nil
	}
}

// answer is what a Get returned, and when.
type answer struct {
	v    int
	err  error
	took time.Duration
}

func get(ctx context.Context, g *stampede.Guard[int], key string, load func(context.Context) (int, error)) answer {
	begun := time.Now()
	v, err := g.Get(ctx, key, load)
	return answer{v, err, time.Since(begun)}
}

// going is a Get on a goroutine of its own; the channel holds its answer.
func going(ctx context.Context, g *stampede.Guard[int], key string, load func(context.Context) (int, error)) <-chan answer {
	c := make(chan answer, 1)
	go func() { c <- get(ctx, g, key, load) }()
	return c
}

// is demands an answer without error, after exactly so long.
func (a answer) is(t *testing.T, v int, took time.Duration) {
	t.Helper()
	if a.v != v || a.err != nil || a.took != took {
		t.Errorf("Get = %d, %v after %v, want %d after %v", a.v, a.err, a.took, v, took)
	}
}

// within demands an answer without error, after at most so long.
func (a answer) within(t *testing.T, v int, took time.Duration) {
	t.Helper()
	if a.v != v || a.err != nil || a.took > took {
		t.Errorf("Get = %d, %v after %v, want %d within %v", a.v, a.err, a.took, v, took)
	}
}

// fails demands an error, after exactly so long.
func (a answer) fails(t *testing.T, want error, took time.Duration) {
	t.Helper()
	if !errors.Is(a.err, want) || a.v != 0 || a.took != took {
		t.Errorf("Get = %d, %v after %v, want %v after %v", a.v, a.err, a.took, want, took)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
