package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// gofiber/fiber#2182: 20 requests that missed at the same moment were 20 runs; kwhitley/apicache#33: 1000 at
// each expiry were 1000. One run, and everybody gets its answer.
func TestCrowdCostsOneRun(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		gate := make(chan struct{})
		s := p.open(t, setting{}, gated(gate))
		c := s.same(20, "/")
		s.running(1)
		close(gate)
		for _, a := range c.wait() {
			a.wants(t, "answer 1")
		}
		s.ran(1)
		s.sleep(61) // past its freshness, and there is no window
		for _, a := range s.same(1000, "/").wait() {
			a.wants(t, "answer 2")
		}
		s.ran(2)
	})
}

// gin-contrib/cache#35, #15, #61, #71: the stored status was always 200, the bodies of a crowd ran into one
// another, and what was stored was the handler's own buffer. Whatever the status, and however the body was
// written, everybody gets exactly that.
func TestCrowdGetsTheExactStatusAndBytes(t *testing.T) {
	for _, status := range []int{200, 203, 204, 301, 308, 404, 410, 418, 451, 500, 503, 599} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				gate := make(chan struct{})
				s := p.open(t, setting{}, func(w http.ResponseWriter, _ *http.Request) {
					<-gate
					w.Header().Set("Cache-Control", "max-age=60")
					w.WriteHeader(status)
					buf := make([]byte, 3)
					for _, c := range "{}\n" {
						copy(buf, strings.Repeat(string(c), 3))
						_, _ = w.Write(buf)
					}
					copy(buf, "???")
				})
				want := "{{{}}}\n\n\n"
				if status == http.StatusNoContent {
					want = ""
				}
				c := s.same(50, "/")
				close(gate)
				for _, a := range append(c.wait(), s.get("/"), s.get("/")) {
					if a.err != nil || a.status != status || a.body != want {
						t.Errorf("got %v", a)
					}
				}
				if status < 500 {
					s.ran(1)
				}
			})
		})
	}
}

// bucketeer-io/bucketeer#2552, authzed/spicedb#925, tailscale/tailscale#18919: the run had the ctx of whoever
// came first, and his leaving was everybody's failure. The run goes on, and the next caller notices nothing.
func TestLeaderWhoLeavesTakesNobodyAlong(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		gate := make(chan struct{})
		s := p.open(t, setting{}, func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-gate:
				numbered()(w, r)
			case <-r.Context().Done():
				http.Error(w, "given up", http.StatusServiceUnavailable)
			}
		})
		ctx, leave := context.WithCancel(t.Context())
		c := s.crowd(20, func(i int) *http.Request {
			r := s.request("/")
			if i == 0 {
				return r.WithContext(ctx)
			}
			return r
		})
		leave()
		s.running(1)
		close(gate)
		for i, a := range c.wait() {
			switch {
			case i > 0:
				a.wants(t, "answer 1")
			case !errors.Is(a.err, context.Canceled):
				t.Errorf("who left got %v", a)
			}
		}
		s.get("/").wants(t, "answer 1")
		s.ran(1)
	})
}

// Each waiter is its own: one that leaves leaves alone, at once, and the others get their answer.
func TestWaiterWhoLeavesLeavesAlone(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		gate := make(chan struct{})
		s := p.open(t, setting{}, gated(gate))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		var left atomic.Int64
		c := s.crowd(21, func(i int) *http.Request {
			r := s.request("/")
			if i%2 == 1 {
				r = r.WithContext(ctx)
				context.AfterFunc(ctx, func() { left.Store(int64(time.Since(begun))) })
			}
			return r
		})
		s.sleep(2)
		s.running(1)
		close(gate)
		for i, a := range c.wait() {
			switch {
			case i%2 == 0:
				a.wants(t, "answer 1")
			case !errors.Is(a.err, context.DeadlineExceeded):
				t.Errorf("who left got %v", a)
			}
		}
		if got := time.Duration(left.Load()); got != time.Second {
			t.Errorf("left after %v", got)
		}
		s.ran(1)
	})
}

