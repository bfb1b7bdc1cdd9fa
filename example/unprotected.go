package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"

	"github.com/herdgate/herdgate/stampede"
)

const plainKey = "herdgate-example:report"

// unprotected is the cache that everybody writes first: GET, and on a miss load and SET.
type unprotected struct {
	rdb  *redis.Client
	ttl  time.Duration
	load loadFunc
}

func newUnprotected(cfg *config, rdb *redis.Client, _ stampede.Store, load loadFunc) (protection, error) {
	return &unprotected{rdb, cfg.ttl, load}, nil
}

func (u *unprotected) get(ctx context.Context) (stampede.Result[Report], error) {
	r, err := u.read(ctx)
	if errors.Is(err, redis.Nil) {
		return u.refill(ctx)
	}
	return r, err
}

func (u *unprotected) read(ctx context.Context) (r stampede.Result[Report], err error) {
	data, err := u.rdb.Get(ctx, plainKey).Bytes()
	if err != nil {
		return r, err
	}
	r.From = stampede.FromStore
	return r, json.Unmarshal(data, &r.Value)
}

func (u *unprotected) refill(ctx context.Context) (r stampede.Result[Report], err error) {
	r.From = stampede.FromLoad
	if r.Value, err = u.load(ctx); err != nil {
		return r, err
	}
	data, err := json.Marshal(r.Value)
	if err != nil {
		return r, err
	}
	return r, u.rdb.Set(ctx, plainKey, data, u.ttl).Err()
}

func (u *unprotected) drop(ctx context.Context) error { return u.rdb.Del(ctx, plainKey).Err() }
func (*unprotected) stats() stampede.Stats            { return stampede.Stats{} }
func (*unprotected) close(context.Context) error      { return nil }

// collapsed lets the callers of a pod share a refill. Each pod still has its own.
type collapsed struct {
	unprotected
	group singleflight.Group
	ctx   context.Context // of loads
	stop  context.CancelFunc
}

func newCollapsed(cfg *config, rdb *redis.Client, _ stampede.Store, load loadFunc) (protection, error) {
	c := &collapsed{unprotected: unprotected{rdb, cfg.ttl, load}}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c, nil
}

func (c *collapsed) get(ctx context.Context) (stampede.Result[Report], error) {
	r, err := c.read(ctx)
	if !errors.Is(err, redis.Nil) {
		return r, err
	}
	// Not on the caller's ctx: when that caller leaves, the others must not fail with it.
	shared := c.group.DoChan(plainKey, func() (any, error) { return c.refill(c.ctx) })
	select {
	case got := <-shared:
		r, _ := got.Val.(stampede.Result[Report])
		return r, got.Err
	case <-ctx.Done():
		return r, ctx.Err()
	}
}

func (c *collapsed) close(ctx context.Context) error {
	c.stop()
	// Joins the refill that is under way, if there is one: when this returns, it has ended.
	select {
	case <-c.group.DoChan(plainKey, func() (any, error) { return nil, nil }):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
