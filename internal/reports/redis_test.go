package reports_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/herdgate/herdgate/internal/faultproxy"
	"github.com/herdgate/herdgate/internal/redisproc"
	"github.com/herdgate/herdgate/internal/redistest"
	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/redisstore"
	"github.com/herdgate/herdgate/stampede/stampedetest"
)

// redisFleet makes pods with a store each behind one proxy. They have so much patience with Redis that a busy machine is no outage.
func redisFleet(t *testing.T, n int, proxy *faultproxy.Proxy, o stampede.Options) (pods []*stampede.Guard[int], stores []*redisstore.Store) {
	t.Helper()
	const patience = 5 * time.Second
	o.StoreBudget = patience
	settle(t, &o)
	for range n {
		store := onRedis(t, proxy.Addr(), &redisstore.Options{Timeout: patience, Logger: slog.New(slog.DiscardHandler)})
		g := open[int](t, store, o)
		wants(t, g, "warm", func(context.Context) (int, error) { return 1, nil }, 1)
		pods, stores = append(pods, g), append(stores, store)
	}
	return pods, stores
}

// requests counts what stores have asked of the server: a read is GETRANGE and PTTL in one request, a script is one, whatever it calls.
func requests(t *testing.T, server *redisproc.Server, stores []*redisstore.Store) (n int) {
	t.Helper()
	for _, s := range stores {
		n += int(s.Stats().ReadRequests)
	}
	info, _ := do(t, server, "INFO", "commandstats").(string)
	for _, command := range []string{"eval", "evalsha", "subscribe", "unsubscribe", "publish", "ping"} {
		calls := 0
		if _, rest, ok := strings.Cut(info, "cmdstat_"+command+":calls="); ok {
			_, _ = fmt.Sscan(rest[:strings.IndexByte(rest, ',')], &calls)
		}
		n += calls
	}
	return n
}

// discourse/discourse#17886, discourse/mini_scheduler#4: who waited polled each millisecond, and melted Redis.
func TestACrowdThatWaitsCostsRedisLittle(t *testing.T) {
	server := redistest.Server(t)
	pods, stores := redisFleet(t, 3, redistest.Proxy(t, server.Addr()), stampede.Options{Policy: cold})
	loads := deaf(time.Second)
	before := requests(t, server, stores)
	crowd(3*200, func(i int) { wants(t, pods[i%3], "k", loads.Loader("k"), 1) })
	loads.AssertLoads(t, 1)
	if n := requests(t, server, stores) - before; n > 3*20 {
		t.Errorf("%d requests to Redis for one load", n)
	}
}

// nginx/nginx#1189: a fixed poll of 500 ms made short loads slow.
func TestTheEndOfAShortLoadIsHeardAtOnce(t *testing.T) {
	pods, _ := redisFleet(t, 2, redistest.Proxy(t, shared.Server(t).Addr()), stampede.Options{Policy: cold})
	const takes = 50 * time.Millisecond
	best := map[int]time.Duration{0: time.Hour, 1: time.Hour} // of the leader's pod and of the other one
	for round := range 5 {                                    // the machine may be busy
		key := fmt.Sprint(round)
		led := make(chan struct{})
		var ended atomic.Pointer[time.Time]
		var all [2][]time.Duration
		var mu sync.Mutex
		crowd(2*10, func(i int) {
			if i > 0 {
				<-led
			}
			wants(t, pods[i%2], key, func(context.Context) (int, error) {
				close(led)
				<-time.After(takes)
				now := time.Now()
				ended.Store(&now)
				return 1, nil
			}, 1)
			mu.Lock()
			defer mu.Unlock()
			all[i%2] = append(all[i%2], time.Since(*ended.Load()))
		})
		for i := range all {
			slices.Sort(all[i])
			best[i] = min(best[i], all[i][len(all[i])/2])
		}
	}
	if best[0] > 5*time.Millisecond || best[1] > 20*time.Millisecond {
		t.Errorf("answers came %v after the end of the load, in another pod %v", best[0], best[1])
	}
}

