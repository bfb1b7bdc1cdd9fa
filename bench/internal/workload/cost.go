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
		About: "Requests that a pod sends, and in brackets commands that scripts run, for one call with nobody else about: a hit; a miss, with its load; the same in a pod that waits while another one loads for 60 ms; " +
			"a call after TTL, where something stale may be served, with the load that it brings about; the next such call, in another pod, while that load runs. The pods have seen a dozen misses before. Means over several keys.",
		Columns: []report.Column{
			{Key: "hit", Title: "hit", Digits: 2},
			{Key: "hit_scripted", Title: "(scripts)", Digits: 2},
			{Key: "miss", Title: "miss", Digits: 1},
			{Key: "miss_scripted", Title: "(scripts)", Digits: 1},
			{Key: "wait", Title: "waiting pod", Digits: 1},
			{Key: "wait_scripted", Title: "(scripts)", Digits: 1},
			{Key: "stale", Title: "after TTL", Digits: 1},
			{Key: "stale_scripted", Title: "(scripts)", Digits: 1},
			{Key: "next", Title: "next pod", Digits: 1},
			{Key: "next_scripted", Title: "(scripts)", Digits: 1},
		},
	},
	For:   func(c contender.Contender) bool { return inRedis(c) && c.Name != xfetchName },
	Quick: []string{"singleflight", "herdgate", localName},
	Variants: func(bool) []Variant {
		return []Variant{{Name: "one call at a time", Repeats: 1, Takes: 2500 * time.Millisecond, Run: runCost}}
	},
}

const (
	costTTL  = time.Second // the shortest that all contenders accept
	costLoad = 60 * time.Millisecond
)

func runCost(ctx context.Context, rig *Rig, c contender.Contender) (r report.Result, err error) {
	if err := rig.clean(ctx); err != nil {
		return r, err
	}
	b := &bill{ctx: ctx, rig: rig, prefix: rig.prefix(), source: &measure.Source{Took: costLoad}, began: make(chan struct{}, 1000)}
	b.source.Began = func(measure.Load) { b.began <- struct{}{} }
	defer func() { err = errors.Join(err, b.close()) }()
	for i := range b.pods {
		p := &b.pods[i]
		p.cache, err = c.Start(&contender.Env{
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

func (b *bill) close() (err error) {
	for i := range b.pods {
		if cache := b.pods[i].cache; cache != nil {
			err = errors.Join(err, cache.Close())
		}
	}
	return err
}

func (b *bill) measure(values map[string]float64) error {
	const keys, hits = 4, 100
	const learns = 12         // misses after which a pod that goes by what it has seen has seen enough
	for pod := range b.pods { // connections, scripts, and whatever else first calls need
		for range 3 {
			if err := b.get(pod, fmt.Sprint("warm", pod)); err != nil {
				return err
			}
		}
		for n := range learns {
			if err := b.get(pod, fmt.Sprint("learn", pod, "-", n)); err != nil {
				return err
			}
		}
	}
	b.source.Reset() // loads take their time from now on
	err := errors.Join(
		b.count(values, "hit", hits, 0, func(int) error { return b.get(0, "warm0") }),
		b.count(values, "miss", 2*keys, 0, func(n int) error { return b.get(0, fmt.Sprint("miss", n)) }),
		b.count(values, "wait", keys, 1, func(n int) error {
			done := make(chan error, 1)
			b.drain()
			go func() { done <- b.get(0, fmt.Sprint("wait", n)) }()
			b.loadBegan()
			return errors.Join(b.get(1, fmt.Sprint("wait", n)), <-done)
		}),
		wait(b.ctx, costTTL+100*time.Millisecond),
		b.count(values, "stale", keys, 0, func(n int) error { return errors.Join(b.get(0, fmt.Sprint("miss", n)), wait(b.ctx, 2*costLoad)) }),
		b.count(values, "next", keys, 1, func(n int) error {
			b.drain()
			err := b.get(0, fmt.Sprint("miss", keys+n))
			b.loadBegan() // a load behind, or the one that the call has waited for
			return errors.Join(err, b.get(1, fmt.Sprint("miss", keys+n)), wait(b.ctx, 2*costLoad))
		}),
	)
	// Redis does not tell whose scripts they were: those of the pod that loads are known by now.
	values["wait_scripted"] -= values["miss_scripted"]
	values["next_scripted"] -= values["stale_scripted"]
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
	v, err := b.pods[pod].cache.Get(ctx, b.prefix+key)
	if err == nil && !measure.MarkOf(b.prefix+key).On(v, measure.ValueSize) {
		err = errNotOfKey
	}
	return err
}

// loadBegan waits until a load has begun since drain.
func (b *bill) loadBegan() {
	select {
	case <-b.began:
	case <-b.ctx.Done():
	}
}

// drain forgets which loads have begun until now.
func (b *bill) drain() {
	for len(b.began) > 0 {
		<-b.began
	}
}
