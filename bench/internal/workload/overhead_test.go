package workload_test

import (
	"context"
	"testing"
	"time"

	"github.com/herdgate/herdgate/bench/internal/contender"
	"github.com/herdgate/herdgate/bench/internal/workload"
)

// nothing is a cache that does nothing.
var nothing = contender.Contender{Name: "nothing", Open: func(*contender.Env) (contender.Cache, error) {
	return cache{
		get:   func(context.Context, string) ([]byte, error) { return nil, nil },
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
