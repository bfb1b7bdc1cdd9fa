package reports_test

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// breaking are the ways in which a loader can end without returning.
var breaking = []struct {
	name string
	how  func()
	want error // what the error is; nil: a *PanicError
}{
	{"panics with an error", func() { panic(errSource) }, errSource},
	{"panics with text", func() { panic("oh no") }, nil},
	{"panics with nil", func() { panic(nil) }, nil},
	{"aborts an HTTP handler", func() { panic(http.ErrAbortHandler) }, http.ErrAbortHandler},
	{"dereferences nil", func() { var p *int; *p = 1 }, nil},
	{"calls Goexit", runtime.Goexit, stampede.ErrGoexit},
}

// golang/go#33519, golang/go#41133: after a panic that somebody had recovered, all later calls for the key hung.
// ZiggyCreatures/FusionCache#647: a factory that threw at once leaked the lock in the process.
// golang/go#67087: after runtime.Goexit those who waited hung.
func TestAKeyWorksAfterItsLoaderBroke(t *testing.T) {
	for _, b := range breaking {
		t.Run(b.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := open[int](t, new(stampede.MemoryStore), stampede.Options{Name: "n"})
				loads := numbered(0)
				crowd(20, func(int) {
					v, err := g.Get(t.Context(), "k", func(ctx context.Context) (int, error) {
						time.Sleep(100 * time.Millisecond)
						_, _ = loads.Load(ctx, "k")
						b.how()
						return 0, nil
					})
					if v != 0 || err == nil || b.want != nil && !errors.Is(err, b.want) {
						t.Errorf("Get = %d, %v", v, err)
					}
					var p *stampede.PanicError
					if errors.As(err, &p) == errors.Is(b.want, stampede.ErrGoexit) {
						t.Errorf("the error is %T", err)
					}
					if p != nil && !strings.Contains(string(p.Stack), "panics_test.go") {
						t.Errorf("the stack does not show the loader: %s", p.Stack)
					}
				})
				begun := time.Now()
				wants(t, g, "k", loads.Loader("k"), 2)
				took(t, begun, 0)
				if s := g.Stats(); s.Loading != 0 || s.Abandoned != 0 || s.LoadsPanicked != 1 {
					t.Errorf("%d loads under way, %d abandoned, %d panicked", s.Loading, s.Abandoned, s.LoadsPanicked)
				}
			})
		})
	}
}

// golang/go#60060, golang/go#75748: DoChan panics again on a goroutine where nobody can recover it, which ends the process.
func TestAPanicInALoadBehindReachesTheObserverOnly(t *testing.T) {
	for _, b := range breaking {
		t.Run(b.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var seen recorder
				p := exactly(time.Second, time.Minute)
				p.ErrorBackoff, p.MaxErrorBackoff = 2*time.Second, -1
				g := open[int](t, new(stampede.MemoryStore), stampede.Options{Name: "n", Policy: p, Observer: &seen})
				loads := numbered(0)
				wants(t, g, "k", loads.Loader("k"), 1)
				time.Sleep(time.Second)
				broken := func(ctx context.Context) (int, error) {
					_, _ = loads.Load(ctx, "k")
					b.how()
					return 0, nil
				}
				for range 3 { // once each 2 s, however many ask
					for range 200 {
						wants(t, g, "k", broken, 1)
						time.Sleep(10 * time.Millisecond)
					}
				}
				synctest.Wait()
				loads.AssertLoads(t, 1+3)
				told := seen.of(stampede.EventLoadPanicked)
				if len(told) != 3 || b.want != nil && !errors.Is(told[0].Err, b.want) {
					t.Errorf("the observer was told %+v", told)
				}
				wants(t, g, "k", loads.Loader("k"), 1)
				synctest.Wait()
				wants(t, g, "k", forbidden(t), 5)
			})
		})
	}
}
