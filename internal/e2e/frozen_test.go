package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/herdgate/herdgate/internal/redistest"
	"github.com/herdgate/herdgate/stampede"
)

// What ends a load is done aside: Redis stops between the election and that, and nobody who waits for the load feels it.
func TestCallerDoesNotWaitForARedisThatStopsDuringItsLoad(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		say   func(l *stampede.Load[string]) error
		bound time.Duration
		err   error
	}{
		"release": {say: func(l *stampede.Load[string]) error { l.DoNotStore(); return nil }},
		"fail":    {say: func(*stampede.Load[string]) error { return boom }, err: boom},
		"commit":  {say: func(*stampede.Load[string]) error { return nil }, bound: storeBudget},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Server(t)
			p := newPods(t, 1, s.Addr(), stampede.Options{})[0]
			_, err := p.guard.Get(t.Context(), "warm", nothingLoaded)
			must(t, err)
			var loaded time.Time
			var v stampede.Result[string]
			for i := 0; loaded.IsZero(); i++ {
				if i == 20 {
					t.Fatal("no load has got a lease")
				}
				v, err = p.guard.Fetch(t.Context(), fmt.Sprintf("k%d", i), func(_ context.Context, l *stampede.Load[string]) (string, error) {
					if !l.Leased() {
						return "", nil // the machine was slow; once more
					}
					if err := s.Stop(); err != nil {
						t.Error(err)
					}
					loaded = time.Now()
					return "v", c.say(l)
				})
			}
			took := time.Since(loaded)
			if !errors.Is(err, c.err) || err == nil && v.Value != "v" {
				t.Errorf("Fetch = %q, %v", v.Value, err)
			}
			if most := c.bound + 50*time.Millisecond; took > most+3*machine.late(loaded, time.Now()) {
				t.Errorf("the caller waited %v after its load", took)
			}
			t.Logf("the caller returned %v after its load", took)

			must(t, s.Cont())
			// The lease is given back, or ends by itself; and the pod is at work again.
			redistest.Eventually(t, leaseLength+tolerance(loaded)+time.Second, func() bool { return len(held(t, s)) == 0 })
			n := 0
			redistest.Eventually(t, time.Second+tolerance(loaded), func() bool {
				n++
				r, err := p.guard.Fetch(t.Context(), fmt.Sprintf("next%d", n), func(context.Context, *stampede.Load[string]) (string, error) { return "v", nil })
				return err == nil && r.Stored
			})
		})
	}
}
