// Package fleet runs the pods of a service that is being measured: each with its own clients and its own
// cache, in this process or each in one of its own.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/herdgate/herdgate/bench/internal/contender"
	"github.com/herdgate/herdgate/bench/internal/measure"
)

// Spec says what a pod is and what it is asked.
type Spec struct {
	contender.Params
	Redis    string // address
	Prefix   string // of keys
	Arrivals measure.Arrivals
	// Value is the size of a value. Zero: measure.ValueSize.
	Value int
	// Warm is how many keys the pod asks for before it begins. It always asks for one more, of its own,
	// so that it is connected.
	Warm int
	// CallTimeout is the deadline of each call, from when it was due.
	CallTimeout time.Duration
	// Grace is how long after the last arrival calls may take; what is not answered then counts as
	// unanswered. Zero: CallTimeout and a second.
	Grace time.Duration
}

// Outcome is how a call ended.
type Outcome uint8

// The outcomes.
const (
	Unanswered Outcome = iota // it had not returned by the end
	Failed                    // with an error
	Served                    // with a value, without running the loader
	Loaded                    // with a value, after running the loader itself
)

// Sample is one call. Times count from the beginning, and latency from when the call was due.
type Sample struct {
	Due     time.Duration
	Took    time.Duration
	Late    time.Duration // by which the call was made after it was due
	Age     time.Duration // of the value
	Key     int
	Pod     int
	Outcome Outcome
}

// Result is what a pod measured.
type Result struct {
	Samples []Sample
	Errors  map[string]int // texts of errors, with their number
	Sent    measure.Sent
	CPU     time.Duration // of the pod's process; zero for a pod in this process
}

// loader loads a value on behalf of a pod.
type loader func(ctx context.Context, pod int, key string, size int) ([]byte, error)

// pod is a pod in this process.
type pod struct {
	number int
	name   string
	spec   Spec
	cache  contender.Cache
	wire   measure.Wire
	before measure.Sent
}

// call is what a loader tells the call that it runs for.
type call struct{ loaded atomic.Bool }

type callKey struct{}

func open(ctx context.Context, c contender.Contender, number int, spec Spec, load loader) (*pod, error) {
	if spec.Value == 0 {
		spec.Value = measure.ValueSize
	}
	p := &pod{number: number, spec: spec, name: c.Name}
	var err error
	p.cache, err = c.Start(&contender.Env{
		Params: spec.Params,
		Addr:   spec.Redis,
		Dial:   p.wire.Dial,
		Load: func(ctx context.Context, key string) ([]byte, error) {
			if by, ok := ctx.Value(callKey{}).(*call); ok {
				by.loaded.Store(true)
			}
			return load(ctx, number, key, spec.Value)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("fleet: opening %s: %w", c.Name, err)
	}
	return p, p.warm(ctx)
}

// warm asks for each key once, some at a time, and for a key of the pod's own, which connects it.
func (p *pod) warm(ctx context.Context) error {
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	turns := make(chan struct{}, 16)
	ask := func(key string) {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			v, err := p.cache.Get(ctx, key)
			if err == nil && !measure.MarkOf(key).On(v, p.spec.Value) {
				err = errors.New("not a value of the key")
			}
			if err != nil {
				failed.Store(&err)
			}
		})
	}
	for range 3 { // the first calls learn what later ones use: scripts, connections
		ask(fmt.Sprintf("%swarm-%d", p.spec.Prefix, p.number))
		wg.Wait()
	}
	for n := range p.spec.Warm {
		ask(p.key(n))
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return fmt.Errorf("fleet: warming %s: %w", p.name, *err)
	}
	return nil
}

func (p *pod) key(n int) string { return p.spec.Prefix + measure.KeyName(n) }

// run makes the calls of the pod's arrivals, each on a goroutine of its own, when it is due.
func (p *pod) run(ctx context.Context, begin time.Time) (Result, error) {
	pacer, err := measure.NewPacer()
	if err != nil {
		return Result{}, err
	}
	defer pacer.Close()
	arrivals := p.spec.Arrivals.List()
	r := &record{samples: make([]Sample, len(arrivals)), errs: make(map[string]int)}
	for i, a := range arrivals {
		r.samples[i] = Sample{Due: a.Due, Key: a.Key, Pod: p.number}
	}
	p.before = p.wire.Sent()
	cpu := measure.CPU()
	made := 0
	for i, a := range arrivals {
		for left := time.Until(begin.Add(a.Due)); left > 0 && ctx.Err() == nil; left = time.Until(begin.Add(a.Due)) {
			pacer.Sleep(min(left, 50*time.Millisecond))
		}
		if ctx.Err() != nil {
			break
		}
		made++
		due := begin.Add(a.Due)
		r.wg.Go(func() { p.call(ctx, r, i, p.key(a.Key), due) })
	}
	grace := p.spec.Grace
	if grace == 0 {
		grace = p.spec.CallTimeout + time.Second
	}
	r.wait(ctx, grace)
	res := Result{Sent: p.wire.Sent().Minus(p.before), CPU: measure.CPU() - cpu}
	res.Samples, res.Errors = r.take(made, time.Since(begin))
	return res, context.Cause(ctx)
}

func (p *pod) call(ctx context.Context, r *record, i int, key string, due time.Time) {
	late := time.Since(due)
	var c call
	ctx, cancel := context.WithDeadline(context.WithValue(ctx, callKey{}, &c), due.Add(p.spec.CallTimeout))
	defer cancel()
	v, err := p.cache.Get(ctx, key)
	took := time.Since(due)
	age := time.Duration(0)
	good := measure.MarkOf(key).On(v, p.spec.Value)
	if good {
		age = measure.Age(v)
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.samples[i]
	s.Took, s.Late, s.Age, s.Outcome = took, late, age, Served
	switch {
	case err != nil:
		s.Outcome = Failed
		r.errs[text(err)]++
	case !good:
		s.Outcome = Failed
		r.errs["not a value of the key"]++
	case c.loaded.Load():
		s.Outcome = Loaded
	}
}

// text is an error without what differs from one to the next, such as ports.
func text(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return context.DeadlineExceeded.Error()
	case errors.Is(err, context.Canceled):
		return context.Canceled.Error()
	}
	t := []byte(err.Error())
	for i, c := range t {
		if c >= '0' && c <= '9' {
			t[i] = '#'
		}
	}
	return string(t)
}

// record is what the calls of a run write to.
type record struct {
	wg sync.WaitGroup

	mu      sync.Mutex // protects what follows
	samples []Sample
	errs    map[string]int
}

// wait returns when all calls have ended, and after grace at the latest.
func (r *record) wait(ctx context.Context, grace time.Duration) {
	done := make(chan struct{})
	go func() {
		r.wg.Wait()
		close(done)
	}()
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	case <-ctx.Done():
	}
}

// take copies what was recorded of the first calls. What is unanswered took until now.
func (r *record) take(made int, now time.Duration) ([]Sample, map[string]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	samples := slices.Clone(r.samples[:made])
	for i := range samples {
		if samples[i].Outcome == Unanswered {
			samples[i].Took = now - samples[i].Due
		}
	}
	errs := make(map[string]int)
	for t, n := range r.errs {
		errs[t] = n
	}
	return samples, errs
}
