package middleware_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/middleware"
	"github.com/herdgate/herdgate/stampede"
)

// bubble is a handler behind a cache, called directly, for tests in which time passes.
type bubble struct {
	t     *testing.T
	cache *middleware.Cache
	h     http.Handler
	runs  atomic.Int64
}

// inBubble runs test in a bubble. handler may be replaced between requests through a variable of its own.
func inBubble(t *testing.T, opts *middleware.Options, handler http.HandlerFunc, test func(b *bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{t: t}
		var err error
		if b.cache, err = middleware.New(new(stampede.MemoryStore), opts); err != nil {
			t.Fatal(err)
		}
		b.h = b.cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b.runs.Add(1)
			handler(w, r)
		}))
		test(b)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := b.cache.Close(ctx); err != nil {
			t.Error(err)
		}
	})
}

func (b *bubble) get(fields ...string) answer {
	b.t.Helper()
	return b.do(http.MethodGet, fields...)
}

func (b *bubble) do(method string, fields ...string) answer {
	b.t.Helper()
	r := httptest.NewRequestWithContext(b.t.Context(), method, "http://example.com/", nil)
	for i := 0; i < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	rec := httptest.NewRecorder()
	b.h.ServeHTTP(rec, r)
	resp := rec.Result()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer{resp, string(body)}
}

func (b *bubble) wantRuns(n int64) {
	b.t.Helper()
	synctest.Wait()
	if got := b.runs.Load(); got != n {
		b.t.Errorf("the handler ran %d times, want %d", got, n)
	}
}

// freshFor is for how many seconds a response is a fresh hit.
func freshFor(t *testing.T, p middleware.Policy, h http.Header) (fresh int, first answer) {
	t.Helper()
	p.StaleFor, p.StaleIfError, p.KeepFor = -1, -1, -1
	inBubble(t, &middleware.Options{Policy: p}, func(w http.ResponseWriter, _ *http.Request) {
		for name, values := range h {
			w.Header()[name] = values
		}
		fmt.Fprint(w, "body")
	}, func(b *bubble) {
		first = b.get()
		for fresh < 1000 && strings.Contains(b.get().status(), "hit") {
			time.Sleep(time.Second)
			fresh++
		}
	})
	return fresh, first
}

func TestModesSayWhoDecidesHowLong(t *testing.T) {
	const ttl = 20 * time.Second
	for _, c := range []struct {
		cacheControl              string
		respect, capped, override int // seconds
		emitted                   string
	}{
		{"", 20, 20, 20, "max-age=20"},
		{"max-age=10", 10, 10, 20, "max-age=20"},
		{"max-age=100", 100, 20, 20, "max-age=20"},
		{"public, max-age=5, s-maxage=100", 100, 20, 20, "max-age=20, public"},
		{"max-age=0", 0, 0, 20, "max-age=20"},
		{"no-store, max-age=100", 0, 0, 0, "no-store, max-age=100"},
		{"private, max-age=100", 0, 0, 0, "private, max-age=100"},
		{"no-cache", 0, 0, 0, "no-cache"},
	} {
		h := http.Header{}
		if c.cacheControl != "" {
			h.Set("Cache-Control", c.cacheControl)
		}
		for mode, want := range map[middleware.Mode]int{
			middleware.Respect: c.respect, middleware.Cap: c.capped, middleware.Override: c.override,
		} {
			got, first := freshFor(t, middleware.Policy{Mode: mode, TTL: ttl}, h)
			if got != want {
				t.Errorf("%v, %q: fresh for %d s, want %d", mode, c.cacheControl, got, want)
			}
			emitted := c.cacheControl
			if mode == middleware.Override {
				emitted = c.emitted
			}
			if got := first.Header.Get("Cache-Control"); got != emitted {
				t.Errorf("%v, %q: sent %q, want %q", mode, c.cacheControl, got, emitted)
			}
		}
	}
}

func TestHitIsNeverOlderThanClientsAreTold(t *testing.T) {
	for mode, p := range map[string]middleware.Policy{
		"respect":  {TTL: 20 * time.Second},
		"cap":      {Mode: middleware.Cap, TTL: 20 * time.Second},
		"override": {Mode: middleware.Override, TTL: 20 * time.Second},
	} {
		t.Run(mode, func(t *testing.T) {
			inBubble(t, &middleware.Options{Policy: p}, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Cache-Control", "max-age=10")
				w.Header().Set("Expires", time.Now().Add(10*time.Second).UTC().Format(http.TimeFormat))
			}, func(b *bubble) {
				for range 40 {
					a := b.get()
					age, _ := strconv.Atoi(a.Header.Get("Age"))
					told := strings.TrimPrefix(a.Header.Get("Cache-Control"), "max-age=")
					if life, err := strconv.Atoi(told); err != nil || age >= life && strings.Contains(a.status(), "; hit; ttl=") && !strings.Contains(a.status(), "stale") {
						t.Errorf("age %d, told %q: %s", age, told, a.status())
					}
					time.Sleep(time.Second)
				}
			})
		})
	}
}

