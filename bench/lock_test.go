package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/internal/redisproc"
	"github.com/herdgate/herdgate/stampede/lock"
)

// lockLease is the lease of all locks here: nothing ends by itself.
const lockLease = 10 * time.Second

// acquire gets a lock, waiting for it, and returns what releases it.
type acquire func(ctx context.Context, name string) (release func(context.Context) error, err error)

// lockers are the libraries, each on all of the servers.
func lockers(b *testing.B, addrs ...string) map[string]func() acquire {
	clients := func() (all []redis.UniversalClient) {
		for _, addr := range addrs {
			rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 128})
			b.Cleanup(func() { _ = rdb.Close() })
			all = append(all, rdb)
		}
		return all
	}
	herdgate := func(o lock.Options) func() acquire {
		return func() acquire {
			o.Timeout, o.NodeTimeout, o.WaitTimeout = 5*time.Second, time.Second, time.Minute
			lk, err := lock.New(&o, clients()...)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = lk.Close() })
			if o.Fences && len(addrs) > 1 {
				if err := lk.InitFences(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
			return func(ctx context.Context, name string) (func(context.Context) error, error) {
				l, err := lk.Acquire(ctx, name, lockLease)
				if err != nil {
					return nil, err
				}
				return l.Release, nil
			}
		}
	}
	all := map[string]func() acquire{
		"herdgate": herdgate(lock.Options{Name: "bench"}),
		// Its own way of waiting: 32 tries, 50 to 250 ms apart. Here it tries until it has the lock.
		"redsync": func() acquire {
			var pools []redsyncredis.Pool
			for _, rdb := range clients() {
				pools = append(pools, goredis.NewPool(rdb))
			}
			rs := redsync.New(pools...)
			return func(ctx context.Context, name string) (func(context.Context) error, error) {
				m := rs.NewMutex(name, redsync.WithExpiry(lockLease), redsync.WithTries(1_000_000))
				if err := m.LockContext(ctx); err != nil {
					return nil, err
				}
				return func(ctx context.Context) error {
					if ok, err := m.UnlockContext(ctx); !ok {
						return errors.Join(errors.New("not unlocked"), err)
					}
					return nil
				}, nil
			}
		},
	}
	if len(addrs) > 1 {
		all["herdgate+fence"] = herdgate(lock.Options{Name: "fenced", Fences: true})
		return all
	}
	// The way of waiting of its README: a fixed pause of 100 ms.
	all["redislock"] = func() acquire {
		lk := redislock.New(clients()[0])
		return func(ctx context.Context, name string) (func(context.Context) error, error) {
			l, err := lk.Obtain(ctx, name, lockLease, &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)})
			if err != nil {
				return nil, err
			}
			return l.Release, nil
		}
	}
	return all
}

// BenchmarkLock is acquiring and releasing a lock that nobody else wants.
func BenchmarkLock(b *testing.B) {
	for _, name := range []string{"herdgate", "redislock", "redsync"} {
		for _, kind := range []string{"background", "cancellable"} {
			b.Run(fmt.Sprintf("%s/ctx=%s", name, kind), func(b *testing.B) {
				ctx, cancel := context.Background(), func() {}
				if kind == "cancellable" {
					ctx, cancel = context.WithCancel(ctx)
				}
				defer cancel()
				uncontended(b, ctx, lockers(b, server.Addr())[name]())
			})
		}
	}
}

func uncontended(b *testing.B, ctx context.Context, lock acquire) {
	b.ReportAllocs()
	for range 3 { // connections and scripts
		if release, err := lock(ctx, "uncontended"); err != nil || release(ctx) != nil {
			b.Fatal(err)
		}
	}
	once := func() {
		release, err := lock(ctx, "uncontended")
		if err != nil {
			b.Fatal(err)
		}
		if err := release(ctx); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		once()
	}
	// Counted apart: to watch Redis costs time and allocations, the more so the more a script does.
	const some = 50
	requests := monitor(b)
	for range some {
		once()
	}
	b.ReportMetric(float64(requests())/some, "requests/op")
}

// BenchmarkLockHandOver has 64 contenders for one lock, in one process and in eight, each of whom holds it for
// 2 ms. It reports how long the lock lies idle between a release and the next grant, and requests to Redis per
// hand-over.
func BenchmarkLockHandOver(b *testing.B) {
	const contenders, hold = 64, 2 * time.Millisecond
	for _, name := range []string{"herdgate", "redislock", "redsync"} {
		for _, pods := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s/pods=%d", name, pods), func(b *testing.B) {
				var locks []acquire
				for range pods {
					locks = append(locks, lockers(b, server.Addr())[name]())
				}
				for _, lock := range locks {
					if release, err := lock(context.Background(), "warm"); err != nil || release(context.Background()) != nil {
						b.Fatal(err)
					}
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				requests := monitor(b)
				var idle []time.Duration // the lock protects what follows
				var freed time.Time
				handOvers := 0
				for b.Loop() {
					var wg sync.WaitGroup
					freed = time.Time{}
					for i := range contenders {
						wg.Go(func() {
							release, err := locks[i%pods](ctx, "contended")
							if err != nil {
								b.Error(err)
								return
							}
							if !freed.IsZero() {
								idle = append(idle, time.Since(freed))
							}
							time.Sleep(hold) // real time: the work
							handOvers++
							freed = time.Now()
							if err := release(ctx); err != nil {
								b.Error(err)
							}
						})
					}
					wg.Wait()
				}
				if len(idle) == 0 {
					return
				}
				slices.Sort(idle)
				sum := time.Duration(0)
				for _, d := range idle {
					sum += d
				}
				b.ReportMetric(float64(sum.Microseconds())/float64(len(idle))/1000, "idle-mean-ms")
				b.ReportMetric(float64(idle[len(idle)/2].Microseconds())/1000, "idle-p50-ms")
				b.ReportMetric(float64(idle[len(idle)*99/100].Microseconds())/1000, "idle-p99-ms")
				b.ReportMetric(float64(requests())/float64(handOvers), "requests/hand-over")
			})
		}
	}
}

// BenchmarkRedlock is acquiring and releasing a lock on five masters that nobody else wants.
func BenchmarkRedlock(b *testing.B) {
	var addrs []string
	for range 5 {
		s, err := redisproc.Start(redisproc.Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = s.Close() })
		addrs = append(addrs, s.Addr())
	}
	for _, name := range []string{"herdgate", "herdgate+fence", "redsync"} {
		b.Run(name, func(b *testing.B) {
			lock := lockers(b, addrs...)[name]()
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				release, err := lock(ctx, "uncontended")
				if err != nil {
					b.Fatal(err)
				}
				if err := release(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
