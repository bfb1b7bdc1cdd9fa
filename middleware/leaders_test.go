package middleware_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/middleware"
	"github.com/herdgate/herdgate/stampede"
)

func minutes() middleware.Options {
	return middleware.Options{Policy: middleware.Policy{TTL: time.Minute}}
}

// The tests of this file are about the request that the handler runs for, the leader: it is answered, and left
// alone once its client has gone, whatever becomes of the load.

// The lease goes to another pod while the handler runs, which does not look at its ctx. Its answer is of no use
// to the load any more, but to the request that it ran for.
func TestLeaderWhoseLeaseIsLostGetsWhatIsForItAlone(t *testing.T) {
	large := strings.Repeat("0123456789abcdef", 1<<10)
	for name, c := range map[string]struct {
		cacheControl string
		answer       func(w http.ResponseWriter)
		want         string
	}{
		"private":          {"private", func(w http.ResponseWriter) { fmt.Fprint(w, "mine") }, "mine"},
		"large":            {"max-age=60", func(w http.ResponseWriter) { fmt.Fprint(w, large, large) }, large + large},
		"flushed":          {"", func(w http.ResponseWriter) { w.(http.Flusher).Flush(); fmt.Fprint(w, "mine") }, "mine"},
		"storable flushed": {"max-age=60", func(w http.ResponseWriter) { w.(http.Flusher).Flush(); fmt.Fprint(w, "mine") }, "mine"},
		"hints":            {"max-age=60", func(w http.ResponseWriter) { w.WriteHeader(http.StatusEarlyHints); fmt.Fprint(w, "mine") }, "mine"},
	} {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				store := new(stampede.MemoryStore)
				policy := middleware.Policy{TTL: time.Minute, MaxBody: len(large)}
				ours, theirs := make(chan struct{}), make(chan struct{})
				set := under(policy)
				set.store = store
				here := p.open(t, set, func(w http.ResponseWriter, _ *http.Request) {
					<-ours // whatever becomes of its ctx
					if c.cacheControl != "" {
						w.Header().Set("Cache-Control", c.cacheControl)
					}
					c.answer(w)
				})
				there := p.open(t, set, func(w http.ResponseWriter, _ *http.Request) {
					<-theirs
					fmt.Fprint(w, "theirs")
				})
				a := here.same(1, "/")
				if err := there.cache.Purge(t.Context(), "http://site.example/"); err != nil {
					t.Fatal(err)
				}
				b := there.same(1, "/")
				here.sleep(1) // until the renewal that finds it out
				begun := time.Now()
				close(ours)
				a.wait()[0].wants(t, c.want)
				if d := time.Since(begun); d > 0 {
					t.Errorf("it took %v", d)
				}
				here.ran(1)
				close(theirs)
				b.wait()[0].wants(t, "theirs")
			})
		})
	}
}

// The lease is lost, and what another pod has stored meanwhile leads the leader on to a variant, and so to
// another run. The first one is nobody's then, and ends when it notices.
func TestRunThatItsLeaderLeavesForAVariantEnds(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		store := new(stampede.MemoryStore)
		set := under(middleware.Policy{TTL: time.Minute})
		set.store = store
		first := make(chan struct{})
		here := p.open(t, set, func(w http.ResponseWriter, r *http.Request) {
			if run(r) == 1 {
				<-first
				w.Header().Set("Cache-Control", "private")
				fmt.Fprint(w, "mine")
				return
			}
			w.Header().Set("Vary", "X-Lang")
			fmt.Fprint(w, "here "+r.Header.Get("X-Lang"))
		})
		there := p.open(t, set, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Vary", "X-Lang")
			fmt.Fprint(w, "there "+r.Header.Get("X-Lang"))
		})
		c := here.same(1, "/", "X-Lang", "fr")
		if err := there.cache.Purge(t.Context(), "http://site.example/"); err != nil {
			t.Fatal(err)
		}
		there.get("/", "X-Lang", "de").wants(t, "there de")
		here.sleep(1) // until the renewal that finds the lease gone
		c.wait()[0].wants(t, "here fr")
		here.running(1)
		close(first)
		here.running(0)
	})
}

