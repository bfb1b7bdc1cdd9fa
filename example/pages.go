package main

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/herdgate/herdgate/middleware"
	"github.com/herdgate/herdgate/stampede"
)

// pages are two pages behind the HTTP middleware: the handlers know nothing of it, and say by Cache-Control
// what may be done with their answers.
type pages struct {
	cache *middleware.Cache
	load  loadFunc
	runs  atomic.Int64 // of the handlers
}

func newPages(store stampede.Store, load loadFunc) (*pages, error) {
	cache, err := middleware.New(store, &middleware.Options{
		Policy: middleware.Policy{TTL: time.Minute, StaleFor: 5 * time.Minute},
		Host:   "shop.example", // each pod listens on an address of its own; the pages are the same
		Guard:  stampede.Options{Name: "example-page", LoadTimeout: 10 * time.Second, Logger: logger},
	})
	if err != nil {
		return nil, err
	}
	return &pages{cache: cache, load: load}, nil
}

// onServeMux has the pages served by net/http's router.
func (p *pages) onServeMux(mux *http.ServeMux) {
	mux.Handle("GET /mux/report", p.cache.Handler(http.HandlerFunc(p.report)))
	mux.Handle("GET /mux/account", p.cache.Handler(http.HandlerFunc(p.account)))
}

// onChi returns chi's router with the pages.
func (p *pages) onChi() http.Handler {
	r := chi.NewRouter()
	r.Use(p.cache.Chi)
	r.Get("/chi/report", p.report)
	r.Get("/chi/account", p.account)
	return r
}

// report is for everybody, as long as the policy says.
func (p *pages) report(w http.ResponseWriter, r *http.Request) {
	p.runs.Add(1)
	report, err := p.load(r.Context())
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, report)
}

// account is for one customer. The cache cannot know that, so the handler says it.
func (p *pages) account(w http.ResponseWriter, r *http.Request) {
	p.runs.Add(1)
	select {
	case <-time.After(50 * time.Millisecond): // what it takes to look up the account
	case <-r.Context().Done():
	}
	w.Header().Set("Cache-Control", "private")
	fmt.Fprintln(w, "account of", r.Header.Get("X-Customer"))
}