func TestStaleWindowsAreTheHandlersOwnOrThePolicys(t *testing.T) {
	p := middleware.Policy{TTL: time.Minute, StaleFor: 30 * time.Second, StaleIfError: -1}
	for _, c := range []struct {
		cacheControl string
		after        time.Duration
		stale        bool
	}{
		{"max-age=10", 15 * time.Second, true},
		{"max-age=10", 45 * time.Second, false},
		{"max-age=10, stale-while-revalidate=100", 45 * time.Second, true},
		{"max-age=10, stale-while-revalidate=2", 15 * time.Second, false},
		{"max-age=10, must-revalidate", 15 * time.Second, false},
		{"max-age=10, proxy-revalidate, stale-while-revalidate=100", 15 * time.Second, false},
		{"s-maxage=10", 15 * time.Second, false},
		{"s-maxage=10, stale-while-revalidate=100", 15 * time.Second, true},
	} {
		inBubble(t, &middleware.Options{Policy: p}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Cache-Control", c.cacheControl)
			fmt.Fprint(w, "body")
		}, func(b *bubble) {
			b.get()
			time.Sleep(c.after)
			if got := strings.Contains(b.get().status(), "detail=stale"); got != c.stale {
				t.Errorf("%q after %v: stale %v", c.cacheControl, c.after, got)
			}
			b.wantRuns(2)
		})
	}
}

func TestPolicyAndOptionsReportAllFaultsAtOnce(t *testing.T) {
	_, err := middleware.New(nil, &middleware.Options{
		Policy: middleware.Policy{
			Mode: 9, TTL: time.Microsecond, StatusTTL: map[int]time.Duration{206: time.Minute}, Headers: []string{"Cookie", "a b"},
			Authorization: 9, PassFor: 1 << 62,
		},
		Scheme: "ftp", Host: "Example.com", Hosts: []string{"a/b"}, StatusName: "no name",
		Guard: stampede.Options{CopyOnRead: true, MaxValueSize: 1, Policy: stampede.Policy{TTL: 1}, Lease: 1},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range []string{
		"Policy.Mode", "Policy.TTL", "206", `"Cookie"`, `"a b"`, "Policy.Authorization", "Policy.PassFor", "Options.Scheme",
		"Options.Hosts", "Example.com", "a/b", "no name", "CopyOnRead", "MaxValueSize", "Guard.Policy.TTL", "Lease", "store is nil",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("nothing is said of %s in\n%v", part, err)
		}
	}
	if _, err := middleware.New(new(stampede.MemoryStore), &middleware.Options{Policy: middleware.Policy{Mode: middleware.Cap}}); err == nil {
		t.Error("Cap without a TTL")
	}
	if _, err := middleware.New(new(stampede.MemoryStore), nil); err != nil {
		t.Error(err)
	}
}

func TestCachesOfTwoPoliciesShareTheirEntries(t *testing.T) {
	inBubble(t, nil, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "body") }, func(b *bubble) {
		routes, err := b.cache.With(&middleware.Policy{TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if b.get(); !strings.Contains(b.get().status(), "no-lifetime") {
			t.Error("respect mode without a TTL has stored something")
		}
		time.Sleep(time.Minute)
		b.h = routes.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "body") }))
		if b.get(); !strings.Contains(b.get().status(), "hit") {
			t.Error("no hit")
		}
		if err := b.cache.Purge(b.t.Context(), "http://example.com/"); err != nil {
			t.Error(err)
		}
		if strings.Contains(b.get().status(), "hit") {
			t.Error("a hit after Purge")
		}
		if _, err := b.cache.With(&middleware.Policy{Mode: middleware.Override}); err == nil {
			t.Error("Override without a TTL")
		}
		if err := b.cache.Purge(b.t.Context(), "/"); err == nil {
			t.Error("Purge of a URL without a host")
		}
	})
}

func TestVariantsStoredForAURLAreBounded(t *testing.T) {
	p := middleware.Policy{TTL: time.Minute, MaxVariants: 3}
	inBubble(t, &middleware.Options{Policy: p}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "X-A")
		fmt.Fprint(w, r.Header.Get("X-A"))
	}, func(b *bubble) {
		for range 2 {
			for i := range 10 {
				if a := b.get("X-A", fmt.Sprint(i)); a.body != fmt.Sprint(i) {
					t.Errorf("%d: %q", i, a.body)
				}
			}
		}
		b.wantRuns(10 + 7)
	})
}

