package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/herdgate/herdgate/bench/internal/contender"
	"github.com/herdgate/herdgate/bench/internal/measure"
)

// Fleet is some pods and the source that they share.
type Fleet struct {
	source *measure.Source
	pods   []runner
	served func() error
	procs  bool
}

// runner is a pod, here or in another process.
type runner interface {
	run(ctx context.Context, begin time.Time) (Result, error)
	kill() error
	close() error
}

func (p *pod) kill() error  { return errors.New("fleet: a pod in this process cannot be killed") }
func (p *pod) close() error { return p.cache.Close() }

// Open starts one pod of c for each spec. With procs each is a process; then c must be one of contender.All, and
// the program that calls Open must call Main first thing. Pods are warmed one after another, so that what one has loaded the next one finds.
func Open(ctx context.Context, c contender.Contender, specs []Spec, source *measure.Source, procs bool) (*Fleet, error) {
	f := &Fleet{source: source, procs: procs, served: func() error { return nil }}
	url := ""
	if procs {
		var err error
		if url, f.served, err = serve(source); err != nil {
			return nil, err
		}
	}
	for i, spec := range specs {
		var p runner
		var err error
		if procs {
			p, err = spawn(ctx, c, i, spec, url)
		} else {
			p, err = openHere(ctx, c, i, spec, source)
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		f.pods = append(f.pods, p)
	}
	return f, nil
}

func openHere(ctx context.Context, c contender.Contender, i int, spec Spec, source *measure.Source) (runner, error) {
	p, err := open(ctx, c, i, spec, source.Load)
	if p == nil {
		return nil, err
	}
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// Kill ends the process of a pod at once, as a crash would. A pod in this process cannot be killed.
func (f *Fleet) Kill(pod int) error { return f.pods[pod].kill() }

// Outcomes is what a fleet measured.
type Outcomes struct {
	Samples []Sample // of all pods
	Errors  map[string]int
	Sent    measure.Sent
	CPU     time.Duration // of all pods
	Lost    int           // pods that did not live to tell
}

// Lead is how long before a run begins its beginning is made known.
const Lead = 50 * time.Millisecond

// Run lets all pods make their calls from begin on, at once, and returns when all have ended. A pod whose process
// died is counted as lost.
func (f *Fleet) Run(ctx context.Context, begin time.Time) (Outcomes, error) {
	out := Outcomes{Errors: make(map[string]int)}
	var mu sync.Mutex
	var failed error
	cpu := measure.CPU()
	var wg sync.WaitGroup
	for i, p := range f.pods {
		wg.Go(func() {
			r, err := p.run(ctx, begin)
			mu.Lock()
			defer mu.Unlock()
			if errors.Is(err, errLost) {
				out.Lost++
				return
			}
			if err != nil && failed == nil {
				failed = fmt.Errorf("fleet: pod %d: %w", i, err)
			}
			out.Samples = append(out.Samples, r.Samples...)
			out.Sent.Add(r.Sent)
			out.CPU += r.CPU
			for t, n := range r.Errors {
				out.Errors[t] += n
			}
		})
	}
	wg.Wait()
	if !f.procs {
		out.CPU = measure.CPU() - cpu
	}
	return out, failed
}

// Close ends all pods. The source's loads that hang are released.
func (f *Fleet) Close() error {
	f.source.Release()
	var wg sync.WaitGroup
	errs := make([]error, len(f.pods))
	for i, p := range f.pods {
		wg.Go(func() { errs[i] = p.close() })
	}
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		return errors.New("fleet: pods did not close within 10s")
	}
	return errors.Join(errors.Join(errs...), f.served())
}
