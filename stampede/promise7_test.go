package stampede_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// P7: loaders may misbehave.

func panicked(with any) func(error) bool {
	return func(err error) bool {
		var p *stampede.PanicError
		if !errors.As(err, &p) || !strings.Contains(string(p.Stack), "promise7_test.go") || !strings.Contains(p.Error(), fmt.Sprint(with)) {
			return false
		}
		wrapped, isErr := with.(error)
		return p.Value == with && (!isErr || errors.Is(err, wrapped))
	}
}

func TestEveryWaiterLearnsHowALoadEndedAndTheKeyWorksAgain(t *testing.T) {
	const takes = 100 * time.Millisecond
	hang := func(ctx context.Context) { <-time.After(time.Hour) }
	wrapped := fmt.Errorf("no product: %w", stampede.ErrNotFound)
	for name, c := range map[string]struct {
		ends func(context.Context) (int, error)
		want func(error) bool
		took time.Duration
	}{
		"error":            {func(context.Context) (int, error) { return 7, errBoom }, func(err error) bool { return err == errBoom }, takes},
		"not found":        {func(context.Context) (int, error) { return 7, wrapped }, func(err error) bool { return err == wrapped }, takes},
		"panic":            {func(context.Context) (int, error) { panic("at the disco") }, panicked("at the disco"), takes},
		"panic with error": {func(context.Context) (int, error) { panic(errBoom) }, panicked(errBoom), takes},
		"abort handler":    {func(context.Context) (int, error) { panic(http.ErrAbortHandler) }, panicked(http.ErrAbortHandler), takes},
		"not found panic":  {func(context.Context) (int, error) { panic(stampede.ErrNotFound) }, panicked(stampede.ErrNotFound), takes},
		"nil panic": {func(context.Context) (int, error) { panic(nil) }, func(err error) bool {
			var p *runtime.PanicNilError
			return errors.As(err, &p)
		}, takes},
		"Goexit": {func(context.Context) (int, error) { runtime.Goexit(); return 7, nil },
			func(err error) bool { return err == stampede.ErrGoexit }, takes},
		"own deadline": {func(context.Context) (int, error) { return 7, context.DeadlineExceeded },
			func(err error) bool { return err == context.DeadlineExceeded }, takes},
		"obedient": {func(ctx context.Context) (int, error) { <-ctx.Done(); return 7, ctx.Err() },
			func(err error) bool { return errors.Is(err, stampede.ErrLoadTimeout) }, time.Second},
		"deaf": {func(ctx context.Context) (int, error) { hang(ctx); return 7, nil },
			func(err error) bool { return errors.Is(err, stampede.ErrLoadTimeout) }, time.Second},
		"deaf, then panics": {func(ctx context.Context) (int, error) { hang(ctx); panic("late") },
			func(err error) bool { return errors.Is(err, stampede.ErrLoadTimeout) }, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := new(stampede.MemoryStore)
				o := stampede.Options{LoadTimeout: time.Second, WaitTimeout: 5 * time.Second, Policy: steady}
				a, b := newPod(t, store, o), newPod(t, store, o)
				bad := func(ctx context.Context) (int, error) {
					<-time.After(takes)
					return c.ends(ctx)
				}
				var answers []<-chan answer
				for range 4 {
					answers = append(answers, going(t.Context(), a.Guard, "k", bad))
				}
				synctest.Wait()
				elsewhere := going(t.Context(), b.Guard, "k", value(2))
				for _, a := range answers {
					got := <-a
					if !c.want(got.err) || got.v != 0 || got.took != c.took {
						t.Errorf("Get = %d, %v after %v", got.v, got.err, got.took)
					}
				}
				if name == "not found" {
					(<-elsewhere).fails(t, stampede.ErrNotFound, c.took)
					time.Sleep(5 * time.Second)
				} else {
					(<-elsewhere).is(t, 2, c.took)
				}
				if name == "not found" {
					get(t.Context(), a.Guard, "k", value(3)).is(t, 3, 0)
				} else { // what the other pod has loaded is stored
					get(t.Context(), a.Guard, "k", never(t)).is(t, 2, 0)
				}
				if s := a.Stats(); strings.Contains(name, "panic") && !strings.Contains(name, "deaf") && s.LoadsPanicked != 1 {
					t.Errorf("%d panics were counted: %+v", s.LoadsPanicked, s)
				}
				time.Sleep(2 * time.Hour)
				if s := a.Stats(); s.Loading != 0 || s.Abandoned != 0 {
					t.Errorf("%d loads, %d abandoned loaders at the end", s.Loading, s.Abandoned)
				}
			})
		})
	}
}

func TestLateResultOfAnAbandonedLoaderIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{LoadTimeout: time.Second})
		get(t.Context(), p.Guard, "k", slowly(time.Minute, 1)).fails(t, stampede.ErrLoadTimeout, time.Second)
		if s := p.Stats(); s.Abandoned != 1 || s.LoadsTimedOut != 1 {
			t.Errorf("%+v", s)
		}
		get(t.Context(), p.Guard, "k", value(2)).is(t, 2, 0)
		must(t, p.Delete(t.Context(), "k"))
		time.Sleep(time.Minute)
		synctest.Wait()
		get(t.Context(), p.Guard, "k", value(3)).is(t, 3, 0)
		if s := p.Stats(); s.Abandoned != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestLoadersThatNeverEndAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{LoadTimeout: time.Second, MaxAbandoned: 5, Policy: steady})
		hangs := func(context.Context) (int, error) { <-hang; return 0, errBoom }
		must(t, p.Set(t.Context(), "stale", 1))
		must(t, p.Expire(t.Context(), "stale"))
		before := runtime.NumGoroutine()
		for i := range 50 {
			got := get(t.Context(), p.Guard, fmt.Sprint(i), hangs)
			switch {
			case i < 5 && (!errors.Is(got.err, stampede.ErrLoadTimeout) || got.took != time.Second),
				i >= 5 && (!errors.Is(got.err, stampede.ErrOverloaded) || got.took != 0):
				t.Errorf("load %d: %v after %v", i, got.err, got.took)
			}
			if i == 0 {
				must(t, p.Set(t.Context(), "stale", 1))
			}
		}
		must(t, p.Set(t.Context(), "stale", 1))
		must(t, p.Expire(t.Context(), "stale"))
		get(t.Context(), p.Guard, "stale", value(2)).is(t, 1, 0)
		synctest.Wait()
		if n := runtime.NumGoroutine() - before; n > 10 {
			t.Errorf("%d goroutines more than before", n)
		}
		if s := p.Stats(); s.Abandoned != 5 || s.Overloaded < 45 {
			t.Errorf("%+v", s)
		}
		close(hang)
		synctest.Wait()
		get(t.Context(), p.Guard, "0", value(2)).is(t, 2, 0)
	})
}

func TestAbandonedLoadersAreNotBoundedWithANegativeMaxAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{LoadTimeout: time.Second, MaxAbandoned: -1})
		for i := range 200 {
			get(t.Context(), p.Guard, fmt.Sprint(i), slowly(time.Hour, 1)).fails(t, stampede.ErrLoadTimeout, time.Second)
		}
		time.Sleep(time.Hour)
	})
}
