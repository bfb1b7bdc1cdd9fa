package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/middleware"
	"github.com/herdgate/herdgate/stampede"
)

// The tests in the files reports_*_test.go play what went wrong in other caches, as public reports tell it,
// and what is of the same kind. Each runs in a bubble, over HTTP/1.1 and over HTTP/2, on connections in
// memory: so time is exact, and it can be known that everybody waits who has to wait.

// protocols runs f in a bubble for each protocol.
func protocols(t *testing.T, f func(t *testing.T, p protocol)) {
	t.Helper()
	for _, p := range []protocol{http1, http2} {
		t.Run(string(p), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, p) })
		})
	}
}

type protocol string

const (
	http1 protocol = "http1"
	http2 protocol = "http2"
)

// scene is a server whose handler stands behind a cache, and a client of it.
type scene struct {
	t      *testing.T
	cache  *middleware.Cache
	source *source
	client *http.Client
}

// setting is what a site is made of, beside its handler. The zero value is a cache of its own with the
// options of a user who sets none.
type setting struct {
	store stampede.Store // nil: a memory store of its own
	opts  middleware.Options
	outer func(http.Handler) http.Handler
	inner func(http.Handler) http.Handler
}

// open starts a site that ends with the bubble.
func (p protocol) open(t *testing.T, set setting, h http.HandlerFunc) *scene {
	t.Helper()
	if set.store == nil {
		set.store = new(stampede.MemoryStore)
	}
	cache := newCache(t, set.store, &set.opts)
	source := &source{handler: h}
	handler := http.Handler(source)
	if set.inner != nil {
		handler = set.inner(handler)
	}
	handler = cache.Handler(handler)
	if set.outer != nil {
		handler = set.outer(handler)
	}
	return &scene{t: t, cache: cache, source: source, client: p.connect(t, handler)}
}

// newCache makes a cache that is closed when the test ends.
func newCache(t *testing.T, store stampede.Store, o *middleware.Options) *middleware.Cache {
	t.Helper()
	quiet := middleware.Options{}
	if o != nil {
		quiet = *o
	}
	quiet.Guard.Logger = slog.New(slog.DiscardHandler)
	cache, err := middleware.New(store, &quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := cache.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return cache
}

// connect starts a server and returns a client of it.
func (p protocol) connect(t *testing.T, h http.Handler) *http.Client {
	t.Helper()
	var which http.Protocols
	which.SetHTTP1(p == http1)
	which.SetUnencryptedHTTP2(p == http2)
	ln := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	srv := &http.Server{Handler: h, Protocols: &which, ErrorLog: log.New(io.Discard, "", 0)}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	transport := &http.Transport{DialContext: ln.dial, DisableCompression: true, Protocols: &which, MaxIdleConnsPerHost: 1000}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// pipes is a listener whose connections are pipes in memory.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipes) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

func (l *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// source counts the runs of a handler.
type source struct {
	handler http.Handler

	mu   sync.Mutex // protects what follows
	runs int
	now  int // running at this moment
}

func (s *source) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.runs++
	s.now++
	n := s.runs
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.now--
	}()
	s.handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), runKey{}, n)))
}

type runKey struct{}

// run returns which run of its site's handler this is; the first is 1.
func run(r *http.Request) int {
	n, _ := r.Context().Value(runKey{}).(int)
	return n
}

// total returns how many times the handler was run.
func (s *source) total() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs
}

// ran fails the test unless the handler was run so many times so far.
func (s *scene) ran(want int) {
	s.t.Helper()
	if got := s.source.total(); got != want {
		s.t.Errorf("the handler ran %d times, want %d", got, want)
	}
}

// running fails the test unless the handler runs so many times at this moment.
func (s *scene) running(want int) {
	s.t.Helper()
	synctest.Wait()
	s.source.mu.Lock()
	defer s.source.mu.Unlock()
	if s.source.now != want {
		s.t.Errorf("%d runs are under way, want %d", s.source.now, want)
	}
}

// reply is an answer as the client saw it.
type reply struct {
	status int
	header http.Header
	body   string
	err    error // the request failed, or the body broke off
}

// request makes a GET request; fields are the names and values of its headers.
func (s *scene) request(target string, fields ...string) *http.Request {
	s.t.Helper()
	return s.method(http.MethodGet, target, fields...)
}

