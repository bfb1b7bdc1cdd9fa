package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/herdgate/herdgate/bench/internal/contender"
	"github.com/herdgate/herdgate/bench/internal/measure"
	"github.com/herdgate/herdgate/bench/internal/report"
	"github.com/herdgate/herdgate/bench/internal/traffic"
)

var web = Workload{
	Workload: report.Workload{
		Name:  "http",
		Title: "HTTP",
		About: "A page behind the middleware, beside a bare handler that writes the same bytes: 64 connections over loopback, kept alive, each asking as soon as it has its answer (so percentiles are of " +
			"service). The client is a process of its own, the least that speaks HTTP: it shares the processor, but is not in the processor time and the allocations. The two are asked in turn, in short slices; " +
			"the ratios are medians over pairs of slices, and those of the bare handler, which is compared with another one, show how far they can be trusted. Stale: past TTL, while a load runs that does not end. " +
			"Where 64 ask for a missing page, the handler takes 20 ms; else no time.",
		Columns: []report.Column{
			{Key: "rate", Title: "requests", Unit: "/s"},
			{Key: "vs_bare", Title: "of bare", Digits: 2, Limit: "1"},
			{Key: "p50", Title: "p50", Unit: "ms", Digits: 2},
			{Key: "p99", Title: "p99", Unit: "ms", Digits: 2},
			{Key: "cpu", Title: "CPU per request", Unit: "µs", Digits: 1},
			{Key: "vs_cpu", Title: "CPU of bare", Digits: 2, Limit: "1"},
			{Key: "allocs", Title: "allocations", Digits: 1},
			{Key: "beyond", Title: "beyond bare", Digits: 1, Limit: "0"},
			{Key: "runs", Title: "handler runs per request", Digits: 3},
			{Key: "requests", Title: "requests to Redis", Digits: 3},
			{Key: "redis_cpu", Title: "Redis CPU per request", Unit: "µs", Digits: 1},
		},
	},
	For:   func(c contender.Contender) bool { return c.Wrap != nil },
	Quick: []string{contender.BareName, "herdgate", localName},
	Variants: func(quick bool) (list []Variant) {
		slices, repeats := 9, 3
		if quick {
			slices, repeats = 2, 1
		}
		for _, s := range webSetups(quick) {
			s.slices = slices
			list = append(list, Variant{Name: s.name(), Repeats: repeats, Takes: s.takes(), Run: func(ctx context.Context, rig *Rig, c contender.Contender) (report.Result, error) {
				return runWeb(ctx, rig, c, s)
			}})
		}
		return list
	},
}

// webSetup is one situation that a page is asked for in.
type webSetup struct {
	what   string
	size   int // of the page
	pages  traffic.Pages
	field  string // of the request
	want   string // in the answer's Cache-Status
	took   time.Duration
	stale  bool
	slices int // of each of the two
}

const (
	webSlice    = 40 * time.Millisecond
	webStaleTTL = time.Second // the shortest that HTTP can say
)

func webSetups(quick bool) []webSetup {
	const small, large = 1 << 10, 100 << 10
	hit := webSetup{what: "hit", want: "; hit", size: small}
	stale := webSetup{what: "stale", want: "detail=stale", stale: true, size: small}
	past := webSetup{what: "past the cache", field: "Authorization: Bearer x", want: "fwd=bypass", size: small}
	sized := func(s webSetup) webSetup { s.size = large; return s }
	list := []webSetup{hit, sized(hit), stale, past,
		{what: "64 ask for a missing page", pages: traffic.Together, took: 20 * time.Millisecond, want: "fwd=", size: small}}
	if quick {
		return list
	}
	return append(list, sized(past),
		webSetup{what: "each asks for a missing page of its own", pages: traffic.Own, want: "fwd=", size: small})
}

func (s webSetup) name() string { return fmt.Sprintf("%s, %d KiB", s.what, s.size>>10) }

func (s webSetup) takes() time.Duration {
	d := time.Duration(2*s.slices)*(webSlice+s.took) + 150*time.Millisecond
	if s.stale {
		d += webStaleTTL
	}
	return d
}

func runWeb(ctx context.Context, rig *Rig, c contender.Contender, s webSetup) (r report.Result, err error) {
	if err := rig.clean(ctx); err != nil {
		return r, err
	}
	b := &webBench{setup: s, ttl: time.Hour}
	if s.stale {
		b.ttl = webStaleTTL
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.open(ctx, rig, c); err != nil {
		return r, err
	}
	if err := b.warm(ctx); err != nil {
		return r, err
	}
	before, err := measure.ReadServer(ctx, rig.Client())
	if err != nil {
		return r, err
	}
	for i := range s.slices {
		for j := range b.sides { // the one that comes first in a pair is second in the next
			if err := ctx.Err(); err != nil {
				return r, context.Cause(ctx)
			}
			if err := b.slice(&b.sides[(i+j)%2]); err != nil {
				return r, err
			}
		}
	}
	after, err := measure.ReadServer(ctx, rig.Client())
	if err != nil {
		return r, err
	}
	return b.result(after.Minus(before))
}
