package stampede_test

import (
	"context"
	"testing"

	"github.com/herdgate/herdgate/stampede"
)

func TestHitInMemoryAllocatesOnlyTheContextOfItsStep(t *testing.T) {
	g := newGuard[int](t, new(stampede.MemoryStore), stampede.Options{Policy: stampede.Policy{Beta: -1}})
	ctx, load := t.Context(), value(1)
	by := g.Getter(func(context.Context, string) (int, error) { return 1, nil })
	must(t, g.Set(ctx, "k", 1))
	if n := testing.AllocsPerRun(1000, func() { _, _ = g.Get(ctx, "k", load) }); n > 1 {
		t.Errorf("Get: %v allocations", n)
	}
	if n := testing.AllocsPerRun(1000, func() { _, _ = by.Get(ctx, "k") }); n > 1 {
		t.Errorf("Getter: %v allocations", n)
	}
}