// dotnet/aspnetcore#66877, #56427, PR #68683: an aborted run left half a body in the store, without anything
// that told it from a whole one, and the crowd got it. Whatever ends a run too early, nothing of it is stored
// or shared: the crowd runs for itself, once.
func TestBrokenRunsAreNeitherStoredNorShared(t *testing.T) {
	for name, breaks := range map[string]func(w http.ResponseWriter){
		"aborts before anything": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"aborts in mid-body": func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, "half")
			panic(http.ErrAbortHandler)
		},
		"panics before anything": func(http.ResponseWriter) { panic("oops") },
		"panics in mid-body": func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, "half")
			panic(errors.New("oops"))
		},
		"ends its goroutine": func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, "half")
			runtime.Goexit()
		},
		"writes less than it said": func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "half")
		},
		"writes more than it said": func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "2")
			_, _ = io.WriteString(w, "half")
		},
	} {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				gate := make(chan struct{})
				s := p.open(t, setting{}, func(w http.ResponseWriter, r *http.Request) {
					first := run(r) == 1
					w.Header().Set("Cache-Control", "max-age=60")
					if first {
						<-gate
						breaks(w)
						return
					}
					_, _ = io.WriteString(w, "whole")
				})
				c := s.same(10, "/")
				s.running(1)
				close(gate)
				for i, a := range c.wait() {
					if i > 0 {
						a.wants(t, "whole")
					} else if a.err == nil && a.status == http.StatusOK && a.body != "ha" {
						t.Errorf("whose run broke got %v", a)
					}
				}
				s.get("/").wants(t, "whole")
			})
		})
	}
}

// Where everybody's run breaks, everybody is told so; the crowd does not try for ever, and nobody hangs.
func TestCrowdWhoseRunsAllBreakIsTold(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		s := p.open(t, setting{}, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		for i, a := range s.same(10, "/").wait() {
			if a.err == nil && a.status < 500 {
				t.Errorf("request %d got %v", i, a)
			}
		}
		if n := s.source.total(); n > 20 {
			t.Errorf("%d runs for 10 requests", n)
		}
	})
}

// A failure is not an answer for others. Each of the crowd tries for itself, all at once.
func TestFailuresAreNotShared(t *testing.T) {
	for _, status := range []int{400, 429, 500, 502, 503, 504} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				first := make(chan struct{})
				s := p.open(t, setting{}, func(w http.ResponseWriter, r *http.Request) {
					n := run(r)
					if n == 1 {
						<-first
					}
					w.WriteHeader(status)
					fmt.Fprint(w, "failure ", n)
				})
				c := s.same(10, "/")
				close(first)
				distinct(t, c.wait())
				s.get("/")
				s.ran(11)
			})
		})
	}
}

// vercel/next.js#98446: every stale hit began a refresh of its own. 100 at once, and 100 more while the
// refresh runs, are one run; nobody waits for it.
func TestStaleHitsCostOneRefresh(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		gate := make(chan struct{})
		s := p.open(t, setting{}, func(w http.ResponseWriter, r *http.Request) {
			n := run(r)
			if n > 1 {
				<-gate
			}
			w.Header().Set("Cache-Control", "max-age=10, stale-while-revalidate=60")
			fmt.Fprint(w, "answer ", n)
		})
		s.get("/")
		s.sleep(11)
		for range 2 {
			for _, a := range s.same(100, "/").wait() {
				a.wants(t, "answer 1")
			}
			s.running(1)
			s.sleep(5)
		}
		close(gate)
		s.running(0)
		for _, a := range s.same(100, "/").wait() {
			a.wants(t, "answer 2")
		}
		s.ran(2)
	})
}

// The crowd of another pod waits for the same run.
func TestCrowdInTwoPodsCostsOneRun(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		store := new(stampede.MemoryStore)
		gate := make(chan struct{})
		h := gated(gate)
		here, there := p.open(t, setting{store: store}, h), p.open(t, setting{store: store}, h)
		a, b := here.same(10, "/"), there.same(10, "/")
		here.running(1)
		there.running(0)
		close(gate)
		for _, a := range append(a.wait(), b.wait()...) {
			a.wants(t, "answer 1")
		}
		here.ran(1)
		there.ran(0)
	})
}

