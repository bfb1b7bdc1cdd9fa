package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/herdgate/herdgate/bench/internal/contender"
	"github.com/herdgate/herdgate/bench/internal/measure"
	"github.com/herdgate/herdgate/bench/internal/report"
)

var redisHit = Workload{
	Workload: report.Workload{
		Name:  "redis-hit",
		Title: "Hot hit through Redis",
		About: "Values of 1 KiB that are there and fresh; one pod, whose goroutines ask for one after the other (so percentiles are of service, not of waiting for a turn). " +
			"go-redis' pool has its default size. What keeps copies in the pod does not do the same work: see its requests per call.",
		Columns: []report.Column{
			{Key: "rate", Title: "calls", Unit: "/s", Curve: "Calls a second."},
			{Key: "vs_get", Title: "of raw GET", Digits: 2, RatioTo: rawName, Of: "rate"},
			{Key: "vs_pttl", Title: "of raw GET+PTTL", Digits: 2, RatioTo: "raw GET+PTTL", Of: "rate"},
			{Key: "p50", Title: "p50", Unit: "µs", Digits: 0},
			{Key: "p99", Title: "p99", Unit: "µs", Digits: 0},
			{Key: "cpu", Title: "CPU per call", Unit: "µs", Digits: 1, Curve: "CPU for a call, µs."},
			{Key: "vs_cpu", Title: "CPU of raw GET", Digits: 2, RatioTo: rawName, Of: "cpu"},
			{Key: "redis_cpu", Title: "Redis CPU per call", Unit: "µs", Digits: 2},
			{Key: "requests", Title: "requests per call", Digits: 2},
			{Key: "writes", Title: "writes per call", Digits: 2},
			{Key: "allocs", Title: "allocations", Digits: 1},
		},
	},
	For: func(c contender.Contender) bool {
		return (inRedis(c) || c.Kind == contender.Floor) && !slices.Contains([]string{"setnx-poll", "redislock", "redsync", xfetchName}, c.Name) // they read as none does
	},
	Variants: func(quick bool) (list []Variant) {
		length, repeats, keys, pars := 350*time.Millisecond, 3, []int{1000, 1}, []int{1, 16, 128}
		if quick {
			length, repeats, keys, pars = 150*time.Millisecond, 1, []int{1000}, []int{1, 128}
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
		About: "The same in the pod's memory, one key and Zipf over 1,000; time is per call, over all goroutines together. otter, bare, is the floor; " +
			"go-redis/cache+local keeps bytes and copies them.",
		Columns: []report.Column{
			{Key: "ns", Title: "time per call", Unit: "ns"},
			{Key: "vs_otter", Title: "of otter", Digits: 2, RatioTo: "otter", Of: "ns"},
			{Key: "cpu_ns", Title: "CPU per call", Unit: "ns"},
			{Key: "allocs", Title: "allocations", Digits: 2, Limit: "0"},
			{Key: "bytes", Title: "allocated", Unit: "B"},
		},
	},
	For: func(c contender.Contender) bool {
		return c.Kind == contender.Memory || c.Name == "go-redis/cache+local" || c.Name == localName
	},
	Variants: func(quick bool) (list []Variant) {
		length, repeats, pars := 300*time.Millisecond, 3, []int{1, 2, 16, 256}
		if quick {
			length, repeats, pars = 100*time.Millisecond, 1, []int{1, 256}
		}
		for _, keys := range []int{1, 1000} {
			for _, par := range pars {
				list = append(list, hitVariant(length, repeats, par, keys, true))
			}
		}
		return list
	},
}

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
	return Variant{Name: name, Repeats: repeats, Takes: length + length/2 + 150*time.Millisecond, Run: func(ctx context.Context, rig *Rig, c contender.Contender) (report.Result, error) {
		return runHit(ctx, rig, c, hitSetup{length: length, par: par, keys: keys, memory: memory})
	}}
}

type hitSetup struct {
	length           time.Duration
	par, keys, value int
	memory           bool // Zipf, and not timed
}

