package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/stampede"
)

// guarded keeps the report behind a herdgate guard: one pod loads, everybody else gets the last report
// meanwhile.
type guarded struct {
	guard *stampede.Guard[Report]
	load  loadFunc
}

// reportKey is the one key of the guard: there is only one report.
const reportKey = "best-sellers"

func newGuarded(cfg *config, _ *redis.Client, store stampede.Store, load loadFunc) (protection, error) {
	guard, err := stampede.New[Report](store, &stampede.Options{
		Name:        "example-report",
		Policy:      stampede.Policy{TTL: cfg.ttl, StaleFor: 10 * cfg.ttl},
		LoadTimeout: 10 * time.Second,
		Logger:      logger,
	})
	if err != nil {
		return nil, err
	}
	return &guarded{guard, load}, nil
}

// get uses Fetch, not Get, because the handler tells where the report is from. With Get it would be
//
//	return g.guard.Get(ctx, reportKey, g.load)
func (g *guarded) get(ctx context.Context) (stampede.Result[Report], error) {
	return g.guard.Fetch(ctx, reportKey, func(ctx context.Context, _ *stampede.Load[Report]) (Report, error) {
		return g.load(ctx)
	})
}

func (g *guarded) drop(ctx context.Context) error  { return g.guard.Delete(ctx, reportKey) }
func (g *guarded) stats() stampede.Stats           { return g.guard.Stats() }
func (g *guarded) close(ctx context.Context) error { return g.guard.Close(ctx) }

// logger keeps quiet about all that is in order.
var logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
