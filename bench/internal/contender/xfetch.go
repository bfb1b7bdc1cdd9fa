package contender

import (
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"time"
)

var xfetch = Contender{
	Name: "xfetch",
	About: "probabilistic early refresh alone, as its paper has it (Vattani and others, VLDB 2015), beta 1, each caller for itself: GET; load when " +
		"now - delta * beta * ln(rand) is past the end; SET value, delta and end with EX = TTL.",
	Open: func(e *Env) (Cache, error) {
		p := newPlain(e)
		return cache{
			get:   func(ctx context.Context, key string) ([]byte, error) { return fetchEarly(ctx, p, key) },
			close: p.rdb.Close,
		}, nil
	},
}

func fetchEarly(ctx context.Context, p *plain, key string) ([]byte, error) {
	const header = 16
	if stored, ok := p.read(ctx, key); ok && len(stored) >= header {
		took := float64(binary.LittleEndian.Uint64(stored))
		end := time.Unix(0, int64(binary.LittleEndian.Uint64(stored[8:])))
		early := time.Duration(-took * math.Log(1-rand.Float64()))
		if time.Now().Add(early).Before(end) {
			return stored[header:], nil
		}
	}
	begin := time.Now()
	v, err := p.Load(ctx, key)
	if err != nil {
		return nil, err
	}
	stored := binary.LittleEndian.AppendUint64(nil, uint64(time.Since(begin)))
	stored = binary.LittleEndian.AppendUint64(stored, uint64(time.Now().Add(p.TTL).UnixNano()))
	_ = p.rdb.Set(ctx, key, append(stored, v...), p.TTL).Err()
	return v, nil
}
