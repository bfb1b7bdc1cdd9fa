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

var cold = Workload{
	Workload: report.Workload{
		Name:  "cold",
		Title: "Cold start",
		About: "A key that nobody has: 64 callers in each of 8 pods ask for it at the same moment, a load takes 200 ms; again and again with new keys. " +
			"The wait beyond the load is that of the slowest of the 512 callers: its median over the rounds, and its worst.",
		Columns: append([]report.Column{
			{Key: "per_round", Title: "loads", Digits: 2, Limit: "1"},
			{Key: "most", Title: "at once", Limit: "1"},
			{Key: "beyond", Title: "slowest, beyond the load", Unit: "ms", Digits: 1, Limit: "0", Curve: "Wait of the slowest caller beyond the load, ms.", Chart: "Wait of the slowest caller beyond the load, ms."},
			{Key: "beyond_max", Title: "worst round", Unit: "ms", Digits: 1, Limit: "0"},
			{Key: "beyond_p50", Title: "median caller, beyond", Unit: "ms", Digits: 1, Limit: "0"},
			{Key: "requests_round", Title: "requests per pod", Digits: 1, Curve: "Requests of a pod to Redis."},
			{Key: "scripted_round", Title: "in scripts per pod", Digits: 1},
		}, columns("cpu", "redis_cpu", "errors")...),
	},
	For:   func(c contender.Contender) bool { return inRedis(c) && c.Name != xfetchName },
	Quick: []string{"none", "singleflight", "redislock", "go-redis/cache", "sturdyc+redis", "rueidis-placeholder", "herdgate", localName},
	Variants: func(quick bool) []Variant {
		rounds, repeats := 5, 3
		if quick {
			rounds, repeats = 2, 1
		}
		return []Variant{{Name: "8 pods x 64", Repeats: repeats, Takes: time.Duration(rounds)*coldEvery + 300*time.Millisecond, Run: func(ctx context.Context, rig *Rig, c contender.Contender) (report.Result, error) {
			return runCold(ctx, rig, c, coldSetup{pods: 8, callers: 64, rounds: rounds})
		}}}
	},
}

// coldEvery is so long that a round is over before the next one begins, whoever runs it.
const coldEvery = 600 * time.Millisecond

type coldSetup struct{ pods, callers, rounds, value int }

func runCold(ctx context.Context, rig *Rig, c contender.Contender, s coldSetup) (report.Result, error) {
	const load = 200 * time.Millisecond
	m, err := rig.run(ctx, c, setup{
		pods: s.pods,
		spec: fleet.Spec{
			Params:      contender.Params{TTL: time.Minute, StaleFor: time.Minute, LoadTimeout: 3 * time.Second, Entries: s.rounds},
			Arrivals:    measure.Arrivals{Burst: s.callers, Every: coldEvery, For: time.Duration(s.rounds) * coldEvery},
			Value:       s.value,
			CallTimeout: 5 * time.Second,
		},
		source: &measure.Source{Took: load},
	})
	if err != nil {
		return report.Result{}, err
	}
	r := m.result()
	slowest := make([]float64, s.rounds)
	var all []float64
	for _, s := range m.Samples {
		beyond := ms(m.lasted(s) - load)
		slowest[s.Key] = max(slowest[s.Key], beyond)
		all = append(all, beyond)
	}
	rounds := float64(s.rounds)
	r.Values["per_round"] = r.Values["loads"] / rounds
	r.Values["beyond"] = median(slowest)
	r.Values["beyond_max"] = slices.Max(slowest)
	r.Values["beyond_p50"] = median(all)
	r.Values["requests_round"] = r.Values["requests_per_pod"] / rounds
	r.Values["scripted_round"] = r.Values["scripted"] * r.Values["calls"] / rounds / float64(s.pods)
	return r, nil
}
