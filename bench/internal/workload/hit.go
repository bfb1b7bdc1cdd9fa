package workload

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/herdgate/herdgate/bench/internal/contender"
	"github.com/herdgate/herdgate/bench/internal/report"
)

// inTurn says how ratios to floors are measured.
const inTurn = "Each is asked in turn with its floors, in slices of 25 ms; the ratios are medians over the slices, and those of a floor, which is compared with another one of its kind, " +
	"show how far they can be trusted. "

var redisHit = Workload{
	Workload: report.Workload{
		Name:  "redis-hit",
		Title: "Hot hit through Redis",
		About: "Values of 1 KiB that are there and fresh; one pod, whose goroutines ask for one after the other (so percentiles are of service, not of waiting for a turn). " +
			"go-redis' pool has its default size. " + inTurn + "What keeps copies in the pod does not do the same work: see its requests per call.",
		Columns: []report.Column{
			{Key: "rate", Title: "calls", Unit: "/s", Curve: "Calls a second."},
			{Key: "vs_get", Title: "of raw GET", Digits: 2},
			{Key: "vs_pttl", Title: "of raw GET+PTTL", Digits: 2},
			{Key: "p50", Title: "p50", Unit: "µs", Digits: 0},
			{Key: "p99", Title: "p99", Unit: "µs", Digits: 0},
			{Key: "cpu", Title: "CPU per call", Unit: "µs", Digits: 1, Curve: "CPU for a call, µs."},
			{Key: "vs_cpu", Title: "CPU of raw GET", Digits: 2},
			{Key: "redis_cpu", Title: "Redis CPU per call", Unit: "µs", Digits: 2},
			{Key: "requests", Title: "requests per call", Digits: 2},
			{Key: "writes", Title: "writes per call", Digits: 2},
			{Key: "allocs", Title: "allocations", Digits: 1},
		},
	},
	For: func(c contender.Contender) bool {
		return (inRedis(c) || c.Kind == contender.Floor) && !slices.Contains([]string{"setnx-poll", "redislock", "redsync", xfetchName}, c.Name) // they read as none does
	},
	Quick: []string{rawName, "raw GET rueidis", "singleflight", "herdgate", localName},
	Variants: func(quick bool) (list []Variant) {
		length, repeats, keys, pars := 150*time.Millisecond, 3, []int{1000, 1}, []int{1, 16, 128}
		if quick {
			length, repeats, keys, pars = 75*time.Millisecond, 1, []int{1000}, []int{1, 128}
		}
		for _, keys := range keys {
			for _, par := range pars {
				list = append(list, hitVariant(length, repeats, par, keys, false))
			}
		}
		return list
	},
}

var memoryHit = Workload{
	Workload: report.Workload{
		Name:  "memory-hit",
		Title: "Hot hit in memory",
		About: "The same in the pod's memory, one key and Zipf over 1,000; time is per call, over all goroutines together. otter, bare, is the floor. " +
			inTurn + "go-redis/cache+local keeps bytes and copies them.",
		Columns: []report.Column{
			{Key: "ns", Title: "time per call", Unit: "ns"},
			{Key: "vs_otter", Title: "of otter", Digits: 2},
			{Key: "cpu_ns", Title: "CPU per call", Unit: "ns"},
			{Key: "allocs", Title: "allocations", Digits: 2, Limit: "0"},
			{Key: "bytes", Title: "allocated", Unit: "B"},
		},
	},
	For: func(c contender.Contender) bool {
		return c.Kind == contender.Memory || c.Name == "go-redis/cache+local" || c.Name == localName
	},
	Variants: func(quick bool) (list []Variant) {
		length, repeats, pars := 125*time.Millisecond, 3, []int{1, 2, 16, 256}
		if quick {
			length, repeats, pars = 75*time.Millisecond, 1, []int{1, 256}
		}
		for _, keys := range []int{1, 1000} {
			for _, par := range pars {
				list = append(list, hitVariant(length, repeats, par, keys, true))
			}
		}
		return list
	},
}

// hitFloors are what hits are compared with, and the values that say so: of the rate, or of the time of a call.
func hitFloors(memory bool) []hitFloor {
	if memory {
		return []hitFloor{{of: otterMemory, time: "vs_otter"}}
	}
	return []hitFloor{{of: rawName, rate: "vs_get", cpu: "vs_cpu"}, {of: "raw GET+PTTL", rate: "vs_pttl"}}
}

const otterMemory = "otter"

type hitFloor struct{ of, rate, time, cpu string }

func hitVariant(length time.Duration, repeats, par, keys int, memory bool) Variant {
	which := "one key"
	if keys > 1 {
		which = fmt.Sprintf("%d keys", keys)
		if memory {
			which = fmt.Sprintf("Zipf over %d", keys)
		}
	}
	name := fmt.Sprintf("%s, %d goroutines", which, par)
	if par == 1 {
		name = which + ", 1 goroutine"
	}
	s := hitSetup{length: length, par: par, keys: keys, memory: memory, floors: hitFloors(memory)}
	return Variant{Name: name, Repeats: repeats, Takes: s.takes(), Run: func(ctx context.Context, rig *Rig, c contender.Contender) (report.Result, error) {
		return runHit(ctx, rig, c, s)
	}}
}
