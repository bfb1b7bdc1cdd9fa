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
		add := func(name, series string, x int, s coldSetup) {
			list = append(list, Variant{Name: name, Series: series, X: float64(x), Repeats: 1, Takes: time.Duration(s.rounds)*coldEvery + 300*time.Millisecond, Run: func(ctx context.Context, rig *Rig, c contender.Contender) (report.Result, error) {
				return runCold(ctx, rig, c, s)
			}})
		}
		pods, callers, rounds := []int{1, 2, 4, 8, 16}, []int{1, 8, 64, 512}, 3
		if quick {
			pods, callers, rounds = []int{2}, []int{64}, 1
		}
		for _, n := range pods {
			add(plural(n, "pod")+" x 16", "pods, each with 16 callers", n, coldSetup{pods: n, callers: 16, rounds: rounds})
		}
		for _, n := range callers {
			add(fmt.Sprintf("4 pods x %d", n), "callers in each of 4 pods", n, coldSetup{pods: 4, callers: n, rounds: rounds})
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
		length := 300 * time.Millisecond
		if quick {
			length = 150 * time.Millisecond
		}
		add := func(name, series string, x int, s hitSetup) {
			s.length, s.par, s.floors = length, 16, hitFloors(false)
			list = append(list, Variant{Name: name, Series: series, X: float64(x), Repeats: 1, Takes: s.takes(), Run: func(ctx context.Context, rig *Rig, c contender.Contender) (report.Result, error) {
				return runHit(ctx, rig, c, s)
			}})
		}
		sizes, keys := []int{100, 1 << 10, 10 << 10, 100 << 10, 1 << 20}, []int{1, 100, 10_000}
		if quick {
			sizes, keys = []int{100, 10 << 10}, []int{100}
		}
		for _, n := range sizes {
			add(fmt.Sprintf("%d bytes", n), "bytes of a value, 100 keys", n, hitSetup{keys: 100, value: n})
		}
		for _, n := range keys {
			add(plural(n, "key"), "keys, values of 1 KiB", n, hitSetup{keys: n})
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
