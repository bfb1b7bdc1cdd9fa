package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hashicorp/golang-lru/v2/expirable"
	"github.com/maypok86/otter/v2"

	"github.com/herdgate/herdgate/stampede"
)

// BenchmarkLocalHit measures a hit in the memory tier beside the bare libraries that it could stand on: one
// key, and 1,000 keys drawn from a Zipf distribution, with many goroutines.
func BenchmarkLocalHit(b *testing.B) {
	const keys = 1000
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprint("key:", i)
	}
	value := &[1024]byte{}

	g, err := stampede.New[*[1024]byte](&encodedStore{}, &stampede.Options{Name: "bench", Local: stampede.Local{TTL: time.Hour},
		Policy: stampede.Policy{TTL: 24 * time.Hour, Beta: -1}})
	if err != nil {
		b.Fatal(err)
	}
	getter := g.Getter(func(context.Context, string) (*[1024]byte, error) { return value, nil })
	cache := otter.Must(&otter.Options[string, *[1024]byte]{MaximumSize: 10_000})
	expiring := otter.Must(&otter.Options[string, *[1024]byte]{MaximumSize: 10_000,
		ExpiryCalculator: otter.ExpiryWriting[string, *[1024]byte](time.Hour)})
	locked := expirable.NewLRU[string, *[1024]byte](10_000, nil, time.Hour)
	ctx := context.Background()
	for _, name := range names {
		if _, err := getter.Get(ctx, name); err != nil {
			b.Fatal(err)
		}
		cache.Set(name, value)
		expiring.Set(name, value)
		locked.Add(name, value)
	}
	for _, c := range []struct {
		name string
		get  func(key string) bool
	}{
		{"otter", func(key string) bool { _, ok := cache.GetIfPresent(key); return ok }},
		{"otter-expiry", func(key string) bool { _, ok := expiring.GetIfPresent(key); return ok }},
		{"golang-lru", func(key string) bool { _, ok := locked.Get(key); return ok }},
		{"herdgate", func(key string) bool { _, err := getter.Get(ctx, key); return err == nil }},
	} {
		for _, span := range []int{1, keys} {
			for _, par := range []int{1, 2, 16, 256} {
				b.Run(fmt.Sprintf("%s/keys=%d/goroutines=%d", c.name, span, par), func(b *testing.B) {
					b.ReportAllocs()
					goroutines(b, par, func(r *rand.Rand, next func() bool) {
						order := make([]string, 4096)
						zipf := rand.NewZipf(r, 1.1, 1, uint64(span-1))
						for i := range order {
							if span > 1 {
								order[i] = names[zipf.Uint64()]
							} else {
								order[i] = names[0]
							}
						}
						for i := 0; next(); i++ {
							if !c.get(order[i%len(order)]) {
								b.Error("a miss")
								return
							}
						}
					})
				})
			}
		}
	}
}

// goroutines shares b.N calls among par goroutines.
func goroutines(b *testing.B, par int, run func(r *rand.Rand, next func() bool)) {
	start, done := make(chan struct{}), make(chan struct{})
	ready := make(chan struct{})
	for i := range par {
		n := b.N / par
		if i < b.N%par {
			n++
		}
		go func() {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			first := true
			run(r, func() bool {
				if first {
					first = false
					ready <- struct{}{}
					<-start
				}
				n--
				return n >= 0
			})
			done <- struct{}{}
		}()
	}
	for range par {
		<-ready
	}
	b.ResetTimer()
	close(start)
	for range par {
		<-done
	}
}

// encodedStore is a store in memory that keeps bytes, as Redis does.
type encodedStore struct{ stampede.MemoryStore }

func (*encodedStore) Encoded() bool { return true }
