package middleware_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/herdgate/herdgate/middleware"
)

// The tests in this file are about answers that reach somebody whom they are not for, because the cache reads a
// request or an answer in another way than the handler, the layers outside or the client do.

// greeting answers with the name of who asks.
func greeting(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "for ", r.Header.Get("X-Who")) }

// forMinutes lets the policy store what nothing forbids.
func forMinutes() middleware.Options {
	return middleware.Options{Policy: middleware.Policy{TTL: time.Minute}}
}

// apart fails the test if two who ask get one answer.
func (s *scene) apart(t *testing.T) {
	t.Helper()
	for _, name := range []string{"alice", "bob"} {
		s.get("/", "X-Who", name).wants(t, "for "+name)
	}
}

// setsFirst is a layer outside the cache that sets a field before the handler runs.
func setsFirst(name, value string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(name, value)
			next.ServeHTTP(w, r)
		})
	}
}

func TestWhatTheHandlerSaysCountsWhereALayerOutsideHasSaidTheSame(t *testing.T) {
	for _, f := range [][2]string{{"Cache-Control", "private"}, {"Cache-Control", "no-store"}, {"Vary", "X-Who"}, {"Vary", "*"}} {
		for how, say := range map[string]func(http.Header){
			"set":      func(h http.Header) { h.Set(f[0], f[1]) },
			"added":    func(h http.Header) { h.Add(f[0], f[1]) },
			"in place": func(h http.Header) { h[f[0]][0] = f[1] },
			"anew":     func(h http.Header) { h.Del(f[0]); h.Add(f[0], f[1]) },
		} {
			outside := f[1]
			if how == "in place" {
				outside = "Accept"
			}
			t.Run(f[0]+" "+f[1]+" "+how, func(t *testing.T) {
				protocols(t, func(t *testing.T, p protocol) {
					s := p.open(t, setting{outer: setsFirst(f[0], outside), opts: forMinutes()}, func(w http.ResponseWriter, r *http.Request) {
						say(w.Header())
						greeting(w, r)
					})
					s.apart(t)
				})
			})
		}
	}
}

// A handler may find that a layer outside has said it already, and leave it at that, or add to it.
func TestWhatALayerOutsideForbidsIsNotShared(t *testing.T) {
	for _, f := range [][2]string{{"Cache-Control", "private"}, {"Cache-Control", "max-age=60, no-store"}, {"Vary", "*"}} {
		for _, cc := range []string{"", "max-age=60"} {
			t.Run(f[0]+" "+f[1]+" then "+cc, func(t *testing.T) {
				protocols(t, func(t *testing.T, p protocol) {
					s := p.open(t, setting{outer: setsFirst(f[0], f[1]), opts: forMinutes()}, func(w http.ResponseWriter, r *http.Request) {
						if cc != "" {
							w.Header().Add("Cache-Control", cc)
						}
						greeting(w, r)
					})
					s.apart(t)
				})
			})
		}
	}
}

// What a layer outside says of its own request is no part of what is stored, though the handler adds to it.
func TestVaryOfALayerOutsidePartsNobody(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		s := p.open(t, setting{outer: setsFirst("Vary", "Origin"), opts: forMinutes()}, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Add("Vary", "X-Who")
			greeting(w, r)
		})
		for _, origin := range []string{"https://a.example", "https://b.example"} {
			a := s.get("/", "X-Who", "alice", "Origin", origin)
			a.wants(t, "for alice")
			if got := fmt.Sprint(a.header["Vary"]); got != "[Origin X-Who]" {
				t.Errorf("Vary is %s", got)
			}
		}
		s.ran(1)
	})
}