// What a handler wants done to its connection may be a lot while the leader is busy. The header is not lost
// among it, and of deadlines the last one counts.
func TestHeaderIsSentHoweverMuchIsAskedOfABusyLeader(t *testing.T) {
	for name, ask := range map[string]func(w http.ResponseWriter, i int){
		"write deadlines": func(w http.ResponseWriter, i int) {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Duration(i) * time.Second))
		},
		"read deadlines": func(w http.ResponseWriter, i int) {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Duration(i) * time.Second))
		},
		"hints": func(w http.ResponseWriter, _ int) { w.WriteHeader(http.StatusEarlyHints) },
	} {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				busy := &busyWriter{idle: make(chan struct{})}
				set := setting{outer: func(next http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						busy.ResponseWriter = w
						next.ServeHTTP(busy, r)
					})
				}}
				s := p.open(t, set, func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(http.StatusEarlyHints)
					for i := range 600 {
						ask(w, 1+i)
					}
					w.Header().Set("Cache-Control", "max-age=60")
					fmt.Fprint(w, "body")
					w.(http.Flusher).Flush()
					close(busy.idle)
				})
				begun := time.Now()
				r := s.request("/")
				s.do(r).wants(t, "body")
				if name == "write deadlines" && busy.deadline.Sub(begun) != 600*time.Second {
					t.Errorf("the write deadline is in %v, not that which was set last", busy.deadline.Sub(begun))
				}
			})
		})
	}
}

// busyWriter takes its time for informational responses.
type busyWriter struct {
	http.ResponseWriter
	idle     chan struct{}
	deadline time.Time
}

func (w *busyWriter) WriteHeader(status int) {
	if status < 200 {
		<-w.idle
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *busyWriter) SetWriteDeadline(at time.Time) error {
	w.deadline = at
	return http.NewResponseController(w.ResponseWriter).SetWriteDeadline(at)
}

func (w *busyWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Over HTTP/2, WriteHeader of an informational status returns as soon as the client has left, and net/http may
// go through the header after that. Whoever changes it then ends the process.
func TestHeaderOfAClientThatLeftAtHintsIsLeftAlone(t *testing.T) {
	hints := func(w http.ResponseWriter, link string) {
		w.Header().Set("Link", link)
		w.WriteHeader(http.StatusEarlyHints)
	}
	for name, h := range map[string]http.HandlerFunc{
		"then answers": func(w http.ResponseWriter, _ *http.Request) {
			hints(w, "</a.css>")
			time.Sleep(time.Second)
			fmt.Fprint(w, "body")
		},
		"then answers at once": func(w http.ResponseWriter, _ *http.Request) {
			hints(w, "</a.css>")
			fmt.Fprint(w, "body")
		},
		"more hints": func(w http.ResponseWriter, _ *http.Request) {
			hints(w, "</a.css>")
			hints(w, "</b.css>")
			fmt.Fprint(w, "body")
		},
		"private": func(w http.ResponseWriter, _ *http.Request) {
			hints(w, "</a.css>")
			w.Header().Set("Cache-Control", "private")
			fmt.Fprint(w, "body")
		},
		"flushed": func(w http.ResponseWriter, _ *http.Request) {
			hints(w, "</a.css>")
			w.(http.Flusher).Flush()
			fmt.Fprint(w, "body")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := minutes()
				cache := newCache(t, new(stampede.MemoryStore), &o)
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://site.example/", nil)
				if err != nil {
					t.Fatal(err)
				}
				w := &leavesAtHints{header: make(http.Header), leave: leave}
				cache.Handler(h).ServeHTTP(w, r)
				w.wantsLeftAlone(t)
				time.Sleep(2 * time.Second)
			})
		})
	}
}

// What has to be confirmed at each use, the handler is asked for with the client's own connection.
func TestHeaderOfAClientThatLeftWhileTheCacheAskedIsLeftAlone(t *testing.T) {
	for name, status := range map[string]int{"confirmed": http.StatusNotModified, "changed": http.StatusOK, "failed": http.StatusInternalServerError} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := minutes()
				cache := newCache(t, new(stampede.MemoryStore), &o)
				h := cache.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Cache-Control", "no-cache")
					w.Header().Set("Etag", `"1"`)
					if r.Header.Get("If-None-Match") == "" {
						fmt.Fprint(w, "body")
						return
					}
					w.WriteHeader(http.StatusEarlyHints)
					w.WriteHeader(status)
				}))
				for range 2 {
					ctx, leave := context.WithCancel(t.Context())
					r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://site.example/", nil)
					if err != nil {
						t.Fatal(err)
					}
					w := &leavesAtHints{header: make(http.Header), leave: leave}
					h.ServeHTTP(w, r)
					if ctx.Err() != nil {
						w.wantsLeftAlone(t)
						return
					}
					leave()
				}
				t.Error("the cache has not asked the handler")
			})
		})
	}
}

// leavesAtHints is the connection of a client that leaves when it is sent an informational response.
type leavesAtHints struct {
	header http.Header
	leave  func()
	seen   string
}

