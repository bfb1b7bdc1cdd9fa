package workload_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/herdgate/herdgate/bench/internal/contender"
	"github.com/herdgate/herdgate/bench/internal/workload"
)

// nothing is a cache that does nothing but return the value of the one key that it is asked for.
var nothing = contender.Contender{Name: "nothing", Open: func(e *contender.Env) (contender.Cache, error) {
	var once sync.Once
	var value []byte
	return cache{
		get: func(ctx context.Context, key string) (_ []byte, err error) {
			once.Do(func() { value, err = e.Load(ctx, key) })
			return value, err
		},
		close: func() error { return nil },
	}, nil
}}

// BenchmarkHit is what the loop around a hit costs: that of a cache that does nothing.
func BenchmarkHit(b *testing.B) {
	server := shared.Server(b)
	rig := &workload.Rig{Addr: server.Addr(), Server: server}
	defer rig.Close()
	for _, memory := range []bool{true, false} {
		name := "timed"
		if memory {
			name = "not timed"
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				r, err := workload.RunHit(b.Context(), rig, nothing, memory, 100*time.Millisecond)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(r.Values["ns"], "ns/call")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
