package middleware_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/middleware"
)

// stream sends a request and returns the answer as soon as its head is there.
func (s *scene) stream(r *http.Request) *http.Response {
	s.t.Helper()
	res, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

// darkweak/souin#600, #562: event streams panicked behind the cache, which hid Flush. What a handler flushes
// reaches its client while the handler runs; who asks for the same does not wait for the end of a stream that
// has none, but gets a stream of his own; and the handler notices when its client is gone.
func TestStreamsReachTheirClientsWhileTheHandlerRuns(t *testing.T) {
	for name, c := range map[string]struct {
		fields []string
		flush  func(w http.ResponseWriter)
	}{
		"asked for": {[]string{"Accept", "text/event-stream"}, func(w http.ResponseWriter) { w.(http.Flusher).Flush() }},
		"flushed":   {nil, func(w http.ResponseWriter) { w.(http.Flusher).Flush() }},
		"flushed by a controller": {nil, func(w http.ResponseWriter) {
			if err := http.NewResponseController(w).Flush(); err != nil {
				panic(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				ended := make(chan struct{}, 10)
				s := p.open(t, setting{}, func(w http.ResponseWriter, r *http.Request) {
					n := run(r)
					w.Header().Set("Content-Type", "text/event-stream")
					w.Header().Set("Cache-Control", "max-age=60")
					fmt.Fprintf(w, "data: %d\n\n", n)
					c.flush(w)
					<-r.Context().Done()
					ended <- struct{}{}
				})
				ctx, leave := context.WithCancel(t.Context())
				for i := range 3 {
					res := s.stream(s.request("/", c.fields...).WithContext(ctx))
					line, err := bufio.NewReader(res.Body).ReadString('\n')
					if want := fmt.Sprintf("data: %d\n", i+1); err != nil || line != want {
						t.Errorf("first event %q, %v, want %q", line, err, want)
					}
				}
				s.running(3)
				leave()
				for range 3 {
					<-ended
				}
				s.running(0)
			})
		})
	}
}

// Those who wait for a run that turns into a stream are let go at that moment.
func TestCrowdIsLetGoWhenTheRunTurnsIntoAStream(t *testing.T) {
	large := strings.Repeat("0123456789abcdef", 1<<10)
	for name, turn := range map[string]func(w http.ResponseWriter){
		"flush": func(w http.ResponseWriter) { w.(http.Flusher).Flush() },
		"large": func(w http.ResponseWriter) {
			for range 5 {
				if _, err := io.WriteString(w, large); err != nil {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				first, others, end := make(chan struct{}), make(chan struct{}), make(chan struct{})
				s := p.open(t, under(middleware.Policy{TTL: time.Minute, MaxBody: 3 * len(large)}), func(w http.ResponseWriter, r *http.Request) {
					n := run(r)
					if n > 1 {
						<-others
						fmt.Fprint(w, "answer ", n)
						return
					}
					<-first
					turn(w)
					<-end
				})
				c := s.same(10, "/")
				s.running(1)
				close(first)
				s.running(10)
				close(others)
				close(end)
				distinct(t, c.wait())
			})
		})
	}
}

// A connection that a handler takes over is its own. Upgrades are let through before anything waits.
func TestUpgradesAreLetThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := http1.open(t, setting{}, func(w http.ResponseWriter, _ *http.Request) {
			conn, buf, err := http.NewResponseController(w).Hijack()
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			defer conn.Close()
			_, _ = buf.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_ = buf.Flush()
			line, _ := buf.ReadString('\n')
			_, _ = buf.WriteString("echo " + line)
			_ = buf.Flush()
		})
		for _, word := range []string{"one\n", "two\n"} {
			res := s.stream(s.request("/", "Connection", "Upgrade", "Upgrade", "echo"))
			if res.StatusCode != http.StatusSwitchingProtocols {
				t.Fatal(res.Status)
			}
			conn, ok := res.Body.(io.ReadWriteCloser)
			if !ok {
				t.Fatalf("the body is a %T", res.Body)
			}
			if _, err := io.WriteString(conn, word); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || line != "echo "+word {
				t.Errorf("%q, %v", line, err)
			}
			_ = conn.Close()
		}
		s.ran(2)
	})
}

// Taking over the connection of a request that may be shared is refused, with the error that says so, and
// the handler can still answer.
func TestHijackOfASharedRunIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := http1.open(t, setting{}, func(w http.ResponseWriter, _ *http.Request) {
			var conn net.Conn
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_ = conn.Close()
			}
			fmt.Fprint(w, errors.Is(err, http.ErrNotSupported))
		})
		s.get("/").wants(t, "true")
	})
}

// Informational answers are for the client whose run it is, at once; they are neither stored nor repeated.
func TestEarlyHintsReachTheirClientAlone(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		gate := make(chan struct{})
		s := p.open(t, setting{}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			<-gate
			w.Header().Set("Cache-Control", "max-age=60")
			_, _ = io.WriteString(w, page)
		})
		hints := make(chan int, 10)
		asks := func() *http.Request {
			r := s.request("/")
			return r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
				Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
					if h.Get("Link") == "" {
						t.Error("a hint without its Link")
					}
					hints <- code
					return nil
				},
			}))
		}
		c := s.crowd(1, func(int) *http.Request { return asks() })
		if len(hints) != 1 {
			t.Errorf("%d hints while the handler runs", len(hints))
		}
		close(gate)
		c.wait()[0].wants(t, page)
		s.do(asks()).wants(t, page)
		s.do(asks()).wants(t, page)
		if len(hints) != s.source.total() {
			t.Errorf("%d hints from %d runs", len(hints), s.source.total())
		}
	})
}

// Trailers reach the client, and an answer that has them is not stored: it would lose them.
func TestTrailersReachTheClient(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"announced": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			numbered()(w, r)
			w.Header().Set("X-Sum", "42")
		},
		"not announced": func(w http.ResponseWriter, r *http.Request) {
			numbered()(w, r)
			w.(http.Flusher).Flush() // else a server that knows the length sends none
			w.Header().Set(http.TrailerPrefix+"X-Sum", "42")
		},
	} {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				s := p.open(t, setting{}, h)
				for range 2 {
					res := s.stream(s.request("/"))
					if _, err := io.ReadAll(res.Body); err != nil {
						t.Fatal(err)
					}
					if got := res.Trailer.Get("X-Sum"); got != "42" {
						t.Errorf("the trailer is %q", got)
					}
				}
				s.ran(2)
			})
		})
	}
}

// However a handler writes, it is one body: by Write, WriteString, ReadFrom, or through a controller.
func TestEveryWayOfWritingIsCaptured(t *testing.T) {
	for name, write := range map[string]func(w http.ResponseWriter){
		"Write":       func(w http.ResponseWriter) { _, _ = w.Write([]byte(page)) },
		"WriteString": func(w http.ResponseWriter) { _, _ = io.WriteString(w, page) },
		"ReadFrom":    func(w http.ResponseWriter) { _, _ = io.Copy(w, strings.NewReader(page)) },
		"all of them": func(w http.ResponseWriter) {
			_, _ = w.Write([]byte(page[:5]))
			_, _ = io.WriteString(w, page[5:9])
			_, _ = io.Copy(w, strings.NewReader(page[9:]))
		},
		"ReadFrom of a reader only": func(w http.ResponseWriter) { _, _ = io.Copy(w, struct{ io.Reader }{strings.NewReader(page)}) },
	} {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				s := p.open(t, setting{}, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Cache-Control", "max-age=60")
					write(w)
				})
				for range 3 {
					s.get("/").wants(t, page)
				}
				s.ran(1)
			})
		})
	}
}
