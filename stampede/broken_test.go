package stampede_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/stampedetest"
)

// A copy is for when the store does not answer. When it has answered that there is nothing, a copy of what
// was stored is as good as deleted, even if nobody told this pod of the Delete.
func TestCopyOfWhatTheStoreDoesNotHaveAnyMoreIsNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(bytesStore)
		a, b := newPod(t, store, stampede.Options{Policy: steady}), newPod(t, store, stampede.Options{Policy: steady})
		get(t.Context(), a.Guard, "k", value(1)).is(t, 1, 0)
		get(t.Context(), b.Guard, "k", never(t)).is(t, 1, 0)
		b.net.Mute(true) // it hears of nothing
		must(t, a.Delete(t.Context(), "k"))
		b.net.Script(func(c stampedetest.Call) (f stampedetest.Fault) {
			if c.Step == stampedetest.StepElect {
				f.Err = errors.New("no answer")
			}
			return f
		})
		get(t.Context(), b.Guard, "k", value(2)).is(t, 2, 0)
	})
}

// Pods that lose their leases time and again must not send a caller round for ever.
func TestCallWhoseLeasesAreLostEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{Policy: steady, Lease: 30 * time.Millisecond})
		p.net.Script(func(c stampedetest.Call) (f stampedetest.Fault) {
			if c.Step == stampedetest.StepRenew {
				f.Steal = 20 * time.Millisecond
			}
			return f
		})
		src := &source{takes: 800 * time.Millisecond}
		got := get(t.Context(), p.Guard, "k", src.load)
		if n, _ := src.loads(); got.err != nil || n > 3 || got.took > 2*time.Second {
			t.Errorf("%+v after %d loads", got, n)
		}
	})
}

// That there is no such thing is not served stale, whatever windows stand beside it.
func TestNotFoundIsNeverServedStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, e := range map[string]stampede.Entry{
			"stale":    {NotFound: true, TTL: time.Second, StaleFor: time.Hour},
			"if error": {NotFound: true, TTL: time.Second, StaleIfError: time.Hour},
		} {
			store := new(stampede.MemoryStore)
			g := newGuard[int](t, store, stampede.Options{Policy: steady})
			get(t.Context(), g, name, func(context.Context) (int, error) { return 0, stampede.ErrNotFound }).fails(t, stampede.ErrNotFound, 0)
			kept, err := store.Read(t.Context(), stampede.Key{Space: "test", Key: name})
			must(t, err)
			e.Type = kept.Type
			must(t, store.Set(t.Context(), stampede.Key{Space: "test", Key: name}, e))
			time.Sleep(2 * time.Second)
			get(t.Context(), g, name, func(context.Context) (int, error) { return 0, errBoom }).fails(t, errBoom, 0)
			if _, ok, err := g.Peek(t.Context(), name); ok || err != nil {
				t.Errorf("%s: Peek: %v, %v", name, ok, err)
			}
		}
	})
}

// asPanicsError is an error whose methods are no better than the loader.
type asPanicsError struct{}

func (asPanicsError) Error() string { return "bad" }
func (asPanicsError) As(any) bool   { panic("As") }
func (asPanicsError) Is(error) bool { panic("Is") }

func TestErrorWhoseMethodsPanicIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{Policy: steady})
		bad := func(context.Context) (int, error) { return 0, asPanicsError{} }
		for range 2 { // the lease is given back
			if got := get(t.Context(), p.Guard, "k", bad); got.err != (asPanicsError{}) || got.took != 0 {
				t.Errorf("%+v", got)
			}
		}
		pass(t, p, "alone") // and where each caller loads for itself
		if got := get(t.Context(), p.Guard, "alone", bad); got.err != (asPanicsError{}) {
			t.Errorf("%+v", got)
		}
	})
}

// pass makes callers of key load each for itself.
func pass(t *testing.T, p pod, key string) {
	t.Helper()
	_, err := p.Fetch(t.Context(), key, func(_ context.Context, l *stampede.Load[int]) (int, error) {
		l.Pass(time.Hour)
		return 1, nil
	})
	must(t, err)
	synctest.Wait()
}

// Drivers give up by the deadline they find in the ctx, a moment before its timer does.
func TestLoaderThatLooksAtItsDeadlineTimesOut(t *testing.T) {
	g := newGuard[int](t, new(stampede.MemoryStore), stampede.Options{LoadTimeout: 5 * time.Millisecond})
	for range 50 {
		_, err := g.Get(t.Context(), "k", func(ctx context.Context) (int, error) {
			end, _ := ctx.Deadline()
			for time.Now().Before(end) {
			}
			return 0, context.DeadlineExceeded
		})
		if !errors.Is(err, stampede.ErrLoadTimeout) {
			t.Fatal(err)
		}
	}
}