func TestVaryThatGrowsIsLearnt(t *testing.T) {
	inBubble(t, minute(), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "X-A")
		if r.Header.Get("X-A") == "2" {
			w.Header().Add("Vary", "X-B")
		}
		fmt.Fprint(w, r.Header.Get("X-A"), r.Header.Get("X-B"))
	}, func(b *bubble) {
		b.get("X-A", "1")
		for range 3 {
			for _, x := range []string{"p", "q"} {
				if a := b.get("X-A", "2", "X-B", x); a.body != "2"+x {
					t.Errorf("%q for %s", a.body, x)
				}
				time.Sleep(time.Second)
			}
		}
		b.wantRuns(4)
	})
}

func TestNoCacheIsValidatedAtEachUse(t *testing.T) {
	tag := `"1"`
	var whole atomic.Int64
	inBubble(t, minute(), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-cache")
		w.Header().Set("Etag", tag)
		w.Header().Set("X-Run", "new")
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		whole.Add(1)
		fmt.Fprint(w, "body ", tag)
	}, func(b *bubble) {
		for range 3 {
			if a := b.get(); a.body != `body "1"` || a.StatusCode != http.StatusOK {
				t.Errorf("%d %q", a.StatusCode, a.body)
			}
		}
		if n := whole.Load(); n != 1 {
			t.Errorf("%d whole responses", n)
		}
		if a := b.get("If-None-Match", tag); a.StatusCode != http.StatusNotModified || a.body != "" {
			t.Errorf("%d %q", a.StatusCode, a.body)
		}
		tag = `"2"`
		for range 3 {
			if a := b.get(); a.body != `body "2"` {
				t.Errorf("%q", a.body)
			}
		}
		b.wantRuns(7)
	})
}

func TestHandlerConfirmsWhatIsStale(t *testing.T) {
	inBubble(t, &middleware.Options{Policy: middleware.Policy{StaleFor: -1}}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=10")
		w.Header().Set("Etag", `"a"`)
		if r.Header.Get("If-None-Match") == `"a"` {
			w.Header().Set("X-Again", "yes")
			w.WriteHeader(http.StatusNotModified)
			return
		}
		fmt.Fprint(w, "body")
	}, func(b *bubble) {
		b.get()
		time.Sleep(11 * time.Second)
		for _, want := range []string{"fwd-status=304", "hit"} {
			a := b.get()
			if a.body != "body" || a.StatusCode != http.StatusOK || a.Header.Get("X-Again") != "yes" || !strings.Contains(a.status(), want) {
				t.Errorf("%d %q: %s", a.StatusCode, a.body, a.status())
			}
		}
		b.wantRuns(2)
	})
}

func TestURLThatCanBeSharedAfterAllIsStoredSoon(t *testing.T) {
	private := true
	inBubble(t, &middleware.Options{Policy: middleware.Policy{TTL: time.Minute, PassFor: time.Hour}}, func(w http.ResponseWriter, _ *http.Request) {
		if private {
			w.Header().Set("Cache-Control", "private")
		}
		fmt.Fprint(w, "body")
	}, func(b *bubble) {
		b.get()
		private = false
		b.get() // brings it to light
		b.get() // is stored
		if a := b.get(); !strings.Contains(a.status(), "hit") {
			t.Error(a.status())
		}
		b.wantRuns(3)
	})
}

func TestStreamMayTakeLongerThanALoad(t *testing.T) {
	inBubble(t, &middleware.Options{Guard: stampede.Options{LoadTimeout: time.Second}}, func(w http.ResponseWriter, r *http.Request) {
		for range 10 {
			fmt.Fprint(w, "x")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Second)
			if err := r.Context().Err(); err != nil {
				t.Error(err)
			}
		}
	}, func(b *bubble) {
		if a := b.get(); a.body != "xxxxxxxxxx" {
			t.Errorf("%q", a.body)
		}
	})
}

