package main

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/internal/redisproc"
	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/redisstore"
)

var server *redisproc.Server

func TestMain(m *testing.M) {
	var err error
	if server, err = redisproc.Start(redisproc.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	code := m.Run()
	if err := server.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		code = 1
	}
	os.Exit(code)
}

func newClient(b testing.TB) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 32})
	b.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func newStore(b testing.TB) *redisstore.Store {
	store, err := redisstore.New(newClient(b), nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = store.Close() })
	return store
}

func newGuard[T any](b testing.TB, store stampede.Store, o stampede.Options) *stampede.Guard[T] {
	g, err := stampede.New[T](store, &o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = g.Close(context.Background()) })
	return g
}
