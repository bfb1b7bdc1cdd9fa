package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/herdgate/herdgate/middleware"
	"github.com/herdgate/herdgate/stampede"
)

// report is an expensive handler.
var report = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	fmt.Println("the handler runs")
	fmt.Fprint(w, "report")
})

// visit sends a request and prints what comes back.
func visit(h http.Handler, method, url string, fields ...string) {
	r := httptest.NewRequestWithContext(context.Background(), method, url, nil)
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	fmt.Println(method, url, rec.Code, rec.Body)
}

func Example() {
	store := new(stampede.MemoryStore) // for a fleet: redisstore.New(rdb, nil)
	cache, err := middleware.New(store, &middleware.Options{
		Policy: middleware.Policy{TTL: time.Minute, StaleFor: 5 * time.Minute},
	})
	if err != nil {
		panic(err)
	}
	defer cache.Close(context.Background())

	mux := http.NewServeMux()
	mux.Handle("/report", cache.Handler(report))

	visit(mux, "GET", "http://example.com/report")
	visit(mux, "GET", "http://example.com/report")
	// Output:
	// the handler runs
	// GET http://example.com/report 200 report
	// GET http://example.com/report 200 report
}

func ExampleCache_Chi() {
	cache, err := middleware.New(new(stampede.MemoryStore), &middleware.Options{
		Policy:  middleware.Policy{TTL: time.Minute},
		Observe: func(e middleware.Event) { fmt.Println(e.Route, e.Outcome) },
	})
	if err != nil {
		panic(err)
	}
	defer cache.Close(context.Background())

	r := chi.NewRouter()
	r.With(cache.Chi).Get("/products/{id}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "product ", chi.URLParam(r, "id"))
	})

	visit(r, "GET", "http://example.com/products/42")
	visit(r, "GET", "http://example.com/products/42")
	// Output:
	// /products/{id} miss
	// GET http://example.com/products/42 200 product 42
	// /products/{id} hit
	// GET http://example.com/products/42 200 product 42
}

func ExampleCache_Purge() {
	cache, err := middleware.New(new(stampede.MemoryStore), &middleware.Options{
		Policy: middleware.Policy{TTL: time.Minute},
	})
	if err != nil {
		panic(err)
	}
	defer cache.Close(context.Background())
	h := cache.Handler(report)

	visit(h, "GET", "http://example.com/report")
	if err := cache.Purge(context.Background(), "http://example.com/report"); err != nil {
		fmt.Println("the old report may be served for a while:", err)
	}
	visit(h, "GET", "http://example.com/report")
	// Output:
	// the handler runs
	// GET http://example.com/report 200 report
	// the handler runs
	// GET http://example.com/report 200 report
}

func ExampleCache_With() {
	cache, err := middleware.New(new(stampede.MemoryStore), nil)
	if err != nil {
		panic(err)
	}
	defer cache.Close(context.Background())

	search, err := cache.With(&middleware.Policy{
		Mode:    middleware.Override, // whatever max-age the handler sends
		TTL:     time.Minute,
		Query:   []string{"q"},               // other parameters do not count, and the handler does not see them
		Cookies: []string{},                  // no cookie counts
		Headers: []string{"Accept-Language"}, // besides what Vary names
	})
	if err != nil {
		panic(err)
	}
	h := search.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("Accept-Language"), " ", r.URL.RawQuery)
	}))

	visit(h, "GET", "http://example.com/?q=tea&utm_source=x", "Accept-Language", "en")
	visit(h, "GET", "http://example.com/?utm_source=y&q=tea", "Accept-Language", "de", "Cookie", "visitor=7")
	// Output:
	// GET http://example.com/?q=tea&utm_source=x 200 en q=tea
	// GET http://example.com/?utm_source=y&q=tea 200 de q=tea
}

// What the handler says goes: it may even forbid to share.
func ExampleMode_respect() {
	cache, err := middleware.New(new(stampede.MemoryStore), &middleware.Options{
		Policy: middleware.Policy{TTL: time.Minute},
	})
	if err != nil {
		panic(err)
	}
	defer cache.Close(context.Background())
	h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "private")
		report(w, nil)
	}))

	visit(h, "GET", "http://example.com/")
	visit(h, "GET", "http://example.com/")
	// Output:
	// the handler runs
	// GET http://example.com/ 200 report
	// the handler runs
	// GET http://example.com/ 200 report
}