func (w *leavesAtHints) Header() http.Header         { return w.header }
func (w *leavesAtHints) Write(p []byte) (int, error) { return len(p), nil }
func (w *leavesAtHints) Flush()                      {}
func (w *leavesAtHints) WriteHeader(status int) {
	if w.seen == "" && status == http.StatusEarlyHints {
		w.leave()
		w.seen = fmt.Sprint(w.header)
	}
}

func (w *leavesAtHints) wantsLeftAlone(t *testing.T) {
	t.Helper()
	if got := fmt.Sprint(w.header); got != w.seen {
		t.Errorf("when the client had left, the header was %s; now it is %s", w.seen, got)
	}
}

// However a handler copies its source, it learns while it waits for that source that its client has left.
func TestHandlerThatCopiesLearnsThatItsClientHasLeft(t *testing.T) {
	for name, writer := range map[string]func(http.ResponseWriter) io.Writer{
		"to the response":    func(w http.ResponseWriter) io.Writer { return w },
		"to a writer around": func(w http.ResponseWriter) io.Writer { return struct{ io.Writer }{w} },
	} {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				s := p.open(t, setting{}, func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Cache-Control", "no-store")
					w.WriteHeader(http.StatusOK)
					w.(http.Flusher).Flush()
					_, _ = io.Copy(writer(w), silent{r.Context()})
				})
				ctx, leave := context.WithCancel(t.Context())
				s.stream(s.request("/").WithContext(ctx))
				s.running(1)
				leave()
				s.running(0)
			})
		})
	}
}

// silent is a source that brings nothing until a ctx ends.
type silent struct{ ctx context.Context }

func (s silent) Read([]byte) (int, error) {
	select {
	case <-s.ctx.Done():
		return 0, s.ctx.Err()
	case <-time.After(time.Minute):
		return 0, io.EOF
	}
}

// The cache has asked, not the client: that gets what is confirmed, whatever trailers the confirmation has.
func TestConfirmationWithTrailersIsNoAnswer(t *testing.T) {
	for name, confirm := range map[string]func(w http.ResponseWriter){
		"late": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusNotModified)
			w.Header().Set(http.TrailerPrefix+"X-Took", "1")
		},
		"early": func(w http.ResponseWriter) {
			w.Header().Set(http.TrailerPrefix+"X-Took", "1")
			w.WriteHeader(http.StatusNotModified)
		},
		"announced": func(w http.ResponseWriter) {
			w.Header().Set("Trailer", "X-Took")
			w.WriteHeader(http.StatusNotModified)
			w.Header().Set("X-Took", "1")
		},
	} {
		for _, cacheControl := range []string{"max-age=1", "no-cache"} {
			t.Run(name+" "+cacheControl, func(t *testing.T) {
				protocols(t, func(t *testing.T, p protocol) {
					s := p.open(t, under(middleware.Policy{StaleFor: -1}), func(w http.ResponseWriter, r *http.Request) {
						w.Header().Set("Cache-Control", cacheControl)
						w.Header().Set("Etag", `"1"`)
						if r.Header.Get("If-None-Match") != "" {
							confirm(w)
							return
						}
						fmt.Fprint(w, "good")
					})
					s.get("/").wants(t, "good")
					s.sleep(2)
					a := s.get("/")
					a.wants(t, "good")
					if len(a.header["Trailer"]) > 0 {
						t.Errorf("trailers are announced: %v", a)
					}
					if cacheControl != "no-cache" {
						s.get("/").wants(t, "good")
						s.ran(2)
					}
				})
			})
		}
	}
}

// beforeTheAnswer is what a handler may have for its client before it answers.
var beforeTheAnswer = map[string]func(http.ResponseWriter){
	"hints": func(w http.ResponseWriter) { w.WriteHeader(http.StatusEarlyHints) },
	"deadline": func(w http.ResponseWriter) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Hour))
	},
}