// method makes a request.
func (s *scene) method(method, target string, fields ...string) *http.Request {
	s.t.Helper()
	if strings.HasPrefix(target, "/") {
		target = "http://site.example" + target
	}
	r, err := http.NewRequestWithContext(s.t.Context(), method, target, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	return r
}

// do sends a request and reads the answer to its end.
func (s *scene) do(r *http.Request) (a reply) {
	res, err := s.client.Do(r)
	if err != nil {
		return reply{err: err}
	}
	defer func() { a.err = errors.Join(a.err, res.Body.Close()) }()
	body, err := io.ReadAll(res.Body)
	return reply{status: res.StatusCode, header: res.Header, body: string(body), err: err}
}

// get sends a GET request and wants an answer.
func (s *scene) get(target string, fields ...string) reply {
	s.t.Helper()
	a := s.do(s.request(target, fields...))
	if a.err != nil {
		s.t.Fatalf("GET %s: %v", target, a.err)
	}
	return a
}

// wants fails the test unless the answer is a 200 with this body.
func (a reply) wants(t *testing.T, body string) {
	t.Helper()
	if a.err != nil || a.status != http.StatusOK || a.body != body {
		t.Errorf("got %v, want 200 %q", a, body)
	}
}

func (a reply) String() string {
	if a.err != nil {
		return fmt.Sprintf("%d %.200q and %v", a.status, a.body, a.err)
	}
	return fmt.Sprintf("%d %.200q %v", a.status, a.body, a.header)
}

// crowd is many requests under way.
type crowd struct {
	ended   sync.WaitGroup
	replies []reply
}

// crowd sends n requests, the first of them first, and returns when all of them wait for something.
func (s *scene) crowd(n int, request func(i int) *http.Request) *crowd {
	c := &crowd{replies: make([]reply, n)}
	for i := range n {
		r := request(i)
		c.ended.Go(func() { c.replies[i] = s.do(r) })
		if i == 0 {
			synctest.Wait()
		}
	}
	synctest.Wait()
	return c
}

// same sends n equal GET requests.
func (s *scene) same(n int, target string, fields ...string) *crowd {
	return s.crowd(n, func(int) *http.Request { return s.request(target, fields...) })
}

// wait returns the answers.
func (c *crowd) wait() []reply {
	c.ended.Wait()
	return c.replies
}

// distinct fails the test unless no two answers have the same body.
func distinct(t *testing.T, replies []reply) {
	t.Helper()
	seen := make(map[string]int)
	for i, a := range replies {
		if a.err != nil {
			t.Errorf("request %d: %v", i, a.err)
		}
		if j, ok := seen[a.body]; ok {
			t.Errorf("requests %d and %d were given the same answer: %v", j, i, a)
		}
		seen[a.body] = i
	}
}

// numbered is a handler whose answers are cacheable for a minute and bear the number of the run.
func numbered(header ...string) http.HandlerFunc { return gated(nil, header...) }

// gated is numbered whose runs wait, if gate is not nil, until it is closed.
func gated(gate <-chan struct{}, header ...string) http.HandlerFunc {
	var mu sync.Mutex
	n := 0
	return func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		n++
		body := fmt.Sprintf("answer %d", n)
		mu.Unlock()
		if gate != nil {
			<-gate
		}
		w.Header().Set("Cache-Control", "max-age=60")
		setHeaders(w, header)
		_, _ = io.WriteString(w, body)
	}
}

// setHeaders sets headers given as names and values; those of one name become its lines.
func setHeaders(w http.ResponseWriter, fields []string) {
	for i := 0; i < len(fields); i += 2 {
		w.Header().Del(fields[i])
	}
	for i := 0; i < len(fields); i += 2 {
		w.Header().Add(fields[i], fields[i+1])
	}
}

// fresh is a handler that answers with what f makes of the request, cacheable for a minute.
func fresh(f func(r *http.Request) string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		_, _ = io.WriteString(w, f(r))
	}
}

// hits counts the answers whose Cache-Status says that they are from the cache.
func hits(replies ...reply) int {
	n := 0
	for _, a := range replies {
		if slices.ContainsFunc(a.header.Values("Cache-Status"), func(s string) bool { return strings.Contains(s, "; hit") }) {
			n++
		}
	}
	return n
}

// sleep lets seconds pass, in the bubble.
func (s *scene) sleep(seconds float64) {
	time.Sleep(time.Duration(seconds * float64(time.Second)))
	synctest.Wait()
}
