package workload

import (
	"context"
	"time"

	"github.com/herdgate/herdgate/bench/internal/contender"
	"github.com/herdgate/herdgate/bench/internal/fleet"
	"github.com/herdgate/herdgate/bench/internal/measure"
	"github.com/herdgate/herdgate/bench/internal/report"
)

var storm = Workload{
	Workload: report.Workload{
		Name:     "storm",
		Title:    "Expiry storm",
		OverTime: true,
		About: "One key that all pods want and that expires again and again: 8 pods, TTL 1 s, stale for 1 s, a load takes 100 ms. Calls come independently of " +
			"their answers, 320 a second to each pod, so that 32 callers of each pod come while it is loaded. An expiry is a time at which somebody loads; " +
			"loads over ideal compares with a cache that loads once, when TTL has passed.",
		Columns: append([]report.Column{
			{Key: "per_expiry", Title: "loads per expiry", Digits: 2, Limit: "1", Chart: "Loads per expiry."},
			{Key: "over_ideal", Title: "loads over ideal", Digits: 2, Limit: "1"},
		}, columns("most", "p50", "p99", "p999", "max", "within5", "age", "requests", "writes", "scripted", "cpu", "redis_cpu", "late_p99", "errors")...),
	},
	For: func(c contender.Contender) bool {
		return inRedis(c) && c.Name != xfetchName || c.Name == rawName || c.Kind == contender.Memory && c.Name != "herdgate-memory"
	},
	Quick: []string{rawName, "none", "singleflight", "redislock", "go-redis/cache", "sturdyc+redis", "rueidis-placeholder", "herdgate", localName},
	Variants: func(quick bool) []Variant {
		length, repeats := 5500*time.Millisecond, 3
		if quick {
			length, repeats = 2300*time.Millisecond, 1
		}
		return []Variant{{Name: "8 pods x 32", Repeats: repeats, Takes: length + 300*time.Millisecond, Run: func(ctx context.Context, rig *Rig, c contender.Contender) (report.Result, error) {
			return runStorm(ctx, rig, c, stormSetup{pods: 8, callers: 32, length: length})
		}}}
	},
}

const (
	rawName    = "raw GET"
	xfetchName = "xfetch"
	localName  = "herdgate+L1"
)

type stormSetup struct {
	pods, callers, value int
	length               time.Duration
}

func runStorm(ctx context.Context, rig *Rig, c contender.Contender, s stormSetup) (report.Result, error) {
	const ttl, load = time.Second, 100 * time.Millisecond
	m, err := rig.run(ctx, c, setup{
		pods: s.pods,
		spec: fleet.Spec{
			Params:      contender.Params{TTL: ttl, StaleFor: ttl, LoadTimeout: 3 * time.Second},
			Arrivals:    measure.Arrivals{Rate: float64(s.callers) / load.Seconds(), For: s.length},
			Warm:        1,
			Value:       s.value,
			CallTimeout: 5 * time.Second,
		},
		source: &measure.Source{Took: load},
	})
	if err != nil {
		return report.Result{}, err
	}
	r := m.result()
	expiries := measure.Expiries(m.Loads, ttl)
	if len(expiries) > 0 {
		r.Values["per_expiry"] = float64(len(m.Loads)) / float64(len(expiries))
	}
	r.Values["over_ideal"] = float64(len(m.Loads)) / float64(max(1, measure.IdealLoads(m.arrivals, ttl, load, true)))
	return r, nil
}
