package middleware_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/herdgate/herdgate/middleware"
	"github.com/herdgate/herdgate/stampede"
)

// patience is how long a test waits for what must come.
const patience = 10 * time.Second

// site is a server whose handler stands behind a cache.
type site struct {
	t      *testing.T
	cache  *middleware.Cache
	server *httptest.Server
	runs   atomic.Int64 // of the handler
}

// serve starts a site over HTTP/1.1, or HTTP/2 if the test's name says so.
func serve(t *testing.T, opts *middleware.Options, handler http.HandlerFunc) *site {
	t.Helper()
	return serveOn(t, new(stampede.MemoryStore), opts, handler)
}

func serveOn(t *testing.T, store stampede.Store, opts *middleware.Options, handler http.HandlerFunc) *site {
	t.Helper()
	s := &site{t: t}
	var err error
	if s.cache, err = middleware.New(store, opts); err != nil {
		t.Fatal(err)
	}
	s.start(s.cache.Handler(s.counted(handler)))
	return s
}

func (s *site) counted(handler http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.runs.Add(1)
		handler(w, r)
	})
}

func (s *site) start(h http.Handler) {
	s.server = httptest.NewUnstartedServer(h)
	s.server.Config.ErrorLog = quietLog
	if strings.Contains(s.t.Name(), "HTTP2") {
		s.server.EnableHTTP2 = true
		s.server.StartTLS()
	} else {
		s.server.Start()
	}
	s.t.Cleanup(func() {
		s.server.Close()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.cache.Close(ctx); err != nil {
			s.t.Error(err)
		}
	})
}

// answer is a response with its whole body.
type answer struct {
	*http.Response
	body string
}

func (a answer) status() string { return strings.Join(a.Header["Cache-Status"], ", ") }

// get sends a request; fields are pairs of a name and a value.
func (s *site) get(path string, fields ...string) answer {
	s.t.Helper()
	return s.do(http.MethodGet, path, fields...)
}

func (s *site) do(method, path string, fields ...string) answer {
	s.t.Helper()
	a, err := s.try(method, path, fields...)
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

func (s *site) try(method, path string, fields ...string) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return s.tryCtx(ctx, method, path, fields...)
}

func (s *site) tryCtx(ctx context.Context, method, path string, fields ...string) (answer, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.server.URL+path, nil)
	if err != nil {
		return answer{}, err
	}
	for i := 0; i < len(fields); i += 2 {
		if fields[i] == "Host" {
			r.Host = fields[i+1]
			continue
		}
		r.Header.Add(fields[i], fields[i+1])
	}
	client := *s.server.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp, string(body)}, err
}

// await waits for a channel to be closed.
func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("waited %v for %s", patience, what)
	}
}

// all runs n calls at once and returns when all have ended.
func all(n int, call func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { call(i) })
	}
	wg.Wait()
}

// eventually polls until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, patience)
		}
		time.Sleep(time.Millisecond) // real time: polls a server
	}
}

func (s *site) wantRuns(n int64) {
	s.t.Helper()
	if got := s.runs.Load(); got != n {
		s.t.Errorf("the handler ran %d times, want %d", got, n)
	}
}

func newMemory() stampede.Store { return new(stampede.MemoryStore) }

// quietly lets nothing be logged.
func quietly(o *middleware.Options) *middleware.Options {
	o.Guard.Logger = slog.New(slog.DiscardHandler)
	return o
}
