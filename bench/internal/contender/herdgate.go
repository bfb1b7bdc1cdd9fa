package contender

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/redisstore"
)

var herdgate = Contender{
	Name: "herdgate",
	About: "redisstore.New(rdb, nil) on a client as the others have it; Policy.TTL and StaleFor as given, LoadTimeout = load timeout, all else default " +
		"(where the workload says so, Jitter and Beta off). Copies in memory are for outages only.",
	Kind: Elected,
	Open: func(e *Env) (Cache, error) { return openRedisGuard(e, 0) },
}

var herdgateLocal = Contender{
	Name:  "herdgate+L1",
	About: "the same with Local.TTL = TTL/10, as the other local copies here.",
	Kind:  Elected,
	Open:  func(e *Env) (Cache, error) { return openRedisGuard(e, max(e.TTL/10, 20*time.Millisecond)) },
}

var herdgateMemory = Contender{
	Name:  "herdgate-memory",
	About: "the same over MemoryStore, with room for all keys. In memory.",
	Kind:  Memory,
	Open: func(e *Env) (Cache, error) {
		return openGuard(e, &stampede.MemoryStore{MaxEntries: max(10_000, 2*e.Entries)}, 0, func() error { return nil })
	},
}

func openRedisGuard(e *Env, local time.Duration) (Cache, error) {
	rdb := e.Redis()
	store, err := redisstore.New(rdb, &redisstore.Options{Logger: quiet})
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	return openGuard(e, store, local, func() error { return errors.Join(store.Close(), rdb.Close()) })
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func openGuard(e *Env, store stampede.Store, local time.Duration, closeStore func() error) (Cache, error) {
	policy := stampede.Policy{TTL: e.TTL, StaleFor: e.StaleFor}
	if e.StaleFor == 0 {
		policy.StaleFor = -1
	}
	if e.Exact {
		policy.Jitter, policy.Beta = -1, -1
	}
	g, err := stampede.New[[]byte](store, &stampede.Options{
		Name: "bench", Policy: policy, LoadTimeout: e.LoadTimeout, Local: stampede.Local{TTL: local}, Logger: quiet,
	})
	if err != nil {
		return nil, errors.Join(err, closeStore())
	}
	return cache{
		get: g.Getter(e.Load).Get,
		close: func() error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			return errors.Join(g.Close(ctx), closeStore())
		},
	}, nil
}
