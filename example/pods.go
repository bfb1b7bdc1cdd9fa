package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/stampede/redisstore"
)

// pod is one instance of the service. What pods share is the database and Redis, nothing in memory.
type pod struct {
	url      string
	rdb      *redis.Client
	store    *redisstore.Store
	reports  protection
	products *products
	pages    *pages
	srv      *http.Server
	served   chan struct{} // closed when srv has ended
}

// drainTimeout is how long a pod that is closed lets requests and loads go on.
const drainTimeout = 2 * time.Second

// openPods opens as many pods as cfg says, which keep the report in the given way. load is its loader.
func openPods(ctx context.Context, cfg *config, rds *redisServer, shop *catalogue, w way, load loadFunc) (pods []*pod, err error) {
	for i := range cfg.pods {
		p, err := openPod(ctx, cfg, i, rds, shop, w, load)
		if err != nil {
			return nil, errors.Join(err, closePods(pods))
		}
		pods = append(pods, p)
	}
	return pods, nil
}

func closePods(pods []*pod) error {
	errs := make(chan error)
	for _, p := range pods {
		go func() { errs <- p.close() }()
	}
	var all []error
	for range pods {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

func openPod(ctx context.Context, cfg *config, i int, rds *redisServer, shop *catalogue, w way, load loadFunc) (p *pod, err error) {
	p = &pod{rdb: rds.client(), served: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	// One store for all guards of a pod.
	if p.store, err = redisstore.New(p.rdb, &redisstore.Options{Logger: logger}); err != nil {
		return p, err
	}
	if p.reports, err = w.open(cfg, p.rdb, p.store, load); err != nil {
		return p, err
	}
	if p.products, err = newProducts(p.store, shop); err != nil {
		return p, err
	}
	if p.pages, err = newPages(p.store, load); err != nil {
		return p, err
	}
	addr, err := cfg.listenAddr(i)
	if err != nil {
		return p, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		if cfg.serve {
			err = fmt.Errorf("-addr: %w", err)
		}
		return p, err
	}
	p.url = "http://" + l.Addr().String()
	p.srv = &http.Server{
		Handler:           p.routes(),
		ReadHeaderTimeout: 5 * time.Second,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug), // clients that leave are expected
	}
	go func() {
		defer close(p.served)
		_ = p.srv.Serve(l) // until it is shut down
	}()
	return p, nil
}

// close ends a pod as a service should: no new requests, then no more loads, then no more Redis.
func (p *pod) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	var errs []error
	if p.srv != nil {
		if err := p.srv.Shutdown(ctx); err != nil {
			errs = append(errs, p.srv.Close())
		}
		<-p.served
	}
	if p.reports != nil {
		errs = append(errs, p.reports.close(ctx))
	}
	if p.products != nil {
		errs = append(errs, p.products.guard.Close(ctx))
	}
	if p.pages != nil {
		errs = append(errs, p.pages.cache.Close(ctx))
	}
	if p.store != nil {
		errs = append(errs, p.store.Close())
	}
	return errors.Join(append(errs, p.rdb.Close())...)
}
