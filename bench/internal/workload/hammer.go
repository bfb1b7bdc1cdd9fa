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
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/herdgate/herdgate/bench/internal/contender"
	"github.com/herdgate/herdgate/bench/internal/measure"
	"github.com/herdgate/herdgate/bench/internal/report"
)

type hitSetup struct {
	length           time.Duration // for which each side is asked
	par, keys, value int
	memory           bool // Zipf, and not timed
	floors           []hitFloor
}

// hitSlice is for how long a side is asked until it is another one's turn: what else the machine does weighs on all alike.
const hitSlice = 25 * time.Millisecond

func (s hitSetup) takes() time.Duration {
	slices := s.slices() + 1
	each := (hitSlice + 3*time.Millisecond) * time.Duration(1+len(s.floors))
	return each*time.Duration(slices) + 150*time.Millisecond
}

func (s hitSetup) slices() int { return max(1, int(s.length/hitSlice)) }

// hitSide is a cache that is full, who asks it, and what was measured.
type hitSide struct {
	setup   hitSetup
	cache   contender.Cache
	wire    measure.Wire
	source  measure.Source
	names   []string
	marks   []measure.Mark // of names
	workers []hitWorker

	calls, allocs, bytes int64
	took, cpu, redis     time.Duration
	sent                 measure.Sent
	rates, costs         []float64 // of each slice: calls a second; processor time of a call, ns
}

// hitWorker is a goroutine that calls, each time as soon as its last call has returned.
type hitWorker struct {
	order []int32 // of keys; its length is a power of two
	next  int
	took  *measure.Latency
}

// runHit asks a cache and its floors in turn.
func runHit(ctx context.Context, rig *Rig, c contender.Contender, s hitSetup) (r report.Result, err error) {
	if err := rig.clean(ctx); err != nil {
		return r, err
	}
	var sides []*hitSide
	defer func() {
		for _, side := range sides {
			err = errors.Join(err, side.cache.Close())
		}
	}()
	of := []contender.Contender{c}
	for _, f := range s.floors {
		of = append(of, contenderNamed(f.of))
	}
	for _, c := range of {
		side := &hitSide{setup: s}
		if err := side.open(ctx, rig, c); err != nil {
			return r, err
		}
		sides = append(sides, side)
	}
	for i := range 1 + s.slices() {
		for j := range sides { // who comes first takes turns as well
			if err := sides[(i+j)%len(sides)].slice(ctx, rig, i > 0); err != nil {
				return r, err
			}
		}
	}
	r = sides[0].result()
	for i, f := range s.floors {
		if f.rate != "" {
			r.Values[f.rate] = ratio(sides[0].rates, sides[i+1].rates)
		}
		if f.time != "" {
			r.Values[f.time] = ratio(sides[i+1].rates, sides[0].rates)
		}
		if f.cpu != "" {
			r.Values[f.cpu] = ratio(sides[0].costs, sides[i+1].costs)
		}
	}
	return r, nil
}

// contenderNamed is another one of that name: what is measured of it is its own.
func contenderNamed(name string) contender.Contender {
	all := contender.All()
	return all[slices.IndexFunc(all, func(c contender.Contender) bool { return c.Name == name })]
}

// ratio is the median of the ratios within the slices.
func ratio(of, to []float64) float64 {
	ratios := make([]float64, len(of))
	for i := range of {
		ratios[i] = of[i] / to[i]
	}
	return median(ratios)
}

// open fills a cache.
func (b *hitSide) open(ctx context.Context, rig *Rig, c contender.Contender) (err error) {
	defer contender.Recovered(&err)
	b.cache, err = c.Open(&contender.Env{
		Params: contender.Params{TTL: time.Hour, StaleFor: time.Hour, LoadTimeout: 3 * time.Second, Entries: b.setup.keys},
		Addr:   rig.Addr,
		Dial:   b.wire.Dial,
		Load: func(ctx context.Context, key string) ([]byte, error) {
			return b.source.Load(ctx, 0, key, b.size())
		},
	})
	if err != nil {
		return err
	}
	prefix := rig.prefix()
	fill, ctx := errgroup.WithContext(ctx)
	fill.SetLimit(16)
	for i := range b.setup.keys {
		b.names = append(b.names, prefix+measure.KeyName(i))
		b.marks = append(b.marks, measure.MarkOf(b.names[i]))
		fill.Go(func() (err error) {
			defer contender.Recovered(&err)
			_, err = b.cache.Get(ctx, prefix+measure.KeyName(i))
			return err
		})
	}
	if err := fill.Wait(); err != nil {
		return errors.Join(fmt.Errorf("filling: %w", err), b.cache.Close())
	}
	for g := range b.setup.par {
		w := hitWorker{order: b.setup.order(g)}
		if !b.setup.memory {
			w.took = measure.NewLatency()
		}
		b.workers = append(b.workers, w)
	}
	b.source.Reset()
	return nil
}

