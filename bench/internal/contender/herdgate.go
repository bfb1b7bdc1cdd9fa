package contender

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/herdgate/herdgate/middleware"
	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/redisstore"
)

var herdgate = Contender{
	Name: "herdgate",
	About: "redisstore.New(rdb, nil) on a client as the others have it; Policy.TTL and StaleFor as given, LoadTimeout = load timeout, all else default " +
		"(where the workload says so, Jitter and Beta off). Copies in memory are for outages only. Over HTTP: middleware.New over the same store, Policy.TTL and StaleFor as given.",
	Kind: Elected,
	Open: func(e *Env) (Cache, error) { return openRedisGuard(e, 0) },
	Wrap: func(e *Env, h http.Handler) (Web, error) { return wrapRedis(e, h, 0) },
}

var herdgateLocal = Contender{
	Name:  "herdgate+L1",
	About: "the same with Local.TTL = TTL/10, as the other local copies here.",
	Kind:  Elected,
	Open:  func(e *Env) (Cache, error) { return openRedisGuard(e, localTTL(e)) },
	Wrap:  func(e *Env, h http.Handler) (Web, error) { return wrapRedis(e, h, localTTL(e)) },
}

var herdgateMemory = Contender{
	Name:  "herdgate-memory",
	About: "the same over MemoryStore, with room for all keys. In memory.",
	Kind:  Memory,
	Open: func(e *Env) (Cache, error) {
		return openGuard(e, memoryStore(e), 0, func() error { return nil })
	},
	Wrap: func(e *Env, h http.Handler) (Web, error) {
		return wrap(e, memoryStore(e), h, 0, func() error { return nil })
	},
}

// localTTL is how long copies in memory are served.
func localTTL(e *Env) time.Duration { return max(e.TTL/10, 20*time.Millisecond) }

func memoryStore(e *Env) stampede.Store {
	return &stampede.MemoryStore{MaxEntries: max(10_000, 2*e.Entries)}
}

// openRedis returns a store, and what closes it.
func openRedis(e *Env) (store stampede.Store, closer func() error, err error) {
	rdb := e.Redis()
	s, err := redisstore.New(rdb, &redisstore.Options{Logger: quiet})
	if err != nil {
		return nil, nil, errors.Join(err, rdb.Close())
	}
	return s, func() error { return errors.Join(s.Close(), rdb.Close()) }, nil
}

func openRedisGuard(e *Env, local time.Duration) (Cache, error) {
	store, closer, err := openRedis(e)
	if err != nil {
		return nil, err
	}
	return openGuard(e, store, local, closer)
}

func wrapRedis(e *Env, h http.Handler, local time.Duration) (Web, error) {
	store, closer, err := openRedis(e)
	if err != nil {
		return Web{}, err
	}
	return wrap(e, store, h, local, closer)
}

func wrap(e *Env, store stampede.Store, h http.Handler, local time.Duration, closeStore func() error) (Web, error) {
	cache, err := middleware.New(store, &middleware.Options{
		Policy: middleware.Policy{TTL: e.TTL, StaleFor: e.StaleFor},
		Guard:  stampede.Options{LoadTimeout: e.LoadTimeout, Local: stampede.Local{TTL: local}, Logger: quiet},
	})
	if err != nil {
		return Web{}, errors.Join(err, closeStore())
	}
	return Web{cache.Handler(h), func() error { return errors.Join(closeIn(time.Second, cache.Close), closeStore()) }}, nil
}

// closeIn gives what is closed so much time.
func closeIn(d time.Duration, closer func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return closer(ctx)
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
		get:   g.Getter(e.Load).Get,
		close: func() error { return errors.Join(closeIn(time.Second, g.Close), closeStore()) },
	}, nil
}
