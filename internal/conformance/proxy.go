package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/internal/redisproc"
	"github.com/herdgate/herdgate/middleware"
	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/redisstore"
)

// proxy is the cache under test: a reverse proxy to the origin, behind the middleware.
type proxy struct {
	url    string
	server *http.Server
	served chan error
	undo   []func(context.Context) error
}

func startProxy(ctx context.Context, origin, cache string) (*proxy, error) {
	target, err := url.Parse(origin)
	if err != nil {
		return nil, err
	}
	p := &proxy{served: make(chan error, 1)}
	handler, err := p.wrap(forward(target), cache)
	if err != nil {
		return nil, errors.Join(err, p.close(ctx))
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, p.close(ctx))
	}
	p.url = "http://" + ln.Addr().String()
	p.server = &http.Server{Handler: handler, ReadHeaderTimeout: patience}
	go func() { p.served <- p.server.Serve(ln) }()
	return p, nil
}

// forward is a plain reverse proxy: it keeps the Host and does not touch the encoding.
func forward(target *url.URL) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host
		},
		// Go's client would ask again, unseen, when the origin hangs up on a connection that it has used before.
		Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true},
		ErrorLog:  log.New(io.Discard, "", 0), // the suite hangs up on purpose
	}
}

// policy is that of a cache which knows of its origin only what the origin says. By default, requests with
// Authorization or a Cookie go past the cache; here they are treated as RFC 9111 allows it, so that the suite
// sees what becomes of them.
var policy = middleware.Policy{
	Authorization: middleware.ExplicitAuthorization,
	Cookies:       []string{},
}

// wrap puts the cache around the handler.
func (p *proxy) wrap(next http.Handler, cache string) (http.Handler, error) {
	var store stampede.Store
	switch cache {
	case "none":
		return next, nil
	case "memory":
		store = new(stampede.MemoryStore)
	case "redis":
		server, err := redisproc.Start(redisproc.Options{})
		if err != nil {
			return nil, err
		}
		p.later(func(context.Context) error { return server.Close() })
		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		p.later(func(context.Context) error { return client.Close() })
		kept, err := redisstore.New(client, &redisstore.Options{Timeout: patience})
		if err != nil {
			return nil, err
		}
		p.later(func(context.Context) error { return kept.Close() })
		store = kept
	default:
		return nil, fmt.Errorf("no such cache: %s", cache)
	}
	o := &middleware.Options{Policy: policy}
	// The suite is about what is served when all is well: a busy machine must not pass for a broken Redis.
	o.Guard.StoreBudget, o.Guard.CopyBudget = patience, patience
	c, err := middleware.New(store, o)
	if err != nil {
		return nil, err
	}
	p.later(c.Close)
	return c.Handler(next), nil
}

// later has close call f, before what it was told earlier.
func (p *proxy) later(f func(context.Context) error) { p.undo = append(p.undo, f) }

func (p *proxy) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := p.server.Shutdown(ctx)
	if served := <-p.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return errors.Join(err, p.close(ctx))
}

// close undoes wrap, the last thing first.
func (p *proxy) close(ctx context.Context) error {
	var errs []error
	for i := len(p.undo) - 1; i >= 0; i-- {
		errs = append(errs, p.undo[i](ctx))
	}
	p.undo = nil
	return errors.Join(errs...)
}
