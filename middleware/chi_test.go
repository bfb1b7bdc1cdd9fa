package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/herdgate/herdgate/middleware"
	"github.com/herdgate/herdgate/stampede"
)

// routes are events by route.
type routes struct {
	mu   sync.Mutex // protects seen
	seen []string
}

func (r *routes) observe(e middleware.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, e.Route+" "+e.Outcome.String())
}

func (r *routes) take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.seen = nil }()
	return strings.Join(r.seen, ", ")
}

func TestChiWorksWhereverAMiddlewareCanStand(t *testing.T) {
	var seen routes
	cache, err := middleware.New(new(stampede.MemoryStore), &middleware.Options{
		Policy: middleware.Policy{TTL: time.Minute}, Observe: seen.observe,
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, cache: cache}
	echo := s.counted(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s", chi.URLParam(r, "id"), chi.RouteContext(r.Context()).RoutePattern())
	})
	r := chi.NewRouter()
	r.With(cache.Chi).Method(http.MethodGet, "/with/{id}", echo)
	r.Group(func(r chi.Router) {
		r.Use(cache.Chi)
		r.Method(http.MethodGet, "/group/{id}", echo)
	})
	r.Route("/route/{x}", func(r chi.Router) {
		r.Use(cache.Chi)
		r.Method(http.MethodGet, "/{id}", echo)
	})
	sub := chi.NewRouter()
	sub.Method(http.MethodGet, "/{id}", echo)
	r.With(cache.Chi).Mount("/mount", sub)
	s.start(r)
	for path, pattern := range map[string]string{
		"/with/1": "/with/{id}", "/group/2": "/group/{id}", "/route/a/3": "/route/{x}/{id}", "/mount/4": "/mount/{id}",
	} {
		want := path[len(path)-1:] + " " + pattern
		for _, outcome := range []string{"miss", "hit"} {
			if a := s.get(path); a.body != want || a.StatusCode != http.StatusOK {
				t.Errorf("%s: %d %q, want %q", path, a.StatusCode, a.body, want)
			}
			if got := seen.take(); got != pattern+" "+outcome {
				t.Errorf("%s: observed %q, want %q", path, got, pattern+" "+outcome)
			}
		}
	}
	s.wantRuns(4)
	if a := s.get("/mount/a/b"); a.StatusCode != http.StatusNotFound {
		t.Errorf("no route: %d", a.StatusCode)
	}
}

func TestChiLoadOutlivesItsRequest(t *testing.T) {
	cache, err := middleware.New(new(stampede.MemoryStore), minute())
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, cache: cache}
	begun, gate := make(chan struct{}), make(chan struct{})
	r := chi.NewRouter()
	r.With(cache.Chi).Get("/slow/{id}", s.counted(func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-gate
		fmt.Fprint(w, chi.URLParam(r, "id"), " ", chi.RouteContext(r.Context()).RoutePattern())
	}).ServeHTTP)
	r.Get("/{other}/{more}", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, chi.URLParam(r, "other")) })
	s.start(r)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		if a, err := s.tryCtx(ctx, http.MethodGet, "/slow/7"); err == nil {
			t.Errorf("the leader got %q", a.body)
		}
	}()
	await(t, "the load", begun)
	cancel()
	await(t, "the leader to leave", left)
	all(20, func(i int) { // chi uses the routing context again
		if a := s.get(fmt.Sprintf("/x%d/y", i)); a.body != fmt.Sprintf("x%d", i) {
			t.Error(a.body)
		}
	})
	close(gate)
	if a := s.get("/slow/7"); a.body != "7 /slow/{id}" {
		t.Errorf("%q", a.body)
	}
	s.wantRuns(1)
}
