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

var crash = Workload{
	Workload: report.Workload{
		Name:     "crash",
		Title:    "The leader dies",
		OverTime: true,
		About: "A missing key, 4 pods, each a process, 50 calls a second to each; a load takes 1 s and may take 3 s. The process that loads is killed (SIGKILL) 300 ms into its load. Those contenders take " +
			"part that mean to load once in the fleet. Calls are those of the pods that live.",
		Columns: append([]report.Column{
			{Key: "next", Title: "next load after the death", Unit: "ms", Limit: "0", Chart: "Time to the next load after the death, ms."},
			{Key: "after", Title: "loads until the value is there", Digits: 1, Limit: "1"},
			{Key: "served", Title: "first answer after the death", Unit: "ms", Limit: "1000"},
		}, columns("max", "errors")...),
	},
	For:   func(c contender.Contender) bool { return c.Kind == contender.Elected && c.Name != localName },
	Quick: []string{"redislock", "herdgate"},
	Variants: func(quick bool) []Variant {
		repeats := 2
		if quick {
			repeats = 1
		}
		return []Variant{{Name: "4 processes", Repeats: repeats, Takes: 6500 * time.Millisecond, Run: runCrash}}
	},
}

func runCrash(ctx context.Context, rig *Rig, c contender.Contender) (report.Result, error) {
	const load = time.Second
	began := make(chan measure.Load, 1)
	source := &measure.Source{Took: load, Began: func(l measure.Load) {
		select {
		case began <- l:
		default:
		}
	}}
	var killed time.Time
	var victim int
	m, err := rig.run(ctx, c, setup{
		pods:  4,
		procs: true,
		spec: fleet.Spec{
			Params:      contender.Params{TTL: time.Minute, StaleFor: time.Minute, LoadTimeout: 3 * time.Second},
			Arrivals:    measure.Arrivals{Rate: 50, For: 5 * time.Second},
			CallTimeout: 10 * time.Second,
		},
		source: source,
		during: func(ctx context.Context, f *fleet.Fleet, _ time.Time) error {
			select {
			case l := <-began:
				if err := wait(ctx, 300*time.Millisecond); err != nil {
					return err
				}
				victim, killed = l.Pod, time.Now()
				return f.Kill(l.Pod)
			case <-ctx.Done():
				return errors.New("nobody loaded")
			}
		},
	})
	if err != nil {
		return report.Result{}, err
	}
	m.Outcomes.CPU = 0
	r := m.result()
	r.Values["next"], r.Values["after"] = -1, 0
	for _, l := range m.Loads {
		if l.Begin.Before(killed) || l.Pod == victim {
			continue
		}
		if r.Values["next"] < 0 {
			r.Values["next"] = ms(l.Begin.Sub(killed))
		}
		r.Values["after"]++
	}
	if r.Values["next"] < 0 {
		return r, errors.New("nobody loaded after the death")
	}
	r.Values["served"] = ms(m.firstAnswer() - killed.Sub(m.begin))
	return r, nil
}

// firstAnswer returns when, counted from the beginning, the first call came back with a value.
func (m *measured) firstAnswer() time.Duration {
	first := time.Duration(1<<63 - 1)
	for _, s := range m.Samples {
		if s.Outcome == fleet.Served || s.Outcome == fleet.Loaded {
			first = min(first, s.Due+s.Took)
		}
	}
	return first
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
