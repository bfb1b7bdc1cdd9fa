package contender

import (
	"context"
	"time"

	"github.com/bsm/redislock"
)

var redisLock = Contender{
	Name: "redislock",
	About: "GET; on a miss, once per pod by singleflight: Obtain with TTL = load timeout, as nothing renews it, and LinearBackoff(100ms); GET again; load, SET, Release. " +
		"Without a lock for an error of Redis: load.",
	Module: "github.com/bsm/redislock",
	Kind:   Elected,
	Open: func(e *Env) (Cache, error) {
		p, f := newPlain(e), &flights{Env: e}
		locker := redislock.New(p.rdb)
		wait := &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)}
		return locked(p, f, func(ctx context.Context, key string) (func(context.Context), error) {
			l, err := locker.Obtain(ctx, key+":lock", e.LoadTimeout, wait)
			if err != nil {
				return nil, err
			}
			return func(ctx context.Context) { _ = l.Release(ctx) }, nil
		}), nil
	},
}

// locked is a cache that loads under a lock, which one caller in each pod asks for.
func locked(p *plain, f *flights, lock func(ctx context.Context, key string) (unlock func(context.Context), err error)) Cache {
	return cache{
		get: func(ctx context.Context, key string) ([]byte, error) {
			if v, ok := p.read(ctx, key); ok {
				return v, nil
			}
			return f.do(ctx, key, func(ctx context.Context) ([]byte, error) {
				unlock, err := lock(ctx, key)
				if err != nil {
					if ctx.Err() != nil {
						return nil, err
					}
					return p.Load(ctx, key)
				}
				defer unlock(context.WithoutCancel(ctx))
				if v, ok := p.read(ctx, key); ok {
					return v, nil
				}
				return p.fill(ctx, key)
			})
		},
		close: p.rdb.Close,
	}
}