// What a handler that then fails had for its client before it answered, hints and deadlines, is no answer yet:
// what is stale stands in for the failure all the same, as long as it may.
func TestStaleAnswerStandsInForAFailureAfterHints(t *testing.T) {
	fails := map[string]func(http.ResponseWriter, *http.Request){
		"status": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"panic":  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"short": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			w.WriteHeader(http.StatusOK)
		},
	}
	for first, begin := range beforeTheAnswer {
		for name, fail := range fails {
			for _, backoff := range []time.Duration{0, -1} {
				t.Run(fmt.Sprint(first, " ", name, " ", backoff), func(t *testing.T) {
					protocols(t, func(t *testing.T, p protocol) {
						set := under(middleware.Policy{TTL: time.Second, StaleFor: -1, StaleIfError: time.Minute})
						set.opts.Guard.Policy.ErrorBackoff = backoff
						s := p.open(t, set, func(w http.ResponseWriter, r *http.Request) {
							w.Header().Set("Etag", `"1"`) // kept for ten minutes
							begin(w)
							if run(r) > 1 {
								fail(w, r)
								return
							}
							fmt.Fprint(w, "good")
						})
						s.get("/").wants(t, "good")
						s.sleep(2)
						a := s.get("/")
						a.wants(t, "good")
						if status := a.header.Get("Cache-Status"); !strings.Contains(status, "stale") {
							t.Errorf("Cache-Status: %s", status)
						}
						s.ran(2)
						s.sleep(100)
						if a := s.do(s.request("/")); a.err == nil && a.status == http.StatusOK {
							t.Errorf("what may not serve any more has: %v", a)
						}
					})
				})
			}
		}
	}
}

// What is kept only to be confirmed (KeepFor) is no answer. So who has no time to wait (SoftTimeout), or no room
// (MaxWaiters), or comes when the handler has just failed, is treated as if it was not there: and not by a run of
// the handler for each.
func TestResponseKeptForConfirmationIsNoAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		guard   stampede.Options
		fails   bool
		ok      int // that many requests of fifty are answered with a 200
		refused int // and so many with a 503
		runs    int
	}{
		"SoftTimeout":  {guard: stampede.Options{SoftTimeout: 100 * time.Millisecond}, ok: 50, runs: 2},
		"MaxWaiters":   {guard: stampede.Options{MaxWaiters: 10}, ok: 10, refused: 40, runs: 2},
		"ErrorBackoff": {fails: true, ok: 50, runs: 3},
	} {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				set := under(middleware.Policy{TTL: time.Second, StaleFor: -1, StaleIfError: time.Second})
				set.opts.Guard = c.guard
				s := p.open(t, set, func(w http.ResponseWriter, r *http.Request) {
					n := run(r)
					if n == 2 && c.fails {
						w.WriteHeader(http.StatusInternalServerError)
						return
					}
					if n > 1 {
						time.Sleep(time.Second)
					}
					w.Header().Set("Etag", fmt.Sprintf(`"%d"`, n))
					fmt.Fprint(w, n)
				})
				s.get("/").wants(t, "1")
				s.sleep(3)
				if c.fails {
					if a := s.get("/"); a.status != http.StatusInternalServerError {
						t.Errorf("got %v", a)
					}
				}
				ok, refused := 0, 0
				for _, a := range s.same(50, "/").wait() {
					switch a.status {
					case http.StatusOK:
						ok++
					case http.StatusServiceUnavailable:
						refused++
					}
				}
				if ok != c.ok || refused != c.refused {
					t.Errorf("%d answers and %d refusals, want %d and %d", ok, refused, c.ok, c.refused)
				}
				s.ran(c.runs)
			})
		})
	}
}

// A handler that had hints or a deadline for its client, and then does not answer, has as much time for it as any
// other, whether it looks at its ctx or not.
func TestHandlerThatHangsAfterHintsIsNotWaitedFor(t *testing.T) {
	for first, begin := range beforeTheAnswer {
		for _, heeds := range []bool{true, false} {
			for _, stale := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, heeds its ctx %v, stale %v", first, heeds, stale), func(t *testing.T) {
					protocols(t, func(t *testing.T, p protocol) {
						set := under(middleware.Policy{TTL: time.Second, StaleFor: -1, StaleIfError: time.Hour})
						set.opts.Guard.LoadTimeout = 5 * time.Second
						end := make(chan struct{})
						s := p.open(t, set, func(w http.ResponseWriter, r *http.Request) {
							if stale && run(r) == 1 {
								fmt.Fprint(w, "good")
								return
							}
							begin(w)
							if heeds {
								<-r.Context().Done()
								return
							}
							<-end
							fmt.Fprint(w, "too late")
						})
						if stale {
							s.get("/").wants(t, "good")
							s.sleep(2)
						}
						begun := time.Now()
						a := s.do(s.request("/"))
						if d := time.Since(begun); d < 5*time.Second || d > 5100*time.Millisecond {
							t.Errorf("it took %v", d)
						}
						if stale {
							a.wants(t, "good")
						} else if a.status != http.StatusGatewayTimeout {
							t.Errorf("got %v", a)
						}
						close(end)
					})
				})
			}
		}
	}
}