// A loader for one caller is given up when that leaves, and counted.
func TestLoadersOfCallersWhoLeftAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{Policy: steady, MaxAbandoned: 8})
		pass(t, p, "k")
		hang := make(chan struct{})
		running := 0
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			_, _ = p.Get(ctx, "k", func(context.Context) (int, error) { running++; <-hang; return 0, nil })
			cancel()
			synctest.Wait()
		}
		if n := p.Stats().Abandoned; running > 9 || n != running {
			t.Errorf("%d loaders run, %d are counted, want 8", running, n)
		}
		close(hang)
	})
}

// One key that hangs leaves room for the others.
func TestKeyThatHangsDoesNotStopOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{Policy: steady, LoadTimeout: time.Second, MaxAbandoned: 16})
		hang := make(chan struct{})
		for range 20 {
			_ = get(t.Context(), p.Guard, "hangs", func(context.Context) (int, error) { <-hang; return 0, nil })
		}
		get(t.Context(), p.Guard, "k", value(1)).is(t, 1, 0)
		close(hang)
	})
}

// panicking is a store that panics in some of its steps.
type panicking struct {
	*bytesStore
	steps map[string]bool
}

func (s *panicking) step(name string) {
	if s.steps[name] {
		panic(name)
	}
}

func (s *panicking) Read(ctx context.Context, k stampede.Key) (stampede.Entry, error) {
	s.step("Read")
	return s.bytesStore.Read(ctx, k)
}

func (s *panicking) Commit(ctx context.Context, k stampede.Key, l stampede.Stamp, e stampede.Entry) (stampede.Verdict, error) {
	s.step("Commit")
	return s.bytesStore.Commit(ctx, k, l, e)
}

func (s *panicking) CommitMarked(ctx context.Context, k stampede.Key, l stampede.Stamp, e stampede.Entry) (stampede.Verdict, error) {
	s.step("CommitMarked")
	return s.bytesStore.CommitMarked(ctx, k, l, e)
}

func (s *panicking) Renew(ctx context.Context, k stampede.Key, l stampede.Stamp, d time.Duration) (stampede.Holding, error) {
	s.step("Renew")
	return s.bytesStore.Renew(ctx, k, l, d)
}

func (s *panicking) Fail(ctx context.Context, k stampede.Key, l stampede.Stamp, b stampede.Backoff) (time.Duration, error) {
	s.step("Fail")
	return s.bytesStore.Fail(ctx, k, l, b)
}

// On goroutines of the guard's own nobody else could recover: the process would end.
func TestStoreThatPanicsDoesNotEndTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &panicking{bytesStore: new(bytesStore), steps: map[string]bool{"Commit": true, "CommitMarked": true, "Renew": true, "Fail": true}}
		g := newGuard[int](t, s, stampede.Options{Policy: steady})
		slow := &source{takes: 2 * time.Second}
		get(t.Context(), g, "renewed", slow.load)
		for range 3 {
			if got := get(t.Context(), g, "k", value(1)); got.v != 1 || got.err != nil {
				t.Errorf("%+v", got)
			}
			if got := get(t.Context(), g, "fails", func(context.Context) (int, error) { return 0, errBoom }); !errors.Is(got.err, errBoom) {
				t.Errorf("%+v", got)
			}
			synctest.Wait()
		}
		pass(t, pod{Guard: g}, "marked")
		get(t.Context(), g, "marked", value(1))
		s.steps = map[string]bool{"Read": true}
		must(t, g.Refresh(t.Context(), "k", value(2)))
		synctest.Wait()
		s.steps = nil
		time.Sleep(2 * time.Second)
		get(t.Context(), g, "k", value(3)).is(t, 3, 0)
		get(t.Context(), g, "k", never(t)).is(t, 3, 0)
	})
}

// What the handler of a logger does costs no caller its value, and no load behind the process.
func TestLoggerThatPanicsIsBorne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, o := new(bytesStore), stampede.Options{Policy: steady, Logger: slog.New(loud{slog.DiscardHandler})}
		g := newGuard[int](t, store, o)
		get(t.Context(), g, "k", value(1)).is(t, 1, 0)
		time.Sleep(steady.TTL)
		get(t.Context(), g, "k", func(context.Context) (int, error) { return 0, errBoom }).is(t, 1, 0)
		synctest.Wait()
		other, third := newGuard[string](t, store, o), newGuard[string](t, store, o)
		must(t, other.Refresh(t.Context(), "k", func(context.Context) (string, error) { return "", errBoom }))
		synctest.Wait()
		if v, err := third.Get(t.Context(), "k", func(context.Context) (string, error) { return "v", nil }); v != "v" || err != nil {
			t.Errorf("%q, %v", v, err)
		}
		g.SetMode(stampede.ReadOnly)
	})
}

// loud is a handler that panics.
type loud struct{ slog.Handler }

func (loud) Enabled(context.Context, slog.Level) bool  { return true }
func (loud) Handle(context.Context, slog.Record) error { panic("Handle") }