// discourse/mini_scheduler#4, redis/go-redis#790, StackExchange/StackExchange.Redis#2264: READONLY was met with a loop, or for ever.
func TestAReadOnlyRedisIsNotAskedInALoopAndRecovers(t *testing.T) {
	server := redistest.Server(t)
	pods, stores := redisFleet(t, 3, redistest.Proxy(t, server.Addr()), stampede.Options{Name: "ro", Policy: cold})
	do(t, server, "REPLICAOF", "127.0.0.1", "1")
	loads := deaf(200 * time.Millisecond)
	before := requests(t, server, stores)
	crowd(3*50, func(i int) {
		if v, err := pods[i%3].Get(t.Context(), "k", loads.Loader("k")); v == 0 || err != nil {
			t.Errorf("Get = %d, %v", v, err)
		}
	})
	if n := requests(t, server, stores) - before; n > 3*20 {
		t.Errorf("%d requests to a Redis that refuses", n)
	}
	if n := loads.Count(); n > 3*2 {
		t.Errorf("%d loads in three pods", n)
	}
	do(t, server, "REPLICAOF", "NO", "ONE")
	for i, pod := range pods {
		key := fmt.Sprint("after", i)
		wants(t, pod, key, numbered(0).Loader(key), 1)
		wants(t, pods[(i+1)%3], key, forbidden(t), 1)
	}
}

// redis/go-redis#3806: after a reconnect the subscription stood on another node, without an error, and nobody was woken.
func TestWaitersSurviveTheLossOfTheirSubscription(t *testing.T) {
	server := redistest.Server(t)
	proxy := redistest.Proxy(t, server.Addr())
	pods, _ := redisFleet(t, 2, proxy, stampede.Options{Name: "sub", Policy: cold})
	const takes = 600 * time.Millisecond
	loads := deaf(takes)
	crowd(1+100+1, func(i int) {
		switch i {
		case 0:
			wants(t, pods[0], "k", loads.Loader("k"), 1)
		case 101:
			<-time.After(takes / 2)
			do(t, server, "CLIENT", "KILL", "TYPE", "pubsub")
		default:
			redistest.Eventually(t, 5*time.Second, func() bool { return loads.Count() == 1 })
			begun := time.Now()
			wants(t, pods[1], "k", loads.Loader("k"), 1)
			atMost(t, begun, takes+250*time.Millisecond)
		}
	})
	loads.AssertLoads(t, 1)
}

// redisson/redisson#4064, redisson/redisson#2575, redisson/redisson#3577: each lock left a subscription, until the pool was exhausted.
func TestWaitsLeaveNoSubscriptionBehind(t *testing.T) {
	server := redistest.Server(t)
	proxy := redistest.Proxy(t, server.Addr())
	pods, _ := redisFleet(t, 2, proxy, stampede.Options{Name: "many", Policy: cold})
	loads := deaf(20 * time.Millisecond)
	for round := range 20 {
		crowd(20, func(i int) {
			key := fmt.Sprint(round, i/2)
			wants(t, pods[i%2], key, loads.Loader(key), 1)
		})
	}
	loads.AssertLoads(t, 200)
	redistest.Eventually(t, 5*time.Second, func() bool {
		channels, _ := do(t, server, "PUBSUB", "CHANNELS", "many:*").([]any)
		return len(channels) == 1 // that of dropped keys
	})
	clients, _ := do(t, server, "CLIENT", "LIST", "TYPE", "pubsub").(string)
	if n := strings.Count(clients, "\n"); n > 2 {
		t.Errorf("%d connections for subscriptions of two pods", n)
	}
}

