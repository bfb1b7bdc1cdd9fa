package middleware_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/herdgate/herdgate/middleware"
	"github.com/herdgate/herdgate/stampede"
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

// dial sends a request as it is written and returns the body of the answer.
func (s *site) dial(t *testing.T, target string) string {
	t.Helper()
	host := s.server.Listener.Addr().String()
	c, err := net.Dial("tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", strings.Replace(target, "HOST", host, 1), host)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// A target may be written as for a proxy. What the key does not have of it, the handler must not see.
func TestTargetsInAbsoluteFormPassOnNothingOfTheirSender(t *testing.T) {
	for _, policy := range []middleware.Policy{
		{TTL: time.Minute},
		{TTL: time.Minute, Authorization: middleware.ExplicitAuthorization},
		{TTL: time.Minute, Authorization: middleware.IgnoreAuthorization},
	} {
		for _, target := range []string{"http://alice:secret@HOST/p", "evil://HOST/p", "https://HOST/p", "HTTP://HOST/p"} {
			t.Run(fmt.Sprint(target, policy.Authorization), func(t *testing.T) {
				s := serve(t, &middleware.Options{Policy: policy}, func(w http.ResponseWriter, r *http.Request) {
					fmt.Fprint(w, r.URL, " ", r.RequestURI)
				})
				s.dial(t, target)
				if got := s.get("/p").body; got != "/p /p" {
					t.Errorf("the next one got %q", got)
				}
			})
		}
	}
}

// Such a target is the URL that it would be without scheme and host: Purge reaches what it has left behind.
func TestTargetsInAbsoluteFormAreNoOtherURLs(t *testing.T) {
	s := serve(t, minute(), func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "page") })
	for _, target := range []string{"http://HOST/p", "/p", "evil://HOST/p", "https://HOST/p"} {
		s.dial(t, target)
	}
	s.wantRuns(1)
	if err := s.cache.Purge(t.Context(), s.server.URL+"/p"); err != nil {
		t.Fatal(err)
	}
	s.dial(t, "http://HOST/p")
	s.wantRuns(2)
}

func TestOpaqueTargetsHaveAnswersOfTheirOwn(t *testing.T) {
	s := serve(t, minute(), func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RequestURI) })
	for range 2 {
		for _, target := range []string{"a:b://c", "a:b://d", "a:c://d", "a:b://d/e", "b:b://d/e", "a:b", "/e", "/d/e"} {
			if got := s.dial(t, target); got != target {
				t.Errorf("%s: got %q", target, got)
			}
		}
	}
}

// A layer outside may say by the URL's scheme and host what it has found out. That counts.
func TestSchemeAndHostOfALayerOutsideCount(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		rewrite := func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.URL.Scheme, r.URL.Host, r.URL.Opaque = r.Header.Get("X-Scheme"), r.Header.Get("X-Host"), r.Header.Get("X-Opaque")
				next.ServeHTTP(w, r)
			})
		}
		s := p.open(t, setting{outer: rewrite, opts: forMinutes()}, func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, r.URL.Scheme, " ", r.URL.Host, " ", r.URL.Opaque)
		})
		for range 2 {
			for _, c := range [][4]string{ // scheme, host, opaque, and what the handler sees
				{"", "", "", "  "}, {"http", "site.example", "", "  "}, {"https", "site.example", "", "https site.example "},
				{"https", "", "", "https  "}, {"http", "a.example", "", "http a.example "}, {"https", "a.example", "", "https a.example "},
				{"http", "", "//a.example", "http  //a.example"}, {"http", "a.example", "b", "http a.example b"},
			} {
				s.get("/", "X-Scheme", c[0], "X-Host", c[1], "X-Opaque", c[2]).wants(t, c[3])
			}
		}
		s.ran(7)
	})
}