// Nobody waits for an answer that he cannot have, in another pod no more than in this one.
func TestCrowdInAnotherPodIsLetGoToo(t *testing.T) {
	for name, header := range map[string][]string{"private": {"Cache-Control", "private"}, "a cookie": {"Set-Cookie", "a=b"}} {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				store := new(stampede.MemoryStore)
				first, others := make(chan struct{}), make(chan struct{})
				h := numbered(header...)
				here := p.open(t, setting{store: store}, func(w http.ResponseWriter, r *http.Request) { <-first; h(w, r) })
				there := p.open(t, setting{store: store}, func(w http.ResponseWriter, r *http.Request) { <-others; h(w, r) })
				a := here.same(1, "/")
				b := there.same(10, "/")
				there.running(0)
				close(first)
				replies := a.wait()
				s := there
				s.sleep(1)
				s.running(10)
				close(others)
				distinct(t, append(replies, b.wait()...))
			})
		})
	}
}

// What could not be shared is not waited for again: while that is remembered, requests run beside each other.
// An answer that can be stored ends it: the next one is stored.
func TestUnshareableURLIsRemembered(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		store := new(stampede.MemoryStore)
		var private atomic.Bool
		private.Store(true)
		gate := make(chan struct{})
		h := func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "max-age=60")
			if private.Load() {
				w.Header().Set("Cache-Control", "private")
			}
			if r.Header.Get("X-Wait") != "" {
				<-gate
			}
			_, _ = io.WriteString(w, r.Header.Get("X-Wait"))
		}
		s, other := p.open(t, setting{store: store}, h), p.open(t, setting{store: store}, h)
		s.get("/")
		for _, s := range []*scene{s, other} {
			s.sleep(4)
			c := s.crowd(10, func(i int) *http.Request { return s.request("/", "X-Wait", fmt.Sprint(i)) })
			s.running(10)
			close(gate)
			for i, a := range c.wait() {
				a.wants(t, fmt.Sprint(i))
			}
			gate = make(chan struct{})
		}
		private.Store(false)
		for range 2 {
			s.get("/").wants(t, "")
			synctest.Wait()
		}
		before := s.source.total()
		for range 3 {
			s.get("/").wants(t, "")
		}
		s.ran(before)
	})
}

// A Vary that becomes known during a run: those who waited for it and do not match are let go together, each
// variant is run once and no more, and from then on variants do not wait for each other.
func TestVaryLearntDuringARunPartsTheCrowd(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		gate := make(chan struct{})
		s := p.open(t, setting{}, varying("X-Lang", func(r *http.Request) string {
			<-gate
			return r.Header.Get("X-Lang")
		}))
		lang := func(i int) string { return fmt.Sprint("lang ", i%4) }
		c := s.crowd(40, func(i int) *http.Request { return s.request("/", "X-Lang", lang(i)) })
		close(gate)
		for i, a := range c.wait() {
			a.wants(t, lang(i))
		}
		if n := s.source.total(); n > 40-9 {
			t.Errorf("%d runs: those of the first variant did not share", n)
		}
		for i := range 4 {
			s.get("/", "X-Lang", lang(i)).wants(t, lang(i))
		}
		before := s.source.total()
		gate = make(chan struct{})
		c = s.crowd(40, func(i int) *http.Request { return s.request("/", "X-Lang", "new"+lang(i)) })
		s.running(4)
		close(gate)
		for i, a := range c.wait() {
			a.wants(t, "new"+lang(i))
		}
		s.ran(before + 4)
	})
}

// A method that may change something is never answered by another request's run, nor collapsed with its like.
func TestUnsafeMethodsRunEveryTime(t *testing.T) {
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY", "M-SEARCH", "get"} {
		t.Run(method, func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				gate := make(chan struct{})
				s := p.open(t, setting{}, gated(gate))
				c := s.crowd(10, func(int) *http.Request { return s.method(method, "/") })
				s.running(10)
				close(gate)
				distinct(t, c.wait())
			})
		})
	}
}

