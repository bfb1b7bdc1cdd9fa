package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/redisstore"
)

// BenchmarkRead reads entries of 1 KiB, 64 keys in turn, beside what go-redis does by itself with the same
// server in the same run.
func BenchmarkRead(b *testing.B) {
	raw, s := benchClients(b)
	ways := readWays(b, raw, s)
	for _, par := range []int{1, 2, 16, 128} {
		for _, way := range ways {
			b.Run(fmt.Sprintf("%s/par=%d", way.name, par), func(b *testing.B) {
				b.ReportAllocs()
				parallel(par, b.N, func(i int) {
					if err := way.read(i % benchKeys); err != nil {
						b.Error(err)
					}
				})
			})
		}
	}
}

// BenchmarkReadRatio takes turns, a few milliseconds each, so that what else the machine does weighs on
// both alike, and reports throughput relative to what go-redis does by itself: medians.
func BenchmarkReadRatio(b *testing.B) {
	raw, s := benchClients(b)
	ways := readWays(b, raw, s)
	for _, par := range []int{1, 2, 16, 128} {
		b.Run(fmt.Sprintf("par=%d", par), func(b *testing.B) {
			var ratios [2][]float64
			for b.Loop() {
				var took [3]float64
				for w, way := range ways {
					began := time.Now()
					parallel(par, 200+20*par, func(i int) {
						if err := way.read(i % benchKeys); err != nil {
							b.Error(err)
						}
					})
					took[w] = time.Since(began).Seconds()
				}
				ratios[0] = append(ratios[0], took[0]/took[2])
				ratios[1] = append(ratios[1], took[1]/took[2])
			}
			for i, name := range []string{"xGET", "xGET+PTTL"} {
				slices.Sort(ratios[i])
				b.ReportMetric(ratios[i][len(ratios[i])/2], name)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

const benchKeys = 64

func benchClients(b *testing.B) (*redis.Client, *redisstore.Store) {
	raw := redis.NewClient(&redis.Options{Addr: shared.Server(b).Addr()})
	return raw, open(b, raw, nil)
}

type readWay struct {
	name string
	read func(i int) error
}

// readWays returns: raw GET, raw GET and PTTL in a pipeline, the store.
func readWays(b *testing.B, raw *redis.Client, s *redisstore.Store) []readWay {
	ctx := context.Background()
	keys, names := make([]stampede.Key, benchKeys), make([]string, benchKeys)
	value := make([]byte, 1024)
	for i := range keys {
		keys[i] = stampede.Key{Space: "bench", Key: "product:" + strconv.Itoa(i)}
		names[i] = "raw:" + keys[i].Key
		if err := s.Set(ctx, keys[i], stampede.Entry{Data: value, TTL: time.Hour}); err != nil {
			b.Fatal(err)
		}
		if err := raw.Set(ctx, names[i], value, time.Hour).Err(); err != nil {
			b.Fatal(err)
		}
	}
	return []readWay{
		{"raw=GET", func(i int) error { return raw.Get(ctx, names[i]).Err() }},
		{"raw=GET+PTTL", func(i int) error {
			pipe := raw.Pipeline()
			pipe.Get(ctx, names[i])
			pipe.PTTL(ctx, names[i])
			_, err := pipe.Exec(ctx)
			return err
		}},
		{"store", func(i int) error {
			e, err := s.Read(ctx, keys[i])
			if err == nil && e.Freshness() != stampede.Fresh {
				err = fmt.Errorf("not fresh: %w", e.Fault)
			}
			return err
		}},
	}
}

// parallel calls f n times from par goroutines.
func parallel(par, n int, f func(i int)) {
	if par == 1 {
		for i := range n {
			f(i)
		}
		return
	}
	var wg sync.WaitGroup
	for p := range par {
		wg.Go(func() {
			for i := p; i < n; i += par {
				f(i)
			}
		})
	}
	wg.Wait()
}
