package workload

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/herdgate/herdgate/bench/internal/contender"
	"github.com/herdgate/herdgate/bench/internal/fleet"
	"github.com/herdgate/herdgate/bench/internal/measure"
	"github.com/herdgate/herdgate/bench/internal/report"
)

var hang = Workload{
	Workload: report.Workload{
		Name:  "hang",
		Title: "The leader hangs",
		About: "A missing key, 4 pods, 50 calls a second to each, each with a deadline of 500 ms; a load takes 50 ms and may take 1 s. The first load never ends and does not look at its ctx. " +
			"The hung pod is the one whose load that was.",
		Columns: append([]report.Column{
			{Key: "outstay", Title: "longest past its deadline", Unit: "ms", Digits: 1, Limit: "0"},
			{Key: "unanswered", Title: "never answered", Limit: "0"},
			{Key: "served", Title: "first value after", Unit: "ms", Limit: "1000"},
			{Key: "own", Title: "hung pod answers at the end", Unit: "%", Limit: "100"},
			{Key: "others", Title: "other pods", Unit: "%", Limit: "100"},
		}, columns("loads")...),
	},
	For:   func(c contender.Contender) bool { return inRedis(c) && c.Name != xfetchName && c.Name != localName },
	Quick: []string{"singleflight", "herdgate"},
	Variants: func(bool) []Variant {
		return []Variant{{Name: "4 pods", Repeats: 1, Takes: 4200 * time.Millisecond, Run: runHang}}
	},
}

func runHang(ctx context.Context, rig *Rig, c contender.Contender) (report.Result, error) {
	const length, timeout = 3 * time.Second, 500 * time.Millisecond
	var hung atomic.Bool
	var at atomic.Pointer[measure.Load]
	source := &measure.Source{Took: 50 * time.Millisecond, Hang: func(l measure.Load) bool {
		if !hung.CompareAndSwap(false, true) {
			return false
		}
		at.Store(&l)
		return true
	}}
	m, err := rig.run(ctx, c, setup{
		pods: 4,
		spec: fleet.Spec{
			Params:      contender.Params{TTL: time.Minute, StaleFor: time.Minute, LoadTimeout: time.Second},
			Arrivals:    measure.Arrivals{Rate: 50, For: length},
			CallTimeout: timeout,
			Grace:       time.Second,
		},
		source: source,
	})
	if err != nil {
		return report.Result{}, err
	}
	r := m.result()
	victim := -1
	if l := at.Load(); l != nil {
		victim = l.Pod
		r.Values["served"] = ms(m.firstAnswer() - l.Begin.Sub(m.begin))
	}
	unanswered, outstay := 0, time.Duration(0)
	for _, s := range m.Samples {
		if s.Outcome == fleet.Unanswered {
			unanswered++
		}
		outstay = max(outstay, s.Took-timeout)
	}
	r.Values["outstay"] = max(0, ms(outstay))
	r.Values["unanswered"] = float64(unanswered)
	var calls, ok [2]float64
	for _, s := range m.between(length-500*time.Millisecond, length) {
		i := 1
		if s.Pod == victim {
			i = 0
		}
		calls[i]++
		if s.Outcome == fleet.Served || s.Outcome == fleet.Loaded {
			ok[i]++
		}
	}
	r.Values["own"] = 100 * ok[0] / max(1, calls[0])
	r.Values["others"] = 100 * ok[1] / max(1, calls[1])
	return r, nil
}
