package workload

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/herdgate/herdgate/bench/internal/contender"
	"github.com/herdgate/herdgate/bench/internal/report"
)

// The growth workloads repeat others with one number growing.

var growth = Workload{
	Workload: report.Workload{
		Name:    "cold-growth",
		Title:   "How a cold start grows",
		About:   "The cold start with more and more pods, and with more and more callers in each.",
		Columns: cold.Columns,
	},
	For: func(c contender.Contender) bool { return slices.Contains([]string{"singleflight", "herdgate"}, c.Name) },
	Variants: func(quick bool) (list []Variant) {
		add := func(name string, s coldSetup) {
			list = append(list, Variant{Name: name, Repeats: 1, Takes: time.Duration(s.rounds)*coldEvery + 300*time.Millisecond, Run: func(ctx context.Context, rig *Rig, c contender.Contender) (report.Result, error) {
				return runCold(ctx, rig, c, s)
			}})
		}
		if quick {
			return nil
		}
		for _, pods := range []int{1, 2, 4, 8, 16} {
			add(plural(pods, "pod")+" x 16", coldSetup{pods: pods, callers: 16, rounds: 6})
		}
		for _, callers := range []int{1, 8, 64, 512} {
			add(fmt.Sprintf("4 pods x %d", callers), coldSetup{pods: 4, callers: callers, rounds: 6})
		}
		return list
	},
}

var hitGrowth = Workload{
	Workload: report.Workload{
		Name:    "hit-growth",
		Title:   "How a hit grows",
		About:   "The hot hit through Redis, 16 goroutines, with larger and larger values and with more and more keys.",
		Columns: redisHit.Columns,
	},
	For: func(c contender.Contender) bool {
		return slices.Contains([]string{rawName, "raw GET+PTTL", "herdgate"}, c.Name)
	},
	Variants: func(quick bool) (list []Variant) {
		add := func(name string, s hitSetup) {
			s.length, s.par = 500*time.Millisecond, 16
			list = append(list, Variant{Name: name, Repeats: 1, Takes: 2 * s.length, Run: func(ctx context.Context, rig *Rig, c contender.Contender) (report.Result, error) {
				return runHit(ctx, rig, c, s)
			}})
		}
		if quick {
			return nil
		}
		for _, size := range []int{100, 1 << 10, 10 << 10, 100 << 10, 1 << 20} {
			add(fmt.Sprintf("%d bytes", size), hitSetup{keys: 100, value: size})
		}
		for _, keys := range []int{1, 100, 10_000} {
			add(plural(keys, "key"), hitSetup{keys: keys})
		}
		return list
	},
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
