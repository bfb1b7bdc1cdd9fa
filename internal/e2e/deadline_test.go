package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/internal/redistest"
	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/redisstore"
)

// A caller's deadline holds whatever Redis does: go-redis in its default settings would not look at it.
func TestCallersReturnAtTheirDeadlineThoughTheNetworkIsCut(t *testing.T) {
	t.Parallel()
	s := redistest.Server(t)
	for _, limit := range []time.Duration{5 * time.Millisecond, 50 * time.Millisecond} {
		t.Run(limit.String(), func(t *testing.T) {
			t.Parallel()
			proxy := redistest.Proxy(t, s.Addr())
			p := newPod(t, "pod", redis.NewClient(&redis.Options{Addr: proxy.Addr()}), redisstore.Options{},
				stampede.Options{Name: "e2e" + limit.String(), Policy: stampede.Policy{TTL: time.Minute}})
			_, err := p.guard.Get(t.Context(), "seen", func(context.Context) (string, error) { return "seen", nil })
			must(t, err)
			proxy.BlackHole(true)

			slow := func(ctx context.Context) (string, error) {
				pause(ctx, 300*time.Millisecond)
				return "late", ctx.Err()
			}
			var wg sync.WaitGroup
			for i := range 20 {
				for name, do := range map[string]func(ctx context.Context) error{
					"Get": func(ctx context.Context) error {
						_, err := p.guard.Get(ctx, fmt.Sprintf("cold%d", i), slow)
						return err
					},
					"Peek": func(ctx context.Context) error {
						_, _, err := p.guard.Peek(ctx, "cold")
						return err
					},
					"Set":    func(ctx context.Context) error { return p.guard.Set(ctx, "set", "v") },
					"Delete": func(ctx context.Context) error { return p.guard.Delete(ctx, "deleted") },
					"Expire": func(ctx context.Context) error { return p.guard.Expire(ctx, "expired") },
					"Get of a copy": func(ctx context.Context) error {
						v, err := p.guard.Get(ctx, "seen", slow)
						if err == nil && v != "seen" {
							return fmt.Errorf("got %q", v)
						}
						if err == nil {
							return context.DeadlineExceeded // nothing is wrong with being served
						}
						return err
					},
				} {
					wg.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), limit)
						defer cancel()
						begun := time.Now()
						err := do(ctx)
						took := time.Since(begun)
						if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, stampede.ErrUnavailable) {
							t.Errorf("%s: %v", name, err)
						}
						if took > limit+100*time.Millisecond+3*machine.late(begun, time.Now()) {
							t.Errorf("%s took %v, its ctx ended after %v", name, took, limit)
						}
					})
				}
				wait(2 * time.Millisecond)
			}
			wg.Wait()
		})
	}
}
