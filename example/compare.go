package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// result is what a phase has measured.
type result struct {
	name string
	tally
	loadCounts
}

// compare puts the report under the same storm in each way and prints what came of it. When ctx ends, it
// prints what there is.
func compare(ctx context.Context, cfg config, rds *redisServer, shop *catalogue, out io.Writer) ([]result, error) {
	fmt.Fprintf(out, "Storm:      %.0f requests/s for /report over %d pods, %s for each of %d phases; the report expires after %s\n",
		cfg.rate, cfg.pods, short(cfg.duration), len(ways), short(cfg.ttl))
	var results []result
	for i, w := range ways {
		if ctx.Err() != nil {
			break
		}
		fmt.Fprintf(out, "\n%d. %s: %s\n", i+1, w.name, w.about)
		r, err := phase(ctx, &cfg, rds, shop, w, out)
		if err != nil && ctx.Err() == nil {
			return results, err
		}
		results = append(results, r)
	}
	printSummary(out, results)
	if ctx.Err() != nil {
		fmt.Fprintln(out, "Interrupted: these are the numbers until then.")
	}
	return results, nil
}

// phase runs one storm over pods of its own. It begins with the report in Redis: it is expiry that is
// compared, not a cold start.
func phase(ctx context.Context, cfg *config, rds *redisServer, shop *catalogue, w way, out io.Writer) (r result, err error) {
	r.name = w.name
	m := &meter{ttl: cfg.ttl}
	pods, err := openPods(ctx, cfg, rds, shop, w, func(ctx context.Context) (r Report, err error) {
		end := m.begin()
		defer func() { end(err) }()
		return shop.report(ctx)
	})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, closePods(pods)) }()
	defer cleanUp(pods[0].reports.drop)

	if err := warmUp(ctx, pods[0].reports); err != nil {
		return r, err
	}
	m.reset()

	s := newStorm(cfg, pods)
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { printProgress(out, s, m, ended) })
	s.run(ctx)
	close(ended)
	wg.Wait()
	r.tally, r.loadCounts = s.counts(), m.counts()
	return r, nil
}

// warmUp has a report of now stored.
func warmUp(ctx context.Context, reports protection) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := retry(ctx, reports.drop); err != nil {
		return err
	}
	_, err := reports.get(ctx)
	return err
}

// cleanUp leaves nothing of the report in Redis.
func cleanUp(drop func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	if err := retry(ctx, drop); err != nil {
		logger.Warn("the report is left in Redis, until it expires", "error", err)
	}
}