// Two policies for one URL: what is stored under the one that names less is no answer under the other one, nor the
// other way round, and Purge reaches both.
func TestPoliciesShareOnlyWhatTheyMeanAlike(t *testing.T) {
	for name, policy := range map[string]middleware.Policy{
		"headers":   {TTL: time.Minute, Headers: []string{"X-Who"}},
		"more":      {TTL: time.Minute, Headers: []string{"X-Who", "X-Other"}},
		"identity":  {TTL: time.Minute, Identity: func(r *http.Request) string { return r.Header.Get("X-Who") }},
		"cookies":   {TTL: time.Minute, Cookies: []string{"who"}},
		"encodings": {TTL: time.Minute, Encodings: []string{"gzip"}},
	} {
		for _, others := range []middleware.Policy{{TTL: time.Minute}, {TTL: time.Minute, Headers: []string{"X-Other"}}} {
			t.Run(fmt.Sprint(name, others.Headers), func(t *testing.T) {
				protocols(t, func(t *testing.T, p protocol) {
					o := middleware.Options{Policy: others}
					cache := newCache(t, new(stampede.MemoryStore), &o)
					named, err := cache.With(&policy)
					if err != nil {
						t.Fatal(err)
					}
					handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						fmt.Fprint(w, "for ", r.Header.Get("X-Who"), r.Header.Get("Cookie"), r.Header.Get("Accept-Encoding"))
					})
					source := &source{handler: handler}
					less, more := cache.Handler(source), named.Handler(source)
					s := &scene{t: t, cache: cache, source: source, client: p.connect(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if r.Header.Get("X-Who")+r.Header.Get("Cookie")+r.Header.Get("Accept-Encoding") != "" {
							more.ServeHTTP(w, r)
							return
						}
						less.ServeHTTP(w, r)
					}))}
					fields := []string{"X-Who", "bob"}
					want := "for bob"
					switch name {
					case "cookies":
						fields, want = []string{"Cookie", "who=bob"}, "for who=bob"
					case "encodings":
						fields, want = []string{"Accept-Encoding", "gzip"}, "for gzip"
					}
					for i := range 2 {
						for range 2 {
							s.get("/").wants(t, "for ")
							s.get("/", fields...).wants(t, want)
						}
						s.ran(2 * (i + 1))
						if err := s.cache.Purge(t.Context(), "http://site.example/"); err != nil {
							t.Fatal(err)
						}
					}
				})
			})
		}
	}
}

// A list may be on one line or on several. A handler that uses Header.Get sees of the lines the first one.
func TestLinesAreNotTakenForAList(t *testing.T) {
	for _, vary := range []string{"", "X-Who"} {
		t.Run("Vary "+vary, func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				o := forMinutes()
				if vary == "" {
					o.Policy.Headers = []string{"X-Who"}
				}
				s := p.open(t, setting{opts: o}, func(w http.ResponseWriter, r *http.Request) {
					if vary != "" {
						w.Header().Set("Vary", vary)
					}
					greeting(w, r)
				})
				for range 2 {
					s.get("/", "X-Who", "alice", "X-Who", "bob").wants(t, "for alice")
					s.get("/", "X-Who", "alice,bob").wants(t, "for alice,bob")
					s.get("/", "X-Who", "alice").wants(t, "for alice")
				}
				s.ran(3)
			})
		})
	}
}

// Separators that are not quite right, and a quote that does not end: the careful reading counts.
func TestWordsThatForbidCountWhereTheGrammarIsBroken(t *testing.T) {
	for _, f := range [][2]string{
		{"Cache-Control", "private; max-age=0"}, {"Cache-Control", "no-cache; no-store"}, {"Cache-Control", `max-age=60, ext="b, private`},
		{"Cache-Control", "max-age=60 private"}, {"Cache-Control", "no-transform; max-age=0"}, {"Vary", "Accept; X-Who"}, {"Vary", `"X-Who"`},
	} {
		t.Run(f[0]+" "+f[1], func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				o := forMinutes()
				o.Policy.StaleFor = -1
				s := p.open(t, setting{opts: o}, func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set(f[0], f[1])
					greeting(w, r)
				})
				s.apart(t)
			})
		})
	}
}
