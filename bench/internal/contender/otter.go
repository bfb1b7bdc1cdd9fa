package contender

import (
	"context"

	"github.com/maypok86/otter/v2"
)

var otterMemory = Contender{
	Name:   "otter",
	About:  "Get with a loader; MaximumSize, ExpiryWriting(TTL + StaleFor), RefreshWriting(TTL). In memory.",
	Module: "github.com/maypok86/otter/v2",
	Kind:   Memory,
	Open: func(e *Env) (Cache, error) {
		c, err := otter.New(&otter.Options[string, []byte]{
			MaximumSize:       max(10_000, 2*e.Entries),
			ExpiryCalculator:  otter.ExpiryWriting[string, []byte](e.TTL + e.StaleFor),
			RefreshCalculator: otter.RefreshWriting[string, []byte](e.TTL),
			Logger:            new(otter.NoopLogger),
		})
		if err != nil {
			return nil, err
		}
		loader := otter.LoaderFunc[string, []byte](e.Load)
		return cache{get: func(ctx context.Context, key string) ([]byte, error) { return c.Get(ctx, key, loader) }}, nil
	},
}
