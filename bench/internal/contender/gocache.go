package contender

import (
	"context"
	"time"

	gocache "github.com/go-redis/cache/v9"
)

var goRedisCache = Contender{
	Name:   "go-redis/cache",
	About:  "Once with TTL; no local cache. It counts any error of Redis as a miss, compresses values and refuses a TTL below 1 s.",
	Module: "github.com/go-redis/cache/v9",
	Open:   func(e *Env) (Cache, error) { return openGoCache(e, nil), nil },
}

var goRedisCacheLocal = Contender{
	Name:   "go-redis/cache+local",
	About:  "the same with NewTinyLFU(max(1000, keys), TTL/10): its example keeps local copies for a sixtieth of TTL, which is too short for the TTLs here.",
	Module: "github.com/go-redis/cache/v9",
	Open: func(e *Env) (Cache, error) {
		return openGoCache(e, gocache.NewTinyLFU(max(1000, e.Entries), max(e.TTL/10, 20*time.Millisecond))), nil
	},
}

func openGoCache(e *Env, local gocache.LocalCache) Cache {
	rdb := e.Redis()
	c := gocache.New(&gocache.Options{Redis: rdb, LocalCache: local})
	return cache{
		get: func(ctx context.Context, key string) (v []byte, err error) {
			err = c.Once(&gocache.Item{
				Ctx: ctx, Key: key, Value: &v, TTL: e.TTL,
				Do: func(item *gocache.Item) (any, error) { return e.Load(item.Ctx, item.Key) },
			})
			if err == nil && v == nil {
				err = errNoValue
			}
			return v, err
		},
		close: rdb.Close,
	}
}
