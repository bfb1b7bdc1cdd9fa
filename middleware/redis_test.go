package middleware_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/internal/redisproc"
	"github.com/herdgate/herdgate/internal/redistest"
	"github.com/herdgate/herdgate/middleware"
	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/redisstore"
)

// onRedis returns a store on server.
func onRedis(t *testing.T, server *redisproc.Server) stampede.Store {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	store, err := redisstore.New(rdb, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// namespaces counts those that were used, so that tests on one server keep apart, also from their own last time.
var namespaces atomic.Int64

func named(p middleware.Policy) *middleware.Options {
	return &middleware.Options{Policy: p, Guard: stampede.Options{Name: fmt.Sprint("http", namespaces.Add(1))}, Host: "example.com"}
}

func TestPodsShareResponsesThroughRedis(t *testing.T) {
	server := servers.Server(t)
	opts := named(middleware.Policy{TTL: time.Minute})
	vary := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "X-A")
		w.Header().Add("X-Two", "1")
		w.Header().Add("X-Two", "2")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, r.Header.Get("X-A"))
	}
	one, two := serveOn(t, onRedis(t, server), opts, vary), serveOn(t, onRedis(t, server), opts, vary)
	for _, a := range []string{"x", "y"} {
		first, second := one.get("/", "X-A", a), two.get("/", "X-A", a)
		if second.body != a || second.StatusCode != first.StatusCode || !strings.Contains(second.status(), "hit") {
			t.Errorf("%d %q %s", second.StatusCode, second.body, second.status())
		}
		for _, name := range []string{"X-Two", "Date", "Content-Type", "Vary"} {
			if got, want := second.Header[name], first.Header[name]; fmt.Sprint(got) != fmt.Sprint(want) || want == nil {
				t.Errorf("%s: %q, then %q", name, want, got)
			}
		}
	}
	one.wantRuns(2)
	two.wantRuns(0)
	if err := two.cache.Purge(t.Context(), "/"); err != nil {
		t.Fatal(err)
	}
	one.get("/", "X-A", "y")
	two.get("/", "X-A", "x")
	one.wantRuns(3)
	two.wantRuns(1)
}

func TestPurgeReachesLoadsUnderWayInOtherPods(t *testing.T) {
	server := servers.Server(t)
	for _, vary := range []string{"", "X-A"} {
		t.Run("vary "+vary, func(t *testing.T) {
			opts := named(middleware.Policy{TTL: time.Minute})
			begun, gate := make(chan struct{}), make(chan struct{})
			slow := serveOn(t, onRedis(t, server), opts, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("X-A") == "old" {
					close(begun)
					<-gate
				}
				w.Header().Set("Vary", vary)
				fmt.Fprint(w, "from before")
			})
			if vary != "" {
				slow.get("/", "X-A", "other") // so that the spec is known
			}
			other := serveOn(t, onRedis(t, server), opts, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Vary", vary)
				fmt.Fprint(w, "from after")
			})
			ended := make(chan answer)
			go func() { ended <- slow.get("/", "X-A", "old") }()
			await(t, "the load", begun)
			if err := other.cache.Purge(t.Context(), "/"); err != nil {
				t.Fatal(err)
			}
			close(gate)
			if a := <-ended; a.body != "from before" {
				t.Errorf("the leader got %q", a.body)
			}
			for _, s := range []*site{other, slow} {
				if a := s.get("/", "X-A", "old"); a.body != "from after" {
					t.Errorf("%q: %s", a.body, a.status())
				}
			}
			other.wantRuns(1)
		})
	}
}

func TestRedisGoneCostsNobodyAnAnswer(t *testing.T) {
	server := redistest.Server(t)
	s := serveOn(t, onRedis(t, server), named(middleware.Policy{TTL: time.Minute}), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", r.URL.Query().Get("vary"))
		fmt.Fprint(w, "answer")
	})
	s.get("/known")
	if err := server.Stop(); err != nil { // it is silent
		t.Fatal(err)
	}
	for _, path := range []string{"/known", "/new", "/?vary=X-A", "/new2", "/new3"} {
		begun := time.Now()
		a := s.get(path)
		if a.body != "answer" || a.StatusCode != http.StatusOK {
			t.Errorf("%s: %d %q", path, a.StatusCode, a.body)
		}
		if strings.Contains(a.status(), "stored") || !strings.Contains(a.status(), "detail=") {
			t.Errorf("%s: %s", path, a.status())
		}
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("%s took %v", path, took)
		}
	}
	if a := s.do(http.MethodPost, "/known"); a.body != "answer" {
		t.Errorf("%q", a.body)
	}
	if err := server.Cont(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "responses are stored again", func() bool { return strings.Contains(s.get("/new4").status(), "hit") })
}
