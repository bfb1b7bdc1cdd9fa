package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// crowdSize is how many requests ask for a page at once.
const crowdSize = 90

// crowd is what came of a crowd that asked for one page.
type crowd struct {
	path      string
	runs      int64 // of the handler, in all pods
	strangers int   // who got the account of somebody else
	errors    int
}

// crowds sends a crowd to each of the pages, on both routers, while nothing is stored.
func crowds(ctx context.Context, cfg config, rds *redisServer, shop *catalogue, out io.Writer) (all []crowd, err error) {
	fmt.Fprintf(out, "\nHTTP middleware: pages behind the cache on two routers, %d requests at once for each, nothing stored before\n\n", crowdSize)
	pods, err := openPods(ctx, &cfg, rds, shop, herdgate, shop.report)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closePods(pods)) }()
	const row = "%-14s %13s %21s %7s\n"
	fmt.Fprintf(out, row, "", "handler runs", "got another's answer", "errors")
	for _, path := range []string{"/mux/report", "/chi/report", "/mux/account", "/chi/account"} {
		c, err := sendCrowd(ctx, &cfg, pods, path)
		if err != nil {
			return all, err
		}
		fmt.Fprintf(out, row, path, strconv.FormatInt(c.runs, 10), strconv.Itoa(c.strangers), strconv.Itoa(c.errors))
		all = append(all, c)
	}
	fmt.Fprintln(out, "\nThe report may be shared: all who ask for it at once share one run. The account says private: each request has\n"+
		"a run of its own, and nobody gets what was made for another.")
	return all, nil
}

func sendCrowd(ctx context.Context, cfg *config, pods []*pod, path string) (c crowd, err error) {
	purge := func(ctx context.Context) error { return pods[0].pages.cache.Purge(ctx, path) }
	if err := retry(ctx, purge); err != nil {
		return c, err
	}
	defer cleanUp(purge)
	client := &http.Client{Transport: new(http.Transport), Timeout: cfg.timeout}
	defer client.CloseIdleConnections()
	c.path = path
	var (
		mu sync.Mutex // protects c
		wg sync.WaitGroup
	)
	for i := range crowdSize {
		wg.Go(func() {
			customer := fmt.Sprint("customer ", i)
			body, err := visit(ctx, client, pods[i%len(pods)].url+path, customer)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				c.errors++
			case strings.HasPrefix(body, "account of ") && body != "account of "+customer+"\n":
				c.strangers++
			}
		})
	}
	wg.Wait()
	for _, p := range pods {
		c.runs += p.pages.runs.Swap(0)
	}
	return c, ctx.Err()
}

// visit returns a page as a customer sees it.
func visit(ctx context.Context, client *http.Client, url, customer string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("X-Customer", customer)
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answered %s", url, resp.Status)
	}
	return string(body), err
}
