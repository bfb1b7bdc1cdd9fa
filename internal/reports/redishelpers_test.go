package reports_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/internal/redisproc"
	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/redisstore"
)

// eachStore runs a test on the store in memory and on Redis.
func eachStore(t *testing.T, test func(t *testing.T, store stampede.Store)) {
	t.Run("memory", func(t *testing.T) { test(t, new(stampede.MemoryStore)) })
	t.Run("redis", func(t *testing.T) { test(t, onRedis(t, shared.Server(t).Addr(), nil)) })
}

// onRedis makes a store for the server at addr from a client in its default settings.
func onRedis(t testing.TB, addr string, o *redisstore.Options) *redisstore.Store {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	s, err := redisstore.New(rdb, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing the store: %v", err)
		}
		_ = rdb.Close()
	})
	return s
}

// do runs a command on the server, beside all clients.
func do(t testing.TB, s *redisproc.Server, args ...string) any {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	v, err := s.Do(ctx, args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return v
}

// names returns what the server holds whose name matches the pattern.
func names(t testing.TB, s *redisproc.Server, pattern string) (found []string) {
	t.Helper()
	list, _ := do(t, s, "KEYS", pattern).([]any)
	for _, v := range list {
		name, _ := v.(string)
		found = append(found, name)
	}
	return found
}

// name returns the one name of that kind: 'v' an entry, 'l' a lease.
func name(t testing.TB, s *redisproc.Server, guard string, kind byte, key string) string {
	t.Helper()
	found := names(t, s, guard+":{*}:"+string(kind)+":"+key)
	if len(found) != 1 {
		t.Fatalf("%q for the %c of %q, want one name", found, kind, key)
	}
	return found[0]
}
