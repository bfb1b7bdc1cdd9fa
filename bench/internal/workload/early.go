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

var early = Workload{
	Workload: report.Workload{
		Name:  "early",
		Title: "Early refresh",
		About: "50 workers, each with a client and a cache of its own, one key, TTL 20 s, a load takes 500 ms, all a tenth of that (in the quick run a twentieth); each asks " +
			"20 times a second; nothing stale is served. A miss is a call that ran the loader and waited for half of it, a wait one that waited for another's.",
		Columns: append([]report.Column{
			{Key: "per_expiry", Title: "recomputes per cycle", Digits: 2, Limit: "1"},
			{Key: "most", Title: "at once", Limit: "1"},
			{Key: "misses", Title: "misses per cycle", Digits: 1, Limit: "0"},
			{Key: "waits", Title: "waits per cycle", Digits: 1, Limit: "0"},
		}, columns("p99", "max", "requests", "errors")...),
	},
	For: func(c contender.Contender) bool {
		return slices.Contains([]string{"none", xfetchName, "redislock", "sturdyc+redis", "rueidis-placeholder", "herdgate", localName}, c.Name)
	},
	Quick: []string{xfetchName, "herdgate"},
	Variants: func(quick bool) []Variant {
		scale, repeats, cycles := 10, 2, 3
		if quick {
			scale, repeats, cycles = 20, 1, 2
		}
		scaled := func(d time.Duration) time.Duration { return d / time.Duration(scale) }
		ttl, load := scaled(20*time.Second), scaled(500*time.Millisecond)
		length := time.Duration(cycles * int(ttl+load))
		return []Variant{{Name: "50 workers", Repeats: repeats, Takes: length + time.Second, Run: func(ctx context.Context, rig *Rig, c contender.Contender) (report.Result, error) {
			return runEarly(ctx, rig, c, ttl, load, length)
		}}}
	},
}

func runEarly(ctx context.Context, rig *Rig, c contender.Contender, ttl, load, length time.Duration) (report.Result, error) {
	m, err := rig.run(ctx, c, setup{
		pods: 50,
		spec: fleet.Spec{
			Params:      contender.Params{TTL: ttl, LoadTimeout: 3 * time.Second},
			Arrivals:    measure.Arrivals{Rate: 20, For: length},
			Warm:        1,
			CallTimeout: 5 * time.Second,
		},
		source: &measure.Source{Took: load},
	})
	if err != nil {
		return report.Result{}, err
	}
	r := m.result()
	misses, waits := 0, 0
	for _, s := range m.Samples {
		switch {
		case m.lasted(s) < load/2:
		case s.Outcome == fleet.Loaded:
			misses++
		default:
			waits++
		}
	}
	cycles := float64(max(1, len(measure.Expiries(m.Loads, ttl))))
	r.Values["per_expiry"] = float64(len(m.Loads)) / cycles
	r.Values["misses"] = float64(misses) / cycles
	r.Values["waits"] = float64(waits) / cycles
	return r, nil
}
