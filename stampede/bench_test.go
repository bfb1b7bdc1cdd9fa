package stampede_test

import (
	"context"
	"testing"

	"github.com/herdgate/herdgate/stampede"
)

func BenchmarkGet(b *testing.B) {
	load := func(context.Context, string) (int, error) { return 42, nil }
	b.Run("hit/memory", func(b *testing.B) {
		g, err := stampede.New[int](new(stampede.MemoryStore), &stampede.Options{Name: "bench"})
		if err != nil {
			b.Fatal(err)
		}
		get := g.Getter(load)
		ctx := context.Background()
		_, _ = get.Get(ctx, "k")
		b.ReportAllocs()
		for b.Loop() {
			_, _ = get.Get(ctx, "k")
		}
	})
	b.Run("hit/memory/parallel", func(b *testing.B) {
		g, err := stampede.New[int](new(stampede.MemoryStore), &stampede.Options{Name: "bench"})
		if err != nil {
			b.Fatal(err)
		}
		get := g.Getter(load)
		ctx := context.Background()
		_, _ = get.Get(ctx, "k")
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				_, _ = get.Get(ctx, "k")
			}
		})
	})
}
