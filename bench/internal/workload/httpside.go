package workload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/herdgate/herdgate/bench/internal/contender"
	"github.com/herdgate/herdgate/bench/internal/measure"
	"github.com/herdgate/herdgate/bench/internal/report"
	"github.com/herdgate/herdgate/bench/internal/traffic"
)

// webBench is a bare handler and one behind a cache, with the client of both.
type webBench struct {
	setup   webSetup
	ttl     time.Duration
	wire    measure.Wire
	client  *traffic.Client
	sides   [2]webSide // bare, cached
	closers []func() error
}

// webSide is one of the two servers and what was measured there.
type webSide struct {
	addr  string
	page  *page
	want  string // in the answers' Cache-Status
	tally webTally
}

// webTally is what was measured of one server.
type webTally struct {
	rates, costs     []float64 // of each slice: requests a second; processor time for each, µs
	requests, wanted int
	runs, sent       int64 // of the handler; to Redis
	allocs           uint64
	took             *measure.Latency
}

func (b *webBench) open(ctx context.Context, rig *Rig, c contender.Contender) (err error) {
	for i := range b.sides {
		b.sides[i].page = newPage(b.setup.size, b.ttl)
		b.sides[i].tally.took = measure.NewLatency()
	}
	web, err := c.Wrap(&contender.Env{
		Params: contender.Params{TTL: b.ttl, StaleFor: time.Hour, LoadTimeout: 30 * time.Second, Entries: 10_000},
		Addr:   rig.Addr,
		Dial:   b.wire.Dial,
	}, b.sides[1].page)
	if err != nil {
		return err
	}
	b.closers = append(b.closers, web.Close)
	if c.Kind != contender.Handler {
		b.sides[1].want = b.setup.want
	}
	for i, h := range []http.Handler{b.sides[0].page, web} {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
		go func() { _ = server.Serve(listener) }()
		b.closers = append(b.closers, server.Close)
		b.sides[i].addr = listener.Addr().String()
	}
	if b.client, err = traffic.Start(ctx); err == nil {
		b.closers = append(b.closers, b.client.Close)
	}
	return err
}

// close closes what was opened, the last first.
func (b *webBench) close() (err error) {
	for i := range b.sides {
		b.sides[i].page.letGo()
	}
	for _, closer := range slices.Backward(b.closers) {
		err = errors.Join(err, closer())
	}
	return err
}

// warm connects, fills the cache, and waits until what is there is as stale as it should be.
func (b *webBench) warm(ctx context.Context) error {
	for i := range b.sides {
		if err := b.slice(&b.sides[i]); err != nil {
			return err
		}
	}
	if cached := &b.sides[1]; b.setup.stale {
		if cached.want != "" {
			cached.page.hold()
		}
		if err := wait(ctx, b.ttl+50*time.Millisecond); err != nil {
			return err
		}
		if err := b.slice(cached); err != nil { // starts the load that does not end
			return err
		}
	}
	for i := range b.sides {
		b.sides[i].page.takes(b.setup.took)
		b.sides[i].tally = webTally{took: measure.NewLatency()}
	}
	return nil
}

// slice has one of the two asked for a while.
func (b *webBench) slice(s *webSide) error {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	sent, runs, cpu := b.wire.Sent().Requests, s.page.runs.Load(), measure.CPU()
	a, err := b.client.Send(traffic.Order{
		Addr: s.addr, Connections: 64, Pages: b.setup.pages, Field: b.setup.field, Size: b.setup.size, Want: s.want, For: webSlice,
	})
	if err != nil {
		return err
	}
	cpu = measure.CPU() - cpu
	runtime.ReadMemStats(&after)
	took, err := measure.DecodeLatency(a.Latency)
	if err != nil || a.Requests == 0 {
		return errors.Join(errors.New("workload: nothing was answered"), err)
	}
	t := &s.tally
	t.took.Merge(took)
	t.rates = append(t.rates, float64(a.Requests)/a.Took.Seconds())
	t.costs = append(t.costs, us(cpu)/float64(a.Requests))
	t.requests, t.wanted = t.requests+a.Requests, t.wanted+a.Wanted
	t.runs += s.page.runs.Load() - runs
	t.sent += b.wire.Sent().Requests - sent
	t.allocs += after.Mallocs - before.Mallocs
	return nil
}

func (b *webBench) result(server measure.Server) (r report.Result, err error) {
	bare, cached := &b.sides[0].tally, &b.sides[1].tally
	var rates, costs []float64
	for i := range cached.rates {
		rates = append(rates, cached.rates[i]/bare.rates[i])
		costs = append(costs, cached.costs[i]/bare.costs[i])
	}
	n := float64(cached.requests)
	r.Values = map[string]float64{
		"rate":      median(cached.rates),
		"vs_bare":   median(rates),
		"p50":       ms(cached.took.Quantile(0.5)),
		"p99":       ms(cached.took.Quantile(0.99)),
		"cpu":       median(cached.costs),
		"vs_cpu":    median(costs),
		"allocs":    float64(cached.allocs) / n,
		"beyond":    float64(cached.allocs)/n - float64(bare.allocs)/float64(bare.requests),
		"runs":      float64(cached.runs) / n,
		"requests":  float64(cached.sent) / n,
		"redis_cpu": us(server.CPU) / n,
	}
	if cached.wanted < cached.requests/2 {
		err = fmt.Errorf("only %d of %d answers were %q", cached.wanted, cached.requests, b.setup.want)
	}
	r.Latency, _ = cached.took.Encode()
	return r, err
}

// page is a handler that answers with so many bytes.
type page struct {
	body            []byte
	length, control string
	runs            atomic.Int64
	delay           atomic.Int64
	held            atomic.Bool
	gone            chan struct{}
}

func newPage(size int, ttl time.Duration) *page {
	return &page{
		body: bytes.Repeat([]byte("x"), size), length: strconv.Itoa(size), control: fmt.Sprintf("max-age=%d", int(ttl.Seconds())),
		gone: make(chan struct{}),
	}
}

// takes makes each run take so long from now on.
func (p *page) takes(d time.Duration) { p.delay.Store(int64(d)) }

// hold makes runs end not before letGo, which is called once.
func (p *page) hold()  { p.held.Store(true) }
func (p *page) letGo() { close(p.gone) }

// ServeHTTP writes the page.
func (p *page) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	p.runs.Add(1)
	if p.held.Load() {
		<-p.gone
	}
	if d := p.delay.Load(); d > 0 {
		time.Sleep(time.Duration(d))
	}
	h := w.Header()
	h.Set("Content-Type", "text/plain")
	h.Set("Content-Length", p.length)
	h.Set("Cache-Control", p.control)
	_, _ = w.Write(p.body)
}
