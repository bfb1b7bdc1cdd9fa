package contender

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// The raw contenders only read, and load on their first miss. Their values do not expire.
var (
	rawGet = Contender{
		Name:  "raw GET",
		About: "go-redis, nothing but GET of a value that does not expire: what reading costs.",
		Kind:  Floor,
		Open: func(e *Env) (Cache, error) {
			rdb := e.Redis()
			return raw(e, rdb, func(ctx context.Context, key string) ([]byte, error) { return rdb.Get(ctx, key).Bytes() }), nil
		},
	}
	rawGetPTTL = Contender{
		Name:  "raw GET+PTTL",
		About: "the same, GET and PTTL in one pipeline.",
		Kind:  Floor,
		Open: func(e *Env) (Cache, error) {
			rdb := e.Redis()
			return raw(e, rdb, func(ctx context.Context, key string) ([]byte, error) {
				pipe := rdb.Pipeline()
				value := pipe.Get(ctx, key)
				pipe.PTTL(ctx, key)
				_, _ = pipe.Exec(ctx) // the errors are in the commands
				return value.Bytes()
			}), nil
		},
	}
	rawAutoPipeline = Contender{
		Name:  "raw GET autopipelined",
		About: "go-redis' AutoPipeline, in its default settings.",
		Kind:  Floor,
		Open: func(e *Env) (Cache, error) {
			rdb := e.Redis()
			ap, err := rdb.AutoPipeline()
			if err != nil {
				return nil, errors.Join(err, rdb.Close())
			}
			c := raw(e, rdb, func(ctx context.Context, key string) ([]byte, error) { return ap.Get(ctx, key).Bytes() })
			c.close = func() error { return errors.Join(ap.Close(), rdb.Close()) }
			return c, nil
		},
	}
)

func raw(e *Env, rdb *redis.Client, get func(ctx context.Context, key string) ([]byte, error)) cache {
	return cache{
		get: func(ctx context.Context, key string) ([]byte, error) {
			v, err := get(ctx, key)
			if !errors.Is(err, redis.Nil) {
				return v, err
			}
			if v, err = e.Load(ctx, key); err != nil {
				return nil, err
			}
			return v, rdb.Set(ctx, key, v, time.Hour).Err()
		},
		close: rdb.Close,
	}
}
