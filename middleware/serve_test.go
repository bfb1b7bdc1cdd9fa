package middleware_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/herdgate/herdgate/middleware"
)

var quietLog = log.New(io.Discard, "", 0)

func minute() *middleware.Options {
	return &middleware.Options{Policy: middleware.Policy{TTL: time.Minute}}
}

func TestSecondRequestIsAHit(t *testing.T) {
	s := serve(t, minute(), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Own", "yes")
		fmt.Fprint(w, "hello ", r.URL.Path)
	})
	first, second := s.get("/a"), s.get("/a")
	if first.body != "hello /a" || second.body != first.body {
		t.Errorf("%q, %q", first.body, second.body)
	}
	if got := first.status(); got != "herdgate; fwd=uri-miss; fwd-status=200; ttl=60; stored" && !strings.Contains(got, "ttl=59") {
		t.Error(got)
	}
	if got := second.status(); !strings.HasPrefix(got, "herdgate; hit; ttl=") {
		t.Error(got)
	}
	for _, name := range []string{"Date", "Content-Type", "Content-Length", "X-Own"} {
		if second.Header.Get(name) != first.Header.Get(name) || second.Header.Get(name) == "" {
			t.Errorf("%s: %q, then %q", name, first.Header.Get(name), second.Header.Get(name))
		}
	}
	if second.Header.Get("Age") == "" {
		t.Error("a hit without Age")
	}
	s.wantRuns(1)
}

func TestConcurrentRequestsShareOneRun(t *testing.T) {
	gate := make(chan struct{})
	s := serve(t, minute(), func(w http.ResponseWriter, _ *http.Request) {
		<-gate
		fmt.Fprint(w, "one")
	})
	const n = 20
	go func() {
		eventually(t, "all wait", func() bool { return s.cache.Stats().Misses >= n })
		close(gate)
	}()
	all(n, func(int) {
		if a := s.get("/"); a.body != "one" || a.StatusCode != http.StatusOK {
			t.Errorf("%d %q", a.StatusCode, a.body)
		}
	})
	s.wantRuns(1)
}

func TestWaitersOfWhatMayNotBeSharedRunInParallel(t *testing.T) {
	for _, cc := range []string{"no-store", "private, max-age=60"} {
		t.Run(cc, func(t *testing.T) {
			gate := make(chan struct{})
			s := serve(t, minute(), func(w http.ResponseWriter, r *http.Request) {
				<-gate
				w.Header().Set("Cache-Control", cc)
				fmt.Fprint(w, r.Header.Get("X-Who"))
			})
			const n = 10
			go func() {
				eventually(t, "all wait", func() bool { return s.cache.Stats().Misses >= n })
				close(gate)
			}()
			all(n, func(i int) {
				who := fmt.Sprint("user", i)
				if a := s.get("/", "X-Who", who); a.body != who {
					t.Errorf("%s got the response of %s", who, a.body)
				}
			})
			s.wantRuns(n)
		})
	}
}

func TestVariantsAreKeptApart(t *testing.T) {
	s := serve(t, minute(), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "X-A")
		fmt.Fprint(w, r.Header.Get("X-A"))
	})
	for i, want := range []struct {
		a    string
		runs int64
	}{{"1", 1}, {"2", 2}, {"1", 2}, {"2", 2}} {
		if got := s.get("/", "X-A", want.a); got.body != want.a {
			t.Errorf("%d: %q", i, got.body)
		}
		s.wantRuns(want.runs)
	}
	if err := s.cache.Purge(t.Context(), s.server.URL+"/"); err != nil {
		t.Fatal(err)
	}
	s.get("/", "X-A", "2")
	s.get("/", "X-A", "1")
	s.wantRuns(4)
}

func TestStreamReachesTheLeaderAsItIsWritten(t *testing.T) {
	next := make(chan struct{})
	s := serve(t, minute(), func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: 1\n\n")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		<-next
		fmt.Fprint(w, "data: 2\n\n")
	})
	resp, err := s.server.Client().Get(s.server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, 9)
	if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "data: 1\n\n" {
		t.Fatal(string(first), err)
	}
	close(next)
	if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "data: 2\n\n" {
		t.Error(string(rest), err)
	}
}

func TestUnsafeMethodsInvalidate(t *testing.T) {
	s := serve(t, minute(), func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Method) })
	s.get("/a")
	if a := s.do("POST", "/a"); a.body != "POST" {
		t.Error(a.body)
	}
	s.get("/a")
	s.wantRuns(3)
}