// BerriAI/litellm#40620: an open breaker wrote a line for each request.
func TestAnOutageIsLoggedWhenItBeginsAndWhenItEnds(t *testing.T) {
	proxy := redistest.Proxy(t, shared.Server(t).Addr())
	var log lockedBuffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	store := onRedis(t, proxy.Addr(), &redisstore.Options{Logger: logger, Timeout: 50 * time.Millisecond})
	g := open[int](t, store, stampede.Options{Logger: logger, Policy: exactly(time.Millisecond, time.Hour)})
	wants(t, g, "k", func(context.Context) (int, error) { return 1, nil }, 1)
	must(t, proxy.RefuseNew(true))
	proxy.CloseConns()
	redistest.Eventually(t, 5*time.Second, func() bool {
		_, err := g.Get(t.Context(), "other", numbered(0).Loader("other"))
		return err == nil && store.Stats().Outages == 1
	})
	crowd(200, func(i int) {
		for _, key := range []string{"k", fmt.Sprint("cold", i)} {
			if _, err := g.Get(t.Context(), key, numbered(0).Loader(key)); err != nil {
				t.Error(err)
			}
		}
	})
	must(t, proxy.RefuseNew(false))
	redistest.Eventually(t, 5*time.Second, func() bool { return strings.Contains(log.String(), "answers again") })
	if n := strings.Count(log.String(), "\n"); n > 4 {
		t.Errorf("%d lines were logged:\n%s", n, log.String())
	}
}

// lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	mu sync.Mutex // protects b
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// samcook/RedLock.net#101, spring-projects/spring-integration#11044, redis/redis#9105: locks were evicted when memory was full.
func TestEvictionCostsLoadsAndNothingElse(t *testing.T) {
	server := redistest.Server(t, "--maxmemory-policy", "allkeys-random")
	proxy := redistest.Proxy(t, server.Addr())
	pods, _ := redisFleet(t, 2, proxy, stampede.Options{Name: "full", Policy: cold})
	do(t, server, "CONFIG", "SET", "maxmemory", "1") // whatever is written, lease or entry, goes with the next command
	var version atomic.Int64
	load := func(context.Context) (int, error) {
		v := version.Add(1)
		<-time.After(5 * time.Millisecond)
		return int(v), nil
	}
	crowd(16, func(i int) {
		newest := 0
		for range 20 {
			v, err := pods[i%2].Get(t.Context(), "k", load)
			if err != nil {
				t.Error(err)
			}
			// Two loads may run at once, and end in any order; a value that is older than both is not served.
			if v < newest-16 {
				t.Errorf("got version %d after %d", v, newest)
			}
			newest = max(newest, v)
		}
	})
	do(t, server, "CONFIG", "SET", "maxmemory", "0")
	loads := numbered(0)
	wants(t, pods[0], "after", loads.Loader("after"), 1)
	wants(t, pods[1], "after", loads.Loader("after"), 1)
}

// Redis documentation, distributed locks: what a failover or FLUSHALL loses, leases are part of.
func TestAFlushInMidLoadCostsOneLoadMore(t *testing.T) {
	server := redistest.Server(t)
	proxy := redistest.Proxy(t, server.Addr())
	pods, _ := redisFleet(t, 2, proxy, stampede.Options{Name: "flush", Policy: cold})
	loads := numbered(0)
	loads.Next(stampedetest.Fate{Takes: 400 * time.Millisecond, Deaf: true}, stampedetest.Fate{Takes: 50 * time.Millisecond, Deaf: true})
	crowd(2, func(i int) {
		if i == 0 { // its own, or the other one when it finds its lease gone before
			if v, err := pods[0].Get(t.Context(), "k", loads.Loader("k")); err != nil || v != 1 && v != 2 {
				t.Errorf("Get = %d, %v", v, err)
			}
			return
		}
		redistest.Eventually(t, 5*time.Second, func() bool { return loads.Running() == 1 })
		do(t, server, "FLUSHALL")
		wants(t, pods[1], "k", loads.Loader("k"), 2)
	})
	for _, pod := range pods {
		wants(t, pod, "k", forbidden(t), 2)
	}
	redistest.Eventually(t, 5*time.Second, func() bool { return pods[0].Stats().Refused == 1 })
}
