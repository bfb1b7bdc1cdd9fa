package contender

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/viccon/sturdyc"
)

var sturdycMemory = Contender{
	Name: "sturdyc",
	About: "GetOrFetch; 10 shards, evicting 10 %, ttl = TTL + StaleFor; WithEarlyRefreshes from 0.9 TTL to TTL in the background, synchronous " +
		"after TTL + StaleFor; retries from TTL/5, not the 10 ms of its examples, because it starts another refresh while one takes longer. In memory.",
	Module: "github.com/viccon/sturdyc",
	Kind:   Memory,
	Open: func(e *Env) (Cache, error) {
		return sturdycCache(e, nil, refreshing(e)), nil
	},
}

var sturdycRedis = Contender{
	Name: "sturdyc+redis",
	About: "the same before WithDistributedStorageEarlyRefreshes on go-redis: entries in Redis live for TTL + StaleFor and are loaded anew after TTL; " +
		"in memory for TTL/10, as its documentation advises short ones there.",
	Module: "github.com/viccon/sturdyc",
	Open: func(e *Env) (Cache, error) {
		rdb := e.Redis()
		return sturdycCache(e, rdb.Close,
			sturdyc.WithDistributedStorageEarlyRefreshes(&sturdycStorage{rdb, e.TTL + e.StaleFor}, e.TTL)), nil
	},
}

func refreshing(e *Env) sturdyc.Option {
	return sturdyc.WithEarlyRefreshes(e.TTL*9/10, e.TTL, e.TTL+e.StaleFor, e.TTL/5)
}

func sturdycCache(e *Env, closer func() error, opts ...sturdyc.Option) Cache {
	ttl := e.TTL + e.StaleFor
	if closer != nil {
		ttl = max(e.TTL/10, time.Millisecond)
	}
	opts = append(opts, sturdyc.WithLog(new(sturdyc.NoopLogger)))
	c := sturdyc.New[[]byte](max(10_000, 2*e.Entries), 10, ttl, 10, opts...)
	return cache{
		get: func(ctx context.Context, key string) ([]byte, error) {
			return c.GetOrFetch(ctx, key, func(ctx context.Context) ([]byte, error) { return e.Load(ctx, key) })
		},
		close: closer,
	}
}

// sturdycStorage is the storage that sturdyc asks its users for.
type sturdycStorage struct {
	rdb  *redis.Client
	keep time.Duration
}

// Get returns what is stored; what cannot be read counts as absent.
func (s *sturdycStorage) Get(ctx context.Context, key string) ([]byte, bool) {
	v, err := s.rdb.Get(ctx, key).Bytes()
	return v, err == nil
}

// Set stores value. sturdyc asks for no error.
func (s *sturdycStorage) Set(ctx context.Context, key string, value []byte) {
	_ = s.rdb.Set(ctx, key, value, s.keep).Err()
}

// Delete removes what is stored.
func (s *sturdycStorage) Delete(ctx context.Context, key string) { _ = s.rdb.Del(ctx, key).Err() }

// GetBatch returns what is stored of keys.
func (s *sturdycStorage) GetBatch(ctx context.Context, keys []string) map[string][]byte {
	found := make(map[string][]byte)
	for _, key := range keys {
		if v, ok := s.Get(ctx, key); ok {
			found[key] = v
		}
	}
	return found
}

// SetBatch stores all records.
func (s *sturdycStorage) SetBatch(ctx context.Context, records map[string][]byte) {
	for key, value := range records {
		s.Set(ctx, key, value)
	}
}

// DeleteBatch removes what is stored under keys.
func (s *sturdycStorage) DeleteBatch(ctx context.Context, keys []string) {
	_ = s.rdb.Del(ctx, keys...).Err()
}
