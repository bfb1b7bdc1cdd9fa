package workload

import (
	"context"
	"errors"
	"time"

	"github.com/herdgate/herdgate/bench/internal/contender"
	"github.com/herdgate/herdgate/bench/internal/fleet"
	"github.com/herdgate/herdgate/bench/internal/measure"
	"github.com/herdgate/herdgate/bench/internal/report"
)

var restart = Workload{
	Workload: report.Workload{
		Name:     "restart",
		Title:    "Redis comes back empty",
		OverTime: true,
		About: "4 pods, 375 calls a second to each, Zipf over 1,000 keys, TTL 10 s, stale for 10 s. A load takes 20 ms, and the source works on 10 at once: 500 a second, the rest queue. Calls have a deadline " +
			"of 1 s. redis-server is killed and started again, empty. Healthy again: from when on 99 of 100 calls in each quarter of a second were answered within 100 ms.",
		Columns: append([]report.Column{
			{Key: "healthy", Title: "healthy again after", Unit: "ms"},
			{Key: "queue", Title: "longest queue at the source", Limit: "0"},
			{Key: "refill", Title: "loads after", Limit: "keys asked for"},
			{Key: "asked", Title: "keys asked for"},
		}, columns("p99", "max", "errors")...),
	},
	For:   oneOfEach,
	Quick: []string{"singleflight", "herdgate"},
	Variants: func(quick bool) []Variant {
		after, repeats := 3500*time.Millisecond, 2
		if quick {
			after, repeats = 3*time.Second, 1
		}
		return []Variant{{Name: "4 pods", Repeats: repeats, Takes: after + 4500*time.Millisecond, Run: func(ctx context.Context, rig *Rig, c contender.Contender) (report.Result, error) {
			return runRestart(ctx, rig, c, after)
		}}}
	},
}

func runRestart(ctx context.Context, rig *Rig, c contender.Contender, after time.Duration) (report.Result, error) {
	const before, keys = 500 * time.Millisecond, 1000
	if rig.Server == nil {
		return report.Result{}, ErrNotHere
	}
	var gone, back time.Duration
	length := before + after
	m, err := rig.run(ctx, c, setup{
		pods: 4,
		spec: fleet.Spec{
			Params:      contender.Params{TTL: 10 * time.Second, StaleFor: 10 * time.Second, LoadTimeout: 3 * time.Second, Entries: keys},
			Arrivals:    measure.Arrivals{Rate: 375, For: length, Keys: keys, Zipf: 1.01},
			Warm:        keys,
			CallTimeout: time.Second,
			Grace:       3 * time.Second,
		},
		source: &measure.Source{Took: 20 * time.Millisecond, Capacity: 10},
		during: func(ctx context.Context, _ *fleet.Fleet, begin time.Time) error {
			if err := wait(ctx, time.Until(begin.Add(before))); err != nil {
				return err
			}
			gone = time.Since(begin)
			err := errors.Join(rig.Server.Kill(), rig.Server.Restart())
			back = time.Since(begin)
			return err
		},
	})
	if err != nil {
		return report.Result{}, err
	}
	r := m.result()
	asked := make(map[int]bool)
	for _, s := range m.between(gone, length) {
		asked[s.Key] = true
	}
	r.Values["healthy"] = ms(m.healthyFrom(back, length) - back)
	r.Values["queue"] = float64(m.Queue)
	r.Values["refill"] = float64(m.loadsBetween(gone, length))
	r.Values["asked"] = float64(len(asked))
	return r, nil
}

// healthyFrom returns from when on calls were answered as they should be.
func (m *measured) healthyFrom(from, to time.Duration) time.Duration {
	const window = 250 * time.Millisecond
	healthy := from
	for at := from; at < to; at += window {
		calls := m.between(at, at+window)
		failed := 0
		for _, s := range calls {
			if bad(s, 100*time.Millisecond) {
				failed++
			}
		}
		if 100*failed > len(calls) {
			healthy = at + window
		}
	}
	return healthy
}
