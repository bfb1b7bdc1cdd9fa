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

var outage = Workload{
	Workload: report.Workload{
		Name:     "outage",
		Title:    "Redis stopped for 3 s",
		OverTime: true,
		About: "4 pods, 100 calls a second to each, Zipf over 100 keys that every pod has seen, TTL 1 s, stale for 1 s, a load takes 20 ms; calls have a deadline of 5 s. redis-server is stopped (SIGSTOP) for 3 s, " +
			"with the clients in their default settings and with time limits of 100 ms. Well again: when the last call was due that failed or took more than 50 ms, after Redis went on.",
		Columns: append([]report.Column{
			{Key: "within50", Title: "within 50 ms meanwhile", Unit: "%", Digits: 1, Limit: "100"},
			{Key: "p99_out", Title: "p99 meanwhile", Unit: "ms"},
			{Key: "max_out", Title: "longest meanwhile", Unit: "ms"},
			{Key: "loads_ratio", Title: "loads/s over normal", Digits: 1, Limit: "1"},
			{Key: "well", Title: "well again after", Unit: "ms", Limit: "0"},
		}, columns("errors")...),
	},
	For:   oneOfEach,
	Quick: []string{"singleflight", "herdgate", localName},
	Variants: func(quick bool) (list []Variant) {
		for _, v := range []struct {
			name    string
			limit   time.Duration
			repeats int
		}{{"default clients", 0, 2}, {"time limits of 100 ms", 100 * time.Millisecond, 1}} {
			if quick {
				if v.limit != 0 {
					continue
				}
				v.repeats = 1
			}
			list = append(list, Variant{Name: v.name, Repeats: v.repeats, Takes: 8500 * time.Millisecond, Run: func(ctx context.Context, rig *Rig, c contender.Contender) (report.Result, error) {
				return runOutage(ctx, rig, c, v.limit)
			}})
		}
		return list
	},
}

func runOutage(ctx context.Context, rig *Rig, c contender.Contender, limit time.Duration) (report.Result, error) {
	const before, gone, after, keys = 1500 * time.Millisecond, 3 * time.Second, 3 * time.Second, 100
	if rig.Server == nil {
		return report.Result{}, ErrNotHere
	}
	var stopped, back time.Duration
	m, err := rig.run(ctx, c, setup{
		pods: 4,
		spec: fleet.Spec{
			Params:      contender.Params{TTL: time.Second, StaleFor: time.Second, LoadTimeout: 3 * time.Second, Entries: keys, ClientTimeout: limit},
			Arrivals:    measure.Arrivals{Rate: 100, For: before + gone + after, Keys: keys, Zipf: 1.01},
			Warm:        keys,
			CallTimeout: 5 * time.Second,
			Grace:       7 * time.Second,
		},
		source: &measure.Source{Took: 20 * time.Millisecond},
		during: func(ctx context.Context, _ *fleet.Fleet, begin time.Time) (err error) {
			if err := wait(ctx, time.Until(begin.Add(before))); err != nil {
				return err
			}
			stopped = time.Since(begin)
			if err := rig.Server.Stop(); err != nil {
				return err
			}
			defer func() { // whatever happens
				err = errors.Join(err, rig.Server.Cont())
				back = time.Since(begin)
			}()
			return wait(ctx, gone)
		},
	})
	if err != nil {
		return report.Result{}, err
	}
	r := m.result()
	meanwhile := measure.NewLatency()
	good := 0
	for _, s := range m.between(stopped, back) {
		meanwhile.Record(m.lasted(s))
		if !bad(s, 50*time.Millisecond) {
			good++
		}
	}
	well := time.Duration(0)
	for _, s := range m.between(back, before+gone+after) {
		if bad(s, 50*time.Millisecond) {
			well = s.Due - back
		}
	}
	normal := float64(m.loadsBetween(0, stopped)) / stopped.Seconds()
	r.Values["within50"] = 100 * float64(good) / float64(max(1, meanwhile.Count()))
	r.Values["p99_out"] = ms(meanwhile.Quantile(0.99))
	r.Values["max_out"] = ms(meanwhile.Max())
	r.Values["loads_ratio"] = float64(m.loadsBetween(stopped, back)) / (back - stopped).Seconds() / max(1, normal)
	r.Values["well"] = ms(well)
	return r, nil
}

// bad says whether a call failed or took longer than limit.
func bad(s fleet.Sample, limit time.Duration) bool {
	return s.Outcome == fleet.Failed || s.Outcome == fleet.Unanswered || s.Took > limit
}