// What a run that began before a change has read may be what the change replaced. It is given to nobody who
// asks after the change, and is not stored.
func TestRunFromBeforeAChangeIsNotServedAfterIt(t *testing.T) {
	for name, vary := range map[string]string{"plain": "", "with variants": "X-Lang"} {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				var value atomic.Int64
				var slow atomic.Bool
				gate := make(chan struct{})
				s := p.open(t, setting{}, func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodPost {
						value.Add(1)
						w.WriteHeader(http.StatusNoContent)
						return
					}
					body := fmt.Sprint("value ", value.Load())
					if slow.Load() {
						<-gate
					}
					w.Header().Set("Cache-Control", "max-age=60, stale-while-revalidate=60")
					if vary != "" {
						w.Header().Set("Vary", vary)
						body += r.Header.Get(vary)
					}
					_, _ = io.WriteString(w, body)
				})
				want := func(n int, lang string) string {
					if vary == "" {
						lang = ""
					}
					return fmt.Sprint("value ", n, lang)
				}
				langs := []string{"de", "fr", "it"}
				s.get("/", "X-Lang", "de").wants(t, want(0, "de"))
				slow.Store(true)
				s.sleep(61)
				before := s.crowd(3, func(i int) *http.Request { return s.request("/", "X-Lang", langs[i]) }) // runs, which have read value 0
				slow.Store(false)
				if a := s.do(s.method(http.MethodPost, "/")); a.status != http.StatusNoContent {
					t.Fatalf("POST: %v", a)
				}
				after := s.crowd(9, func(i int) *http.Request { return s.request("/", "X-Lang", langs[i%3]) })
				close(gate)
				before.wait()
				for i, a := range after.wait() {
					a.wants(t, want(1, langs[i%3]))
				}
				for _, lang := range langs {
					s.get("/", "X-Lang", lang).wants(t, want(1, lang))
				}
			})
		})
	}
}

// varnish-cache#3461, #2978: those who had waited for an answer that was not for them were let go one after
// the other, each for a whole run. A crowd takes the time of two runs, however large it is: the one it waited
// for, and its own.
func TestCrowdIsNotServedOneByOne(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter){
		"without a lifetime": func(http.ResponseWriter) {},
		"private":            func(w http.ResponseWriter) { w.Header().Set("Cache-Control", "private") },
		"a failure":          func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) },
		"broken off":         func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				s := p.open(t, setting{}, func(w http.ResponseWriter, _ *http.Request) {
					time.Sleep(time.Second)
					answer(w)
				})
				for range 3 {
					begun := time.Now()
					s.same(50, "/").wait()
					if took := time.Since(begun); took > 2*time.Second {
						t.Errorf("took %v", took)
					}
				}
			})
		})
	}
}

// A purge reaches all variants, all pods and the runs under way.
func TestPurgeReachesVariantsPodsAndRuns(t *testing.T) {
	for name, vary := range map[string]string{"plain": "X-None", "with variants": "X-Lang"} {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				var value atomic.Int64
				gate := make(chan struct{})
				store := new(stampede.MemoryStore)
				h := func(w http.ResponseWriter, r *http.Request) {
					n := value.Load()
					if n == 0 {
						<-gate
					}
					w.Header().Set("Vary", vary)
					w.Header().Set("Cache-Control", "max-age=60, stale-while-revalidate=600, stale-if-error=600")
					fmt.Fprint(w, "value ", n, r.Header.Get(vary))
				}
				here, there := p.open(t, setting{store: store}, h), p.open(t, setting{store: store}, h)
				ask := func(s *scene) func(i int) *http.Request {
					return func(i int) *http.Request { return s.request("/", "X-Lang", strconv.Itoa(i%3)) }
				}
				want := func(i int) string {
					if vary == "X-Lang" {
						return fmt.Sprint("value 1", i%3)
					}
					return "value 1"
				}
				before := []*crowd{here.crowd(6, ask(here)), there.crowd(6, ask(there))}
				value.Store(1)
				if err := here.cache.Purge(t.Context(), "http://site.example/"); err != nil {
					t.Fatal(err)
				}
				after := []*crowd{here.crowd(6, ask(here)), there.crowd(6, ask(there))}
				close(gate)
				for _, c := range before {
					c.wait()
				}
				for _, c := range after {
					for i, a := range c.wait() {
						a.wants(t, want(i))
					}
				}
				for range 2 { // fresh, and stale
					for i := range 3 {
						here.do(ask(here)(i)).wants(t, want(i))
						there.do(ask(there)(i)).wants(t, want(i))
					}
					here.sleep(70)
				}
			})
		})
	}
}
