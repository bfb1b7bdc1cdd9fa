package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/herdgate/herdgate/stampede"
)

// serve keeps pods up until ctx ends, and then prints what their guards have counted.
func serve(ctx context.Context, cfg config, rds *redisServer, shop *catalogue, out io.Writer) (err error) {
	pods, err := openPods(ctx, &cfg, rds, shop, herdgate, shop.report)
	if err != nil {
		return unlessEnded(ctx, err)
	}
	defer func() { err = errors.Join(err, closePods(pods)) }()
	fmt.Fprintln(out)
	for i, p := range pods {
		fmt.Fprintf(out, "pod %d: %s\n", i+1, p.url)
	}
	fmt.Fprintf(out, "\nTry:  curl -i %s/report\n      curl -i %s/mux/report\n      curl -i -d 1299 %s/product/p001/price\n      curl -i %s/product/p001\nCtrl-C ends it.\n",
		pods[0].url, pods[0].url, pods[0].url, pods[len(pods)-1].url)
	<-ctx.Done()

	fmt.Fprintln(out)
	for i, p := range pods {
		fmt.Fprintf(out, "pod %d: report %s; products %s\n", i+1, counted(p.reports.stats()), counted(p.products.guard.Stats()))
	}
	return nil
}

func counted(s stampede.Stats) string {
	return fmt.Sprintf("%d hits, %d stale, %d misses, %d loads", s.Hits, s.Stale, s.Misses, s.Loads)
}
