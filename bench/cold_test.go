package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/herdgate/herdgate/stampede"
)

// BenchmarkCold is a missing key that 64 callers in each of 8 pods ask for at once; its load takes 200 ms.
// It reports loads, how long the slowest caller waited beyond the load, and requests to Redis per pod. Beside
// herdgate stands what costs least: a singleflight in each pod, GET and SET, and a load in each pod.
func BenchmarkCold(b *testing.B) {
	b.Run("singleflight", func(b *testing.B) {
		cold(b, func(load func(context.Context, string) ([]byte, error)) func(context.Context, string) ([]byte, error) {
			var group singleflight.Group
			rdb := newClient(b)
			return func(ctx context.Context, key string) ([]byte, error) {
				v, err, _ := group.Do(key, func() (any, error) {
					if v, err := rdb.Get(ctx, key).Bytes(); err == nil {
						return v, nil
					}
					v, err := load(ctx, key)
					if err == nil {
						err = rdb.Set(ctx, key, v, time.Minute).Err()
					}
					return v, err
				})
				data, _ := v.([]byte)
				return data, err
			}
		})
	})
	b.Run("herdgate", func(b *testing.B) {
		cold(b, func(load func(context.Context, string) ([]byte, error)) func(context.Context, string) ([]byte, error) {
			return newGuard[[]byte](b, newStore(b), stampede.Options{Name: "cold"}).Getter(load).Get
		})
	})
}

func cold(b *testing.B, newPod func(load func(context.Context, string) ([]byte, error)) func(context.Context, string) ([]byte, error)) {
	const pods, callers, took = 8, 64, 200 * time.Millisecond
	var loads, first, last atomic.Int64 // first, last: when the first load of a round began, and the last one ended
	gets := make([]func(context.Context, string) ([]byte, error), pods)
	for i := range gets {
		gets[i] = newPod(func(_ context.Context, key string) ([]byte, error) {
			if key != "warm" {
				loads.Add(1)
				began := time.Now().UnixNano()
				time.Sleep(took) // real time: the load
				first.CompareAndSwap(0, began)
				last.Store(time.Now().UnixNano())
			}
			return make([]byte, 1024), nil
		})
		_, _ = gets[i](context.Background(), "warm")
	}
	var slowest, before, after []time.Duration
	requests := monitor(b)
	run := time.Now().UnixNano()
	round := 0
	for b.Loop() {
		round++
		key := fmt.Sprintf("k%d-%d", run, round)
		begin := make(chan struct{})
		var ready, wg sync.WaitGroup
		var mu sync.Mutex
		worst := time.Duration(0)
		for _, get := range gets {
			for range callers {
				ready.Add(1)
				wg.Go(func() {
					ready.Done()
					<-begin
					begun := time.Now()
					if _, err := get(context.Background(), key); err != nil {
						b.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					worst = max(worst, time.Since(begun))
				})
			}
		}
		ready.Wait()
		first.Store(0)
		t0 := time.Now().UnixNano()
		close(begin)
		wg.Wait()
		slowest = append(slowest, worst-took)
		before, after = append(before, time.Duration(first.Load()-t0)), append(after, time.Duration(time.Now().UnixNano()-last.Load()))
	}
	for _, all := range [][]time.Duration{slowest, before, after} {
		slices.Sort(all)
	}
	b.ReportMetric(float64(before[len(before)/2].Microseconds())/1000, "before-load-ms")
	b.ReportMetric(float64(after[len(after)/2].Microseconds())/1000, "after-load-ms")
	b.ReportMetric(float64(loads.Load())/float64(round), "loads/op")
	b.ReportMetric(float64(slowest[len(slowest)/2].Microseconds())/1000, "beyond-p50-ms")
	b.ReportMetric(float64(slowest[len(slowest)*99/100].Microseconds())/1000, "beyond-p99-ms")
	b.ReportMetric(float64(requests())/float64(round)/pods, "requests/pod")
}

// monitor counts the requests that Redis gets from clients, by what MONITOR prints: a script is one, GET
// and PTTL in one pipeline is one, and what scripts do is none.
func monitor(b *testing.B) (count func() int) {
	conn, err := net.Dial("tcp", server.Addr())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		b.Fatal(err)
	}
	var n atomic.Int64
	started := make(chan struct{})
	go func() {
		lines := bufio.NewScanner(conn)
		lines.Scan() // +OK
		close(started)
		for lines.Scan() {
			line := lines.Text()
			for _, uncounted := range []string{" lua] ", `"pttl"`, `"hello"`, `"client"`, `"ping"`, `"info"`, `"command"`, `"config"`, `"acl"`, `"role"`} {
				if strings.Contains(strings.ToLower(line), uncounted) {
					n.Add(-1)
					break
				}
			}
			n.Add(1)
		}
	}()
	<-started
	return func() int { return int(n.Load()) }
}

// BenchmarkWaiting is what a caller that waits for a load costs in memory.
func BenchmarkWaiting(b *testing.B) {
	const callers = 10_000
	for b.Loop() {
		g := newGuard[int](b, new(stampede.MemoryStore), stampede.Options{Name: "waiting"})
		block := make(chan struct{})
		get := g.Getter(func(context.Context, string) (int, error) { <-block; return 1, nil })
		base := inUse(b)
		var idle sync.WaitGroup
		for range callers { // goroutines as any server has them, without the guard
			idle.Go(func() { <-block })
		}
		bare := inUse(b) - base
		for range callers {
			idle.Go(func() { _, _ = get.Get(context.Background(), "k") })
		}
		for g.Stats().Misses < callers {
			runtime.Gosched()
		}
		before := runtime.NumGoroutine()
		waiting := inUse(b) - base - bare
		b.ReportMetric(float64(waiting-bare)/callers, "B/waiter")
		b.ReportMetric(float64(before-2*callers), "other-goroutines")
		close(block)
		idle.Wait()
	}
}

func inUse(b *testing.B) int64 {
	b.Helper()
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
