package redisstore_test

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/redisstore"
	"github.com/herdgate/herdgate/stampede/stampedetest"
)

// patient are the options of tests that are not about time limits: the machine may be busy.
var patient = &redisstore.Options{Timeout: 5 * time.Second}

// open returns a store on rdb. Both are closed with t.
func open(t testing.TB, rdb redis.UniversalClient, o *redisstore.Options) *redisstore.Store {
	t.Helper()
	s, err := redisstore.New(rdb, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		_ = rdb.Close()
	})
	return s
}

func TestStoreOnMiniredis(t *testing.T) {
	t.Parallel()
	m := miniredis.RunT(t)
	stampedetest.TestStore(t, func(t *testing.T) stampede.Store {
		return open(t, redis.NewClient(&redis.Options{Addr: m.Addr()}), patient)
	}, stampedetest.Advance(func(_ stampede.Store, d time.Duration) { m.FastForward(d) }))
}

func TestStoreOnARealServer(t *testing.T) {
	t.Parallel()
	srv := shared.Server(t)
	stampedetest.TestStore(t, func(t *testing.T) stampede.Store {
		return open(t, redis.NewClient(&redis.Options{Addr: srv.Addr()}), patient)
	})
}

func TestStoreBehindSentinel(t *testing.T) {
	t.Parallel()
	sen := shared.Sentinel(t)
	stampedetest.TestStore(t, func(t *testing.T) stampede.Store {
		return open(t, redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: sen.MasterName(), SentinelAddrs: sen.Addrs(),
		}), patient)
	})
}

func TestStoreOnACluster(t *testing.T) {
	t.Parallel()
	c := shared.Cluster(t)
	stampedetest.TestStore(t, func(t *testing.T) stampede.Store {
		return open(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()}), patient)
	})
}
