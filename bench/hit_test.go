package main

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/stampede"
)

// BenchmarkRedisHit is a hit of 1 KiB in Redis, for some number of goroutines, beside the raw commands.
func BenchmarkRedisHit(b *testing.B) {
	for _, keys := range []int{1, 1000} {
		for _, par := range []int{1, 16, 128} {
			name := func(what string) string { return fmt.Sprintf("%s/keys=%d/par=%d", what, keys, par) }
			rdb := newClient(b)
			names := fill(b, rdb, keys)
			b.Run(name("raw=get"), func(b *testing.B) {
				parallel(b, par, func(ctx context.Context, i int) error {
					return rdb.Get(ctx, names[i%keys]).Err()
				})
			})
			b.Run(name("raw=get+pttl"), func(b *testing.B) {
				parallel(b, par, func(ctx context.Context, i int) error {
					pipe := rdb.Pipeline()
					pipe.Get(ctx, names[i%keys])
					pipe.PTTL(ctx, names[i%keys])
					_, err := pipe.Exec(ctx)
					return err
				})
			})
			b.Run(name("herdgate"), func(b *testing.B) {
				g := newGuard[[]byte](b, newStore(b), stampede.Options{Name: "bench", Policy: stampede.Policy{TTL: time.Hour}})
				get := g.Getter(func(context.Context, string) ([]byte, error) { return make([]byte, 1024), nil })
				for _, key := range names {
					if _, err := get.Get(context.Background(), key); err != nil {
						b.Fatal(err)
					}
				}
				parallel(b, par, func(ctx context.Context, i int) error {
					_, err := get.Get(ctx, names[i%keys])
					return err
				})
			})
		}
	}
}

func fill(b *testing.B, rdb *redis.Client, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("product-%d", i)
		if err := rdb.Set(context.Background(), names[i], make([]byte, 1024), time.Hour).Err(); err != nil {
			b.Fatal(err)
		}
	}
	return names
}

// parallel runs op on par goroutines, each with numbers of its own.
func parallel(b *testing.B, par int, op func(ctx context.Context, i int) error) {
	ctx := context.Background()
	b.ReportAllocs()
	if par == 1 {
		i := 0
		for b.Loop() {
			if err := op(ctx, i); err != nil {
				b.Fatal(err)
			}
			i++
		}
		return
	}
	var start atomic.Int64
	b.SetParallelism(par / runtime.GOMAXPROCS(0))
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for i := int(start.Add(7919)); pb.Next(); i++ {
			if err := op(ctx, i); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkMemoryHit is a hit in MemoryStore.
func BenchmarkMemoryHit(b *testing.B) {
	for _, par := range []int{1, 2, 16, 256} {
		b.Run(fmt.Sprintf("par=%d", par), func(b *testing.B) {
			g := newGuard[[]byte](b, new(stampede.MemoryStore), stampede.Options{Name: "bench", Policy: stampede.Policy{TTL: time.Hour}})
			get := g.Getter(func(context.Context, string) ([]byte, error) { return make([]byte, 1024), nil })
			parallel(b, par, func(ctx context.Context, i int) error {
				_, err := get.Get(ctx, "k")
				return err
			})
		})
	}
}

// BenchmarkStaleHit is a hit on a stale entry while a load runs behind.
func BenchmarkStaleHit(b *testing.B) {
	stores := map[string]func(b *testing.B) stampede.Store{
		"memory": func(*testing.B) stampede.Store { return new(stampede.MemoryStore) },
		"redis":  func(b *testing.B) stampede.Store { return newStore(b) },
	}
	for name, open := range stores {
		for _, par := range []int{1, 128} {
			b.Run(fmt.Sprintf("%s/par=%d", name, par), func(b *testing.B) {
				g := newGuard[[]byte](b, open(b), stampede.Options{Name: "stale", Policy: stampede.Policy{TTL: time.Hour}})
				ctx := context.Background()
				block := make(chan struct{})
				defer close(block)
				first := true
				get := g.Getter(func(context.Context, string) ([]byte, error) {
					if !first {
						<-block
					}
					first = false
					return make([]byte, 1024), nil
				})
				if _, err := get.Get(ctx, "k"); err != nil {
					b.Fatal(err)
				}
				if err := g.Expire(ctx, "k"); err != nil {
					b.Fatal(err)
				}
				parallel(b, par, func(ctx context.Context, i int) error {
					_, err := get.Get(ctx, "k")
					return err
				})
			})
		}
	}
}
