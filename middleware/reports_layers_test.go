package middleware_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/middleware"
)

// go-chi/stampede#15 at its root: what is stored, and what the layers outside work on, was one and the same.
// A layer may change headers in place or add to them, on every answer, and finds them the next time as the
// handler has set them.
func TestLayersOutsideDoNotChangeWhatIsStored(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		layer := func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Frame-Options", "DENY")
				next.ServeHTTP(&addsHeaders{w, false}, r)
			})
		}
		gate := make(chan struct{})
		s := p.open(t, setting{outer: layer}, gated(gate, "X-A", "1", "X-A", "2", "Vary", "X-B"))
		c := s.same(30, "/")
		close(gate)
		for _, a := range append(c.wait(), s.same(30, "/").wait()...) {
			if got := fmt.Sprint(a.header["X-A"], a.header["Vary"], a.header["X-Frame-Options"]); got != "[changed 2 added] [X-B Origin] [DENY]" {
				t.Errorf("got %s", got)
			}
		}
		s.ran(1)
	})
}

type addsHeaders struct {
	http.ResponseWriter
	done bool
}

func (w *addsHeaders) WriteHeader(status int) {
	if !w.done {
		w.done = true
		h := w.Header()
		h["X-A"][0] = "changed"
		h["X-A"] = append(h["X-A"], "added")
		h.Add("Vary", "Origin")
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *addsHeaders) Write(b []byte) (int, error) {
	if !w.done {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(b)
}

// gin-contrib/cache#71 for headers: what a handler does to its header values after it has sent them changes
// nothing of what was sent, and nothing of what is stored.
func TestHandlerThatChangesItsHeadersLateChangesNothing(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		values := []string{"1", "2"}
		s := p.open(t, setting{}, func(w http.ResponseWriter, r *http.Request) {
			w.Header()["X-A"] = values
			numbered()(w, r)
			values[0] = "late"
			w.Header().Set("X-B", "late")
			w.Header().Del("Cache-Control")
		})
		for range 3 {
			a := s.get("/")
			a.wants(t, "answer 1")
			if got := fmt.Sprint(a.header["X-A"], a.header["X-B"]); got != "[1 2] []" {
				t.Errorf("got %s", got)
			}
			values[1] = "later"
		}
		s.ran(1)
	})
}

// A layer outside that gives up on a slow answer gives up for its own request. The run goes on and is stored.
func TestTimeoutOutsideIsTheLeadersAlone(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		outer := func(next http.Handler) http.Handler { return http.TimeoutHandler(next, time.Second, "too slow") }
		s := p.open(t, setting{outer: outer}, func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-time.After(2 * time.Second):
				numbered()(w, r)
			case <-r.Context().Done():
				http.Error(w, "given up", http.StatusServiceUnavailable)
			}
		})
		early := s.same(5, "/")
		s.sleep(0.5) // now they are within a second of each other's end, and these are not
		s.sleep(1)
		for _, a := range early.wait() {
			if a.status != http.StatusServiceUnavailable || a.body != "too slow" {
				t.Errorf("got %v", a)
			}
		}
		s.sleep(1)
		s.get("/").wants(t, "answer 1")
		s.ran(1)
	})
}

// A layer inside that gives up answers with a failure, which is not stored.
func TestTimeoutInsideIsNotStored(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		inner := func(next http.Handler) http.Handler { return http.TimeoutHandler(next, time.Second, "too slow") }
		first := true
		s := p.open(t, setting{inner: inner, opts: middleware.Options{Policy: middleware.Policy{TTL: time.Minute}}},
			func(w http.ResponseWriter, r *http.Request) {
				if first {
					first = false
					<-r.Context().Done()
					return
				}
				numbered()(w, r)
			})
		if a := s.get("/"); a.status != http.StatusServiceUnavailable {
			t.Errorf("got %v", a)
		}
		for range 2 {
			s.get("/").wants(t, "answer 1")
		}
	})
}

// A request with a body is the handler's alone ("fat GET": the body is no part of any key).
func TestRequestsWithABodyShareNothing(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		s := p.open(t, setting{}, fresh(func(r *http.Request) string {
			body, _ := io.ReadAll(r.Body)
			return "body " + string(body)
		}))
		for _, known := range []bool{true, false} { // with a length, and in chunks
			ask := func(body string) *http.Request {
				r := s.request("/")
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
				if !known {
					r.ContentLength = -1
				}
				return r
			}
			for _, body := range []string{"evil", "other", "evil"} {
				s.do(ask(body)).wants(t, "body "+body)
			}
			c := s.crowd(10, func(i int) *http.Request { return ask(fmt.Sprint(i)) })
			for i, a := range c.wait() {
				a.wants(t, fmt.Sprint("body ", i))
			}
			s.get("/").wants(t, "body ")
		}
	})
}

