package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// quick is within what an answer counts as one that nobody waited for.
const quick = 5 * time.Millisecond

// storm is a stream of requests at a fixed rate. It is an open loop: a request goes out when it is due,
// whether or not earlier ones have been answered, for that is what users do. And a latency counts from
// when the request was due, so that nothing which delays the sender is left out.
type storm struct {
	urls   []string // in turn
	client *http.Client
	cfg    *config

	mu     sync.Mutex // protects what follows
	sent   int
	took   []time.Duration // of each request that has ended, errors included
	quick  int             // of them answered within quick, without an error
	errors int
}

func newStorm(cfg *config, pods []*pod) *storm {
	s := &storm{cfg: cfg, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 10_000}}}
	for _, p := range pods {
		s.urls = append(s.urls, p.url+"/report")
	}
	return s
}

// run sends requests for the time that cfg says and returns when all have ended. When ctx ends, it does.
func (s *storm) run(ctx context.Context) {
	defer s.client.CloseIdleConnections()
	var wg sync.WaitGroup
	defer wg.Wait()
	begun := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i := range int(s.cfg.rate * s.cfg.duration.Seconds()) {
		due := begun.Add(time.Duration(float64(i) / s.cfg.rate * float64(time.Second)))
		timer.Reset(time.Until(due))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		s.count(func() { s.sent++ })
		wg.Go(func() { s.request(ctx, s.urls[i%len(s.urls)], due) })
	}
}

func (s *storm) request(ctx context.Context, url string, due time.Time) {
	reqCtx, cancel := context.WithDeadline(ctx, due.Add(s.cfg.timeout))
	defer cancel()
	err := fetch(reqCtx, s.client, url)
	took := time.Since(due)
	if ctx.Err() != nil {
		s.count(func() { s.sent-- }) // it was us who ended it
		return
	}
	s.count(func() {
		s.took = append(s.took, took)
		switch {
		case err != nil:
			s.errors++
		case took <= quick:
			s.quick++
		}
	})
}

// fetch reads an answer and drops it.
func fetch(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", url, resp.Status)
	}
	return nil
}

func (s *storm) count(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// tally are a storm's numbers.
type tally struct {
	sent, quick, errors int
	took                []time.Duration // may be read, not written
}

func (s *storm) counts() tally {
	s.mu.Lock()
	defer s.mu.Unlock()
	return tally{s.sent, s.quick, s.errors, s.took[:len(s.took):len(s.took)]}
}
