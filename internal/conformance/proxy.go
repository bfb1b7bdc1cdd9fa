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

// wrap puts the cache around the handler.
func (p *proxy) wrap(next http.Handler, cache string) (http.Handler, error) {
	switch cache {
	case "none":
		return next, nil
	default:
		return nil, fmt.Errorf("no such cache: %s", cache)
	}
}

func (p *proxy) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := p.server.Shutdown(ctx)
	if served := <-p.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return errors.Join(err, p.close(ctx))
}

// close closes what wrap opened, the last first.
func (p *proxy) close(ctx context.Context) error {
	var errs []error
	for i := len(p.undo) - 1; i >= 0; i-- {
		errs = append(errs, p.undo[i](ctx))
	}
	p.undo = nil
	return errors.Join(errs...)
}