func runHit(ctx context.Context, rig *Rig, c contender.Contender, s hitSetup) (r report.Result, err error) {
	if err := rig.clean(ctx); err != nil {
		return r, err
	}
	var wire measure.Wire
	source := new(measure.Source)
	cache, err := c.Open(&contender.Env{
		Params: contender.Params{TTL: time.Hour, StaleFor: time.Hour, LoadTimeout: 3 * time.Second, Entries: s.keys},
		Addr:   rig.Addr,
		Dial:   wire.Dial,
		Load: func(ctx context.Context, key string) ([]byte, error) {
			return source.Load(ctx, 0, key, cmp.Or(s.value, measure.ValueSize))
		},
	})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, cache.Close()) }()
	prefix := rig.prefix()
	names := make([]string, s.keys)
	for i := range names {
		names[i] = prefix + measure.KeyName(i)
		if _, err := cache.Get(ctx, names[i]); err != nil {
			return r, fmt.Errorf("filling: %w", err)
		}
	}
	// Once without measuring: connections, and whatever else the first calls need.
	if _, _, err := hammer(ctx, cache, names, s, s.length/2, false, func() {}); err != nil {
		return r, err
	}
	source.Reset()
	before, err := measure.ReadServer(ctx, rig.Client())
	if err != nil {
		return r, err
	}
	var mem, memBefore runtime.MemStats
	var sent measure.Sent
	var cpu time.Duration
	var begun time.Time
	calls, took, err := hammer(ctx, cache, names, s, s.length, !s.memory, func() {
		runtime.ReadMemStats(&memBefore)
		sent, cpu, begun = wire.Sent(), measure.CPU(), time.Now()
	})
	wall := time.Since(begun)
	cpu = measure.CPU() - cpu
	if err != nil {
		return r, err
	}
	d := wire.Sent().Minus(sent)
	runtime.ReadMemStats(&mem)
	after, err := measure.ReadServer(ctx, rig.Client())
	if err != nil {
		return r, err
	}
	n := float64(max(1, calls))
	r.Values = map[string]float64{
		"rate":      n / wall.Seconds(),
		"ns":        float64(wall) / n,
		"cpu_ns":    float64(cpu) / n,
		"cpu":       us(cpu) / n,
		"redis_cpu": us(after.Minus(before).CPU) / n,
		"requests":  float64(d.Requests) / n,
		"writes":    float64(d.Writes) / n,
		"allocs":    float64(mem.Mallocs-memBefore.Mallocs) / n,
		"bytes":     float64(mem.TotalAlloc-memBefore.TotalAlloc) / n,
		"loads":     float64(len(source.Counted().Loads)),
	}
	if took.Count() > 0 {
		r.Values["p50"], r.Values["p99"] = us(took.Quantile(0.5)), us(took.Quantile(0.99))
		r.Latency, _ = took.Encode()
	}
	return r, nil
}

// hammer lets par goroutines call, each as soon as its last call has returned, and returns how many calls there were.
// begins is run just before the first one. Without timed none is timed, which costs more than a hit in memory does.
func hammer(ctx context.Context, cache contender.Cache, names []string, s hitSetup, length time.Duration, timed bool, begins func()) (int64, *measure.Latency, error) {
	var wg sync.WaitGroup
	var calls atomic.Int64
	var stop atomic.Bool
	var mu sync.Mutex // protects all, failed
	all := measure.NewLatency()
	var failed error
	begin := make(chan struct{})
	rarely := 15 // how often a goroutine looks at stop, which is shared by all: every 16 calls
	if timed {
		rarely = 0
	}
	var ready sync.WaitGroup
	for g := range s.par {
		order := orderOf(s, g)
		ready.Add(1)
		wg.Go(func() {
			var took *measure.Latency
			if timed {
				took = measure.NewLatency()
			}
			ready.Done()
			<-begin
			n := int64(0)
			for i := 0; ; i++ {
				if i&rarely == 0 && stop.Load() {
					break
				}
				var begun time.Time
				if timed {
					begun = time.Now()
				}
				if _, err := cache.Get(ctx, names[order[i&(len(order)-1)]]); err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
					break
				}
				if timed {
					took.Record(time.Since(begun))
				}
				n++
			}
			calls.Add(n)
			if timed {
				mu.Lock()
				all.Merge(took)
				mu.Unlock()
			}
		})
	}
	ready.Wait()
	t := time.AfterFunc(length, func() { stop.Store(true) })
	defer t.Stop()
	begins()
	close(begin)
	wg.Wait()
	return calls.Load(), all, failed
}

// orderOf is the order in which a goroutine asks for keys; its length is a power of two.
func orderOf(s hitSetup, g int) []int32 {
	order := make([]int32, 1<<12)
	rnd := rand.New(rand.NewPCG(uint64(g), 7))
	if s.keys == 1 {
		return order
	}
	z := rand.NewZipf(rnd, 1.01, 1, uint64(s.keys-1))
	for i := range order {
		if s.memory {
			order[i] = int32(z.Uint64())
		} else {
			order[i] = rnd.Int32N(int32(s.keys))
		}
	}
	return order
}