// To clients a name is one name however it is written, and net/http sends it as the map has it.
func TestFieldsCountHoweverTheirNamesAreWritten(t *testing.T) {
	for name, f := range map[string][][2]string{
		"private":         {{"cache-control", "private"}},
		"private as well": {{"Cache-Control", "max-age=60"}, {"CACHE-CONTROL", "private"}},
		"a cookie":        {{"set-cookie", "session=alice"}},
		"Vary":            {{"vary", "X-Who"}},
		"Vary: * as well": {{"Vary", "Accept"}, {"vArY", "*"}},
		"a trailer":       {{"trailer", "X-Sum"}},
		"an expired date": {{"expires", "0"}},
		"a stream":        {{"content-type", "text/event-stream"}},
	} {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				o := forMinutes()
				o.Policy.StaleFor = -1
				s := p.open(t, setting{opts: o}, func(w http.ResponseWriter, r *http.Request) {
					for _, f := range f {
						w.Header()[f[0]] = []string{f[1]}
					}
					greeting(w, r)
				})
				s.apart(t)
			})
		})
	}
}

// The same where the handler is asked each time, and for what an unsafe method invalidates.
func TestFieldsCountHoweverTheirNamesAreWrittenInOtherAnswers(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		s := p.open(t, setting{}, func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			switch {
			case r.Method == http.MethodPost:
				h["location"] = []string{"/there"}
			case r.URL.Path == "/there":
				h.Set("Cache-Control", "max-age=60")
			case run(r) == 1:
				h["cache-control"], h["etag"] = []string{"no-cache"}, []string{`"1"`}
			default:
				h["cache-control"], h["Etag"] = []string{"private"}, []string{`"1"`}
			}
			fmt.Fprint(w, "answer ", run(r))
		})
		for i, fwd := range []string{"uri-miss", "stale", "uri-miss"} { // stored, to be asked about; then private, and so dropped
			a := s.get("/")
			a.wants(t, fmt.Sprint("answer ", i+1))
			if got := a.header.Get("Cache-Status"); !strings.Contains(got, "fwd="+fwd) {
				t.Errorf("answer %d: Cache-Status is %s", i+1, got)
			}
		}
		s.get("/there").wants(t, "answer 4")
		s.get("/there").wants(t, "answer 4")
		s.do(s.method(http.MethodPost, "/here"))
		s.get("/there").wants(t, "answer 6")
	})
}

// net/http makes spaces of the line ends in a value and sends what is left.
func TestLineEndsInValuesAreReadAsSpaces(t *testing.T) {
	for _, f := range [][2]string{
		{"Cache-Control", "private\n"}, {"Cache-Control", "\r\nno-store"}, {"Cache-Control", "max-age=60,\n private"},
		{"Cache-Control", "max-age=60,\r\n\tno-store"}, {"cache-control", "private\r\n"}, {"Vary", "X-Who\n"}, {"Vary", "Accept,\r\n *"},
		{"Content-Type", "\ntext/event-stream"},
	} {
		t.Run(fmt.Sprintf("%s %q", f[0], f[1]), func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				s := p.open(t, setting{opts: forMinutes()}, func(w http.ResponseWriter, r *http.Request) {
					w.Header()[f[0]] = []string{f[1]}
					greeting(w, r)
				})
				s.apart(t)
			})
		})
	}
}

// A layer outside names the type of what the handler leaves unnamed. It may do so for some requests only, and what it
// declares to be text no browser may run.
func TestTypeNamedOutsideIsNotGuessed(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		outer := func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("X-Who") != "" {
					w.Header().Set("Content-Type", "text/plain; charset=utf-8")
				}
				next.ServeHTTP(w, r)
			})
		}
		const guessed, named = "text/html; charset=utf-8", "text/plain; charset=utf-8"
		for _, first := range []string{"", "alice"} {
			s := p.open(t, setting{outer: outer, opts: forMinutes()}, func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprint(w, "<script>alert(1)</script>")
			})
			for _, who := range []string{first, "", "bob", ""} {
				var fields []string
				want := guessed
				if who != "" {
					fields, want = []string{"X-Who", who}, named
				}
				if got := s.get("/", fields...).header.Get("Content-Type"); got != want {
					t.Errorf("first %q, now %q: it is %s, want %s", first, who, got, want)
				}
			}
			s.ran(1)
		}
	})
}
