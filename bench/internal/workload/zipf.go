package workload

import (
	"context"
	"slices"
	"time"

	"github.com/herdgate/herdgate/bench/internal/contender"
	"github.com/herdgate/herdgate/bench/internal/fleet"
	"github.com/herdgate/herdgate/bench/internal/measure"
	"github.com/herdgate/herdgate/bench/internal/report"
)

var zipf = Workload{
	Workload: report.Workload{
		Name:  "zipf",
		Title: "Many keys",
		About: "Zipf (1.01) over 10,000 keys, all missing at first: 8 pods, 200 calls a second each, TTL 2 s, stale for 2 s, a load takes 50 ms. Jitter and early refresh are off, so " +
			"that loads can be compared with those of a perfect cache for the same arrivals. At once: without waiting for half a load.",
		Columns: append([]report.Column{
			{Key: "over_ideal", Title: "loads over ideal", Digits: 3, Limit: "1"},
			{Key: "at_once", Title: "at once", Unit: "%", Digits: 1},
		}, columns("p50", "p99", "p999", "age", "requests", "writes", "scripted", "cpu", "redis_cpu", "late_p99", "errors")...),
	},
	For: func(c contender.Contender) bool {
		return inRedis(c) && !slices.Contains([]string{"setnx-poll", "redsync", "go-redis/cache+local", xfetchName}, c.Name)
	},
	Quick: []string{"singleflight", "herdgate", localName},
	Variants: func(quick bool) []Variant {
		length, repeats := 5*time.Second, 2
		if quick {
			length, repeats = 3*time.Second, 1
		}
		return []Variant{{Name: "8 pods", Repeats: repeats, Takes: length + 300*time.Millisecond, Run: func(ctx context.Context, rig *Rig, c contender.Contender) (report.Result, error) {
			return runZipf(ctx, rig, c, length)
		}}}
	},
}

func runZipf(ctx context.Context, rig *Rig, c contender.Contender, length time.Duration) (report.Result, error) {
	const ttl, load, keys = 2 * time.Second, 50 * time.Millisecond, 10_000
	m, err := rig.run(ctx, c, setup{
		pods: 8,
		spec: fleet.Spec{
			Params:      contender.Params{TTL: ttl, StaleFor: ttl, LoadTimeout: 3 * time.Second, Entries: keys, Exact: true},
			Arrivals:    measure.Arrivals{Rate: 200, For: length, Keys: keys, Zipf: 1.01},
			CallTimeout: 5 * time.Second,
		},
		source: &measure.Source{Took: load},
	})
	if err != nil {
		return report.Result{}, err
	}
	r := m.result()
	r.Values["over_ideal"] = float64(len(m.Loads)) / float64(max(1, measure.IdealLoads(m.arrivals, ttl, load, false)))
	r.Values["at_once"] = 100 * m.took.Within(load/2)
	return r, nil
}