// With a policy that goes by the handler's word about Authorization, nobody gets what it does not allow: in a
// crowd no more than one after the other.
func TestAuthorizationIsSharedOnlyByTheHandlersWord(t *testing.T) {
	for cc, shared := range map[string]bool{
		"max-age=60":                       false,
		"max-age=60, private":              false,
		"public, no-store":                 false,
		"public, max-age=60":               true,
		"max-age=60, must-revalidate":      true,
		"s-maxage=60":                      true,
		`max-age=60, ext="public"`:         false,
		"max-age=60, publicly, s-maxage=x": false,
	} {
		t.Run(cc, func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				gate := make(chan struct{})
				s := p.open(t, under(middleware.Policy{Authorization: middleware.ExplicitAuthorization}), func(w http.ResponseWriter, r *http.Request) {
					<-gate
					who("Cache-Control", cc)(w, r)
				})
				c := s.crowd(20, func(i int) *http.Request {
					if i%2 == 0 {
						return s.request("/")
					}
					return s.request("/", "Authorization", fmt.Sprint(i))
				})
				close(gate)
				for i, a := range c.wait() {
					switch {
					case i%2 == 0:
						a.wants(t, "for ")
					case !shared:
						a.wants(t, fmt.Sprint("for ", i))
					case a.body == "for ":
						t.Errorf("request %d with Authorization got the answer to one without", i)
					}
				}
				for _, name := range []string{"x", "y"} {
					if a := s.get("/", "Authorization", name); !shared {
						a.wants(t, "for "+name)
					}
				}
				s.get("/").wants(t, "for ")
			})
		})
	}
}

// The run behind a stale hit is a whole, unconditional one, whatever the request that caused it asked for.
func TestRefreshIsOfTheWholeAnswer(t *testing.T) {
	for name, fields := range map[string][]string{
		"a condition that holds": {"If-None-Match", `"v0"`},
		"any condition":          {"If-None-Match", "*"},
		"a time":                 {"If-Modified-Since", "Sat, 01 Jan 2050 00:00:00 GMT"},
		"a part":                 {"Range", "bytes=0-3"},
		"a part, if":             {"Range", "bytes=0-3", "If-Range", `"v0"`},
	} {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				s := p.open(t, setting{}, func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Cache-Control", "max-age=10, stale-while-revalidate=60")
					w.Header().Set("Etag", fmt.Sprintf(`"v%d"`, run(r)))
					http.ServeContent(w, r, "a.txt", time.Time{}, strings.NewReader(page))
				})
				for range 3 {
					s.do(s.request("/", fields...))
					s.sleep(1)
					s.get("/").wants(t, page)
					s.sleep(11)
				}
			})
		})
	}
}

// A response varies with something that clients choose freely. The number of variants is bounded, and every
// one of them is right all the same.
func TestVariantsBeyondTheBoundAreRight(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		s := p.open(t, under(middleware.Policy{MaxVariants: 4}), varying("X-A", func(r *http.Request) string { return "for " + r.Header.Get("X-A") }))
		for range 2 {
			for i := range 50 {
				s.get("/", "X-A", fmt.Sprint(i)).wants(t, fmt.Sprint("for ", i))
			}
		}
		if n := s.source.total(); n < 50+40 {
			t.Errorf("%d runs: more than 4 variants were kept", n)
		}
		c := s.crowd(40, func(i int) *http.Request { return s.request("/", "X-A", fmt.Sprint("new", i%10)) })
		for i, a := range c.wait() {
			a.wants(t, fmt.Sprint("for new", i%10))
		}
	})
}

// A client that is gone while it is answered from the store does not hurt the entry.
func TestClientThatBreaksOffAHitHurtsNobody(t *testing.T) {
	large := strings.Repeat(page, 1000)
	synctest.Test(t, func(t *testing.T) {
		s := http1.open(t, setting{}, fresh(func(*http.Request) string { return large }))
		s.get("/").wants(t, large)
		for range 3 {
			res := s.stream(s.request("/"))
			if _, err := io.ReadFull(bufio.NewReader(res.Body), make([]byte, 100)); err != nil && !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
			_ = res.Body.Close()
			s.get("/").wants(t, large)
		}
		s.ran(1)
	})
}

// A client that does not read, or goes in the middle, is its own trouble, whether it runs the handler or is
// answered from the store.
func TestClientThatDoesNotReadKeepsNobodyWaiting(t *testing.T) {
	large := strings.Repeat(page, 1000)
	for name, flush := range map[string]bool{"written": false, "flushed": true} {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				s := p.open(t, setting{}, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Cache-Control", "max-age=60")
					for part := range 10 {
						_, _ = io.WriteString(w, large[part*len(large)/10:(part+1)*len(large)/10])
						if flush {
							w.(http.Flusher).Flush()
						}
					}
				})
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				for range 3 { // the one that runs the handler, and two that are answered from the store
					begun := time.Now()
					first := make(chan struct{})
					go func() {
						defer close(first)
						if res, err := s.client.Do(s.request("/").WithContext(ctx)); err == nil {
							t.Cleanup(func() { _ = res.Body.Close() }) // and it reads nothing
						}
					}()
					synctest.Wait()
					limited, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					a := s.do(s.request("/").WithContext(limited))
					cancel()
					if a.wants(t, large); time.Since(begun) > time.Second {
						t.Errorf("the others waited for %v", time.Since(begun))
					}
				}
				leave()
				s.get("/").wants(t, large)
			})
		})
	}
}