// size is that of a value.
func (b *hitSide) size() int { return cmp.Or(b.setup.value, measure.ValueSize) }

var errNotOfKey = errors.New("workload: the cache returned what is not a value of the key")

// slice has the cache asked for a while. The first one of each side does not count: it brings connections, and
// whatever else the first calls need.
func (b *hitSide) slice(ctx context.Context, rig *Rig, counts bool) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	before, err := measure.ReadServer(ctx, rig.Client())
	if err != nil {
		return err
	}
	var mem, memBefore runtime.MemStats
	runtime.ReadMemStats(&memBefore)
	sent, cpu := b.wire.Sent(), measure.CPU()
	calls, took, err := b.hammer(ctx)
	cpu = measure.CPU() - cpu
	if err != nil {
		return err
	}
	runtime.ReadMemStats(&mem)
	after, err := measure.ReadServer(ctx, rig.Client())
	if err != nil {
		return err
	}
	if !counts {
		for i := range b.workers {
			if b.workers[i].took != nil {
				b.workers[i].took = measure.NewLatency()
			}
		}
		return nil
	}
	d := b.wire.Sent().Minus(sent)
	b.sent.Requests, b.sent.Writes = b.sent.Requests+d.Requests, b.sent.Writes+d.Writes
	b.calls, b.took, b.cpu = b.calls+calls, b.took+took, b.cpu+cpu
	b.redis += after.Minus(before).CPU
	b.allocs += int64(mem.Mallocs - memBefore.Mallocs)
	b.bytes += int64(mem.TotalAlloc - memBefore.TotalAlloc)
	n := float64(max(1, calls))
	b.rates = append(b.rates, n/took.Seconds())
	b.costs = append(b.costs, float64(cpu)/n)
	return nil
}

// hammer lets all workers call for the length of a slice, and returns how many calls there were.
func (b *hitSide) hammer(ctx context.Context) (int64, time.Duration, error) {
	var wg, ready sync.WaitGroup
	var mu sync.Mutex // protects what follows
	var calls int64
	var failed error
	var end time.Time
	begin := make(chan struct{}) // closed when end is known
	for i := range b.workers {
		ready.Add(1)
		wg.Go(func() {
			ready.Done()
			<-begin
			n, err := b.workers[i].call(ctx, b, end)
			mu.Lock()
			defer mu.Unlock()
			calls += n
			failed = cmp.Or(failed, err)
		})
	}
	ready.Wait()
	begun := time.Now()
	end = begun.Add(hitSlice)
	close(begin)
	wg.Wait()
	return calls, time.Since(begun), failed
}

// inTurns is how many calls in memory a worker makes until it looks at the clock and at what it got, which costs as much as such
// a call, and lets others have the processor: else each would keep it for 10 ms, and most would not have it once in a slice.
const inTurns = 256

// call calls until the slice ends. A timer would not do: many busy goroutines keep it waiting for seconds.
func (w *hitWorker) call(ctx context.Context, b *hitSide, end time.Time) (n int64, err error) {
	i, size := w.next, b.size()
	defer func() { w.next = i }()
	defer contender.Recovered(&err)
	for {
		var begun time.Time
		looks := w.took != nil || n%inTurns == 0
		if looks {
			if begun = time.Now(); !begun.Before(end) {
				return n, nil
			}
			if w.took == nil {
				runtime.Gosched()
			}
		}
		key := w.order[i&(len(w.order)-1)]
		v, err := b.cache.Get(ctx, b.names[key])
		if err == nil && looks && !b.marks[key].On(v, size) { // nobody is fast by answering with something else
			err = errNotOfKey
		}
		if err != nil {
			return n, err
		}
		if w.took != nil {
			w.took.Record(time.Since(begun))
		}
		i++
		n++
	}
}

func (b *hitSide) result() (r report.Result) {
	n := float64(max(1, b.calls))
	r.Values = map[string]float64{
		"rate":      n / b.took.Seconds(),
		"ns":        float64(b.took) / n,
		"cpu_ns":    float64(b.cpu) / n,
		"cpu":       us(b.cpu) / n,
		"redis_cpu": us(b.redis) / n,
		"requests":  float64(b.sent.Requests) / n,
		"writes":    float64(b.sent.Writes) / n,
		"allocs":    float64(b.allocs) / n,
		"bytes":     float64(b.bytes) / n,
		"loads":     float64(len(b.source.Counted().Loads)),
	}
	if !b.setup.memory {
		took := measure.NewLatency()
		for i := range b.workers {
			took.Merge(b.workers[i].took)
		}
		r.Values["p50"], r.Values["p99"] = us(took.Quantile(0.5)), us(took.Quantile(0.99))
		r.Latency, _ = took.Encode()
	}
	return r
}

// order is the order in which a goroutine asks for keys.
func (s hitSetup) order(g int) []int32 {
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