func TestResponseSentInPartsIsStoredWhereSomebodySaysSo(t *testing.T) {
	for _, c := range []struct {
		policy       middleware.Policy
		cacheControl string
		takes        time.Duration
		hit          bool
	}{
		{middleware.Policy{TTL: time.Minute}, "", 0, false},
		{middleware.Policy{TTL: time.Minute}, "max-age=60", 5 * time.Second, true},
		{middleware.Policy{TTL: time.Minute, Mode: middleware.Override}, "", 300 * time.Millisecond, true},
		{middleware.Policy{TTL: time.Minute, Mode: middleware.Override}, "", 5 * time.Second, false},
	} {
		inBubble(t, &middleware.Options{Policy: c.policy}, func(w http.ResponseWriter, _ *http.Request) {
			if c.cacheControl != "" {
				w.Header().Set("Cache-Control", c.cacheControl)
			}
			for range 2 {
				fmt.Fprint(w, "part")
				_ = http.NewResponseController(w).Flush()
				time.Sleep(c.takes)
			}
		}, func(b *bubble) {
			for _, hit := range []bool{false, c.hit} {
				if a := b.get(); a.body != "partpart" || strings.Contains(a.status(), "hit") != hit {
					t.Errorf("%v %q %v: %q, %s", c.policy.Mode, c.cacheControl, c.takes, a.body, a.status())
				}
				synctest.Wait()
			}
		})
	}
}

func TestClientCertificateCountsAsAuthorization(t *testing.T) {
	for mode, want := range map[middleware.Authorization]string{
		middleware.BypassAuthorization: "authorization", middleware.ExplicitAuthorization: "authorization", middleware.IgnoreAuthorization: "hit",
	} {
		p := middleware.Policy{TTL: time.Minute, Authorization: mode}
		inBubble(t, &middleware.Options{Policy: p}, func(w http.ResponseWriter, r *http.Request) {
			if mode == middleware.IgnoreAuthorization && len(r.TLS.PeerCertificates) > 0 {
				t.Error("the handler sees the certificate")
			}
			fmt.Fprint(w, "body")
		}, func(b *bubble) {
			var last string
			for range 2 {
				r := httptest.NewRequestWithContext(b.t.Context(), http.MethodGet, "https://example.com/", nil)
				r.TLS.PeerCertificates = []*x509.Certificate{{}}
				rec := httptest.NewRecorder()
				b.h.ServeHTTP(rec, r)
				last = rec.Header().Get("Cache-Status")
			}
			if !strings.Contains(last, want) {
				t.Errorf("%d: %s", mode, last)
			}
		})
	}
}

func TestKeysAreBoundedAsHeadersAre(t *testing.T) {
	p := middleware.Policy{TTL: time.Minute, MaxHeader: 1000}
	inBubble(t, &middleware.Options{Policy: p}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Vary", "X-A")
		fmt.Fprint(w, "body")
	}, func(b *bubble) {
		b.get("X-A", "1")
		for range 2 {
			if a := b.get("X-A", strings.Repeat("1", 1000)); !strings.Contains(a.status(), "key-size") {
				t.Error(a.status())
			}
		}
		r := httptest.NewRequestWithContext(b.t.Context(), http.MethodGet, "/?"+strings.Repeat("1", 1000), nil)
		rec := httptest.NewRecorder()
		b.h.ServeHTTP(rec, r)
		if got := rec.Header().Get("Cache-Status"); !strings.Contains(got, "key-size") {
			t.Error(got)
		}
	})
}

func TestLongResponseIsAsOldAsItsDateSays(t *testing.T) {
	for _, c := range []struct {
		flush bool
		age   string
	}{{false, "0"}, {true, "5"}} {
		inBubble(t, nil, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Cache-Control", "max-age=10")
			fmt.Fprint(w, "slow")
			if c.flush {
				_ = http.NewResponseController(w).Flush()
			}
			time.Sleep(5 * time.Second)
		}, func(b *bubble) {
			first := b.get()
			synctest.Wait()
			second := b.get()
			if got := second.Header.Get("Age"); got != c.age {
				t.Errorf("flush %v: age %s, want %s", c.flush, got, c.age)
			}
			if a, z := first.Header.Get("Date"), second.Header.Get("Date"); a != z || a == "" {
				t.Errorf("flush %v: dates %s and %s", c.flush, a, z)
			}
		})
	}
}

func TestHandlerThatHangsIsGivenUp(t *testing.T) {
	inBubble(t, &middleware.Options{Policy: middleware.Policy{TTL: time.Minute}, Guard: stampede.Options{LoadTimeout: time.Second}},
		func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			if !errors.Is(context.Cause(r.Context()), stampede.ErrLoadTimeout) {
				t.Error(context.Cause(r.Context()))
			}
			fmt.Fprint(w, "too late")
		}, func(b *bubble) {
			if a := b.get(); a.StatusCode != http.StatusGatewayTimeout {
				t.Errorf("%d %q", a.StatusCode, a.body)
			}
			if a := b.get(); strings.Contains(a.status(), "hit") {
				t.Error(a.status())
			}
		})
}
