package middleware_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/herdgate/herdgate/middleware"
)

func TestClosedCacheServesWhatItHasAndRunsTheHandlerForTheRest(t *testing.T) {
	s := serve(t, minute(), func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Path) })
	s.get("/known")
	if err := s.cache.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := s.get("/known"); a.body != "/known" || !strings.Contains(a.status(), "hit") {
		t.Errorf("%q: %s", a.body, a.status())
	}
	for range 2 {
		if a := s.get("/new"); a.body != "/new" || a.StatusCode != http.StatusOK {
			t.Errorf("%d %q", a.StatusCode, a.body)
		}
	}
	s.wantRuns(3)
}

func TestCacheStatusHasItsNameAndComesAfterOthers(t *testing.T) {
	for name, want := range map[string]string{"": "inner; hit, herdgate; hit; ttl=", "Edge-1": "inner; hit, Edge-1; hit; ttl=", "-": "inner; hit"} {
		o := minute()
		o.StatusName = name
		s := serve(t, o, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Cache-Status", "inner; hit")
			fmt.Fprint(w, "body")
		})
		s.get("/")
		if got := s.get("/").status(); !strings.HasPrefix(got, want) || name == "-" && got != want {
			t.Errorf("%q: %s", name, got)
		}
	}
}

func TestDeadlinesOfALoadReachTheLeadersConnection(t *testing.T) {
	for _, cc := range []string{"max-age=60", "no-store"} {
		t.Run(cc, func(t *testing.T) {
			s := serve(t, minute(), func(w http.ResponseWriter, _ *http.Request) {
				rc := http.NewResponseController(w)
				w.Header().Set("Cache-Control", cc)
				fmt.Fprint(w, "body")
				if err := rc.SetWriteDeadline(time.Now().Add(time.Hour)); err != nil {
					t.Error(err)
				}
				if err := rc.SetReadDeadline(time.Now().Add(time.Hour)); err != nil {
					t.Error(err)
				}
				if err := rc.EnableFullDuplex(); err != nil {
					t.Error(err)
				}
				if _, _, err := rc.Hijack(); err == nil {
					t.Error("a load was hijacked")
				}
			})
			if a := s.get("/"); a.body != "body" {
				t.Errorf("%q", a.body)
			}
			if hit := strings.Contains(s.get("/").status(), "hit"); hit != (cc == "max-age=60") {
				t.Errorf("hit: %v", hit)
			}
		})
	}
}

// A handler that copies from a reader, as file servers and proxies do, may have the leader's connection do it.
func TestHandlerMayCopyIntoItsResponse(t *testing.T) {
	body := strings.Repeat("0123456789", 100_000)
	for _, c := range []struct {
		cacheControl string
		max          int
		hit          bool
	}{{"max-age=60", 0, true}, {"no-store", 0, false}, {"max-age=60", 1000, false}} {
		s := serve(t, &middleware.Options{Policy: middleware.Policy{MaxBody: c.max}}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Cache-Control", c.cacheControl)
			if n, err := io.Copy(w, io.MultiReader(strings.NewReader(body))); err != nil || n != int64(len(body)) {
				t.Error(n, err)
			}
		})
		for _, hit := range []bool{false, c.hit} {
			if a := s.get("/"); a.body != body || strings.Contains(a.status(), "hit") != hit {
				t.Errorf("%s, at most %d: %d bytes, %s", c.cacheControl, c.max, len(a.body), a.status())
			}
		}
	}
}

func TestLayersOutsideKeepTheirHeaders(t *testing.T) {
	s := &site{t: t}
	var err error
	if s.cache, err = middleware.New(newMemory(), minute()); err != nil {
		t.Fatal(err)
	}
	inner := s.cache.Handler(s.counted(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("Vary", "Accept-Language")
		w.Header().Set("X-Replaced", "inner")
		fmt.Fprint(w, "body")
	}))
	request := 0
	s.start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request++
		w.Header().Set("Vary", "Origin")
		w.Header().Set("X-Request", fmt.Sprint(request))
		w.Header().Set("X-Replaced", "outer")
		inner.ServeHTTP(w, r)
	}))
	for i := range 3 {
		a := s.get("/")
		if got := strings.Join(a.Header["Vary"], "|"); got != "Origin|Accept-Language" {
			t.Errorf("Vary: %s", got)
		}
		if got := a.Header.Get("X-Request") + a.Header.Get("X-Replaced"); got != fmt.Sprint(i+1)+"inner" {
			t.Error(got)
		}
	}
	s.wantRuns(1)
}

func TestPanicReachesTheLayersOutside(t *testing.T) {
	for _, value := range []any{"oops", http.ErrAbortHandler} {
		s := &site{t: t}
		var err error
		if s.cache, err = middleware.New(newMemory(), quietly(minute())); err != nil {
			t.Fatal(err)
		}
		h := s.cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "half of it")
			panic(value)
		}))
		seen := make(chan any, 1)
		s.start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() {
				p := recover()
				seen <- p
				w.WriteHeader(http.StatusInternalServerError)
			}()
			h.ServeHTTP(w, r)
		}))
		a, err := s.try(http.MethodGet, "/")
		if err != nil || a.StatusCode != http.StatusInternalServerError || a.body != "" {
			t.Errorf("%v %q", err, a.body)
		}
		if got := <-seen; got != value {
			t.Errorf("recovered %v, want %v", got, value)
		}
	}
}
