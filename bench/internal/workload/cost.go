package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/herdgate/herdgate/bench/internal/contender"
	"github.com/herdgate/herdgate/bench/internal/measure"
	"github.com/herdgate/herdgate/bench/internal/report"
)

var cost = Workload{
	Workload: report.Workload{
		Name:  "cost",
		Title: "What each call costs Redis",
		About: "Requests that a pod sends, and in brackets commands that scripts run, for one call with nobody else about: a hit; a miss, with its load; the same in a pod that waits while another one loads for 100 ms; " +
			"a call after TTL, where something stale may be served, with the load that it brings about; the next such call, in another pod, while that load runs. Means over several keys.",
		Columns: []report.Column{
			{Key: "hit", Title: "hit", Digits: 2},
			{Key: "hit_scripted", Title: "(scripts)", Digits: 2},
			{Key: "miss", Title: "miss", Digits: 1},
			{Key: "miss_scripted", Title: "(scripts)", Digits: 1},
			{Key: "wait", Title: "waiting pod", Digits: 1},
			{Key: "stale", Title: "after TTL", Digits: 1},
			{Key: "stale_scripted", Title: "(scripts)", Digits: 1},
			{Key: "stale_next", Title: "next pod", Digits: 1},
		},
	},
	For:   func(c contender.Contender) bool { return inRedis(c) && c.Name != xfetchName },
	Quick: []string{"singleflight", "herdgate", localName},
	Variants: func(bool) []Variant {
		return []Variant{{Name: "one call at a time", Repeats: 1, Takes: 2500 * time.Millisecond, Run: runCost}}
	},
}

const costTTL = time.Second // the shortest that all contenders accept

func runCost(ctx context.Context, rig *Rig, c contender.Contender) (r report.Result, err error) {
	if err := rig.clean(ctx); err != nil {
		return r, err
	}
	b := &bill{ctx: ctx, rig: rig, prefix: rig.prefix(), source: &measure.Source{Took: 100 * time.Millisecond}, began: make(chan struct{}, 1000)}
	b.source.Began = func(measure.Load) { b.began <- struct{}{} }
	for i := range b.pods {
		p := &b.pods[i]
		p.cache, err = c.Open(&contender.Env{
			Params: contender.Params{TTL: costTTL, StaleFor: time.Minute, LoadTimeout: 3 * time.Second, Exact: true},
			Addr:   rig.Addr,
			Dial:   p.wire.Dial,
			Load: func(ctx context.Context, key string) ([]byte, error) {
				return b.source.Load(ctx, i, key, measure.ValueSize)
			},
		})
		if err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, p.cache.Close()) }()
	}
	r.Values = make(map[string]float64)
	return r, b.measure(r.Values)
}

// bill counts what single calls of two pods cost.
type bill struct {
	ctx    context.Context
	rig    *Rig
	prefix string
	source *measure.Source
	began  chan struct{} // loads
	pods   [2]struct {
		cache contender.Cache
		wire  measure.Wire
	}
}

func (b *bill) measure(values map[string]float64) error {
	const keys, hits = 4, 100
	for pod := range b.pods { // connections, scripts, and whatever else first calls need
		for range 3 {
			if err := b.get(pod, fmt.Sprint("warm", pod)); err != nil {
				return err
			}
		}
	}
	b.source.Reset() // loads take their time from now on
	return errors.Join(
		b.count(values, "hit", hits, 0, func(int) error { return b.get(0, "warm0") }),
		b.count(values, "miss", keys, 0, func(n int) error { return b.get(0, fmt.Sprint("miss", n)) }),
		b.count(values, "wait", keys, 1, func(n int) error {
			done := make(chan error, 1)
			b.drain()
			go func() { done <- b.get(0, fmt.Sprint("wait", n)) }()
			<-b.began
			return errors.Join(b.get(1, fmt.Sprint("wait", n)), <-done)
		}),
		b.afterTTL(values, keys),
	)
}

// afterTTL counts the first call of one pod after an entry's TTL, and then that of the other pod.
func (b *bill) afterTTL(values map[string]float64, keys int) error {
	if err := wait(b.ctx, costTTL+100*time.Millisecond); err != nil {
		return err
	}
	stale := func(n int) string { return fmt.Sprint("miss", n) }
	next := b.pods[1].wire.Sent()
	err := b.count(values, "stale", keys, 0, func(n int) error {
		b.drain()
		err := b.get(0, stale(n))
		select { // a load behind has begun, or the call has waited for one
		case <-b.began:
		case <-time.After(50 * time.Millisecond):
		}
		err = errors.Join(err, b.get(1, stale(n)))
		return errors.Join(err, wait(b.ctx, 120*time.Millisecond)) // until the load behind has ended
	})
	values["stale_next"] = float64(b.pods[1].wire.Sent().Minus(next).Requests) / float64(keys)
	return err
}

// count runs fn n times and notes what a pod sends and what scripts run meanwhile, for each time.
func (b *bill) count(values map[string]float64, name string, n, pod int, fn func(n int) error) error {
	before, err := measure.ReadServer(b.ctx, b.rig.Client())
	if err != nil {
		return err
	}
	sent := [2]measure.Sent{b.pods[0].wire.Sent(), b.pods[1].wire.Sent()}
	for i := range n {
		if err := fn(i); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	after, err := measure.ReadServer(b.ctx, b.rig.Client())
	if err != nil {
		return err
	}
	var all measure.Sent
	for i := range sent {
		all.Add(b.pods[i].wire.Sent().Minus(sent[i]))
	}
	values[name] = float64(b.pods[pod].wire.Sent().Minus(sent[pod]).Requests) / float64(n)
	values[name+"_scripted"] = float64(after.Minus(before).Scripted(all)) / float64(n)
	return nil
}

func (b *bill) get(pod int, key string) error {
	ctx, cancel := context.WithTimeout(b.ctx, 10*time.Second)
	defer cancel()
	_, err := b.pods[pod].cache.Get(ctx, b.prefix+key)
	return err
}

// drain forgets which loads have begun until now.
func (b *bill) drain() {
	for len(b.began) > 0 {
		<-b.began
	}
}
