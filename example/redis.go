package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2" //nolint:depguard // the example has to run where there is no Redis
	"github.com/redis/go-redis/v9"
)

// redisServer is where the pods' clients connect to.
type redisServer struct {
	about string
	opts  *redis.Options
	close func()
}

// openRedis checks that the Redis at url answers, or starts a stand-in when url is empty.
func openRedis(ctx context.Context, url string) (*redisServer, error) {
	if url == "" {
		return embeddedRedis()
	}
	if !strings.Contains(url, "://") {
		url = "redis://" + url
	}
	opts, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("-redis: %w", err)
	}
	once := *opts
	once.MaxRetries, once.DialerRetries = -1, 1 // at the start, say at once that nobody is there
	rdb := redis.NewClient(&once)
	defer rdb.Close()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := rdb.Ping(ctx).Err(); err != nil {
		return nil, fmt.Errorf("no answer from Redis at %s: %w", opts.Addr, err)
	}
	return &redisServer{about: opts.Addr, opts: opts, close: func() {}}, nil
}

// embeddedRedis runs a stand-in for Redis in this process. It speaks the protocol over TCP and runs the
// Lua scripts, but its keys expire only when it is told how much time has passed.
func embeddedRedis() (*redisServer, error) {
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		return nil, err
	}
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		last := time.Now()
		for {
			select {
			case <-tick.C:
				now := time.Now()
				m.FastForward(now.Sub(last))
				last = now
			case <-quit:
				return
			}
		}
	})
	return &redisServer{
		about: "an embedded stand-in (-redis or REDIS_URL: a real one)",
		opts:  &redis.Options{Addr: m.Addr()},
		close: func() {
			close(quit)
			wg.Wait()
			m.Close()
		},
	}, nil
}

// client returns a client with default settings. It is the caller's to close.
func (r *redisServer) client() *redis.Client {
	opts := *r.opts // NewClient fills it in
	return redis.NewClient(&opts)
}
