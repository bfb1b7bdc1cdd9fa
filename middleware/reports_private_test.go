package middleware_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
)

// who is a handler whose answer is for whoever asks.
func who(header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		setHeaders(w, header)
		fmt.Fprintf(w, "for %s%s", r.Header.Get("Authorization"), r.Header.Get("Cookie"))
	}
}

// gofiber/fiber#2182: requests with Authorization were answered with what others had got. The same holds for
// cookies, and for those who come at the same moment. A freshness that the handler gives is no permission.
func TestAnswersToSomebodyAreForNobodyElse(t *testing.T) {
	for _, field := range []string{"Authorization", "Cookie"} {
		for _, cc := range []string{"max-age=60", "max-age=60, private", "no-cache", ""} {
			t.Run(field+"/"+cc, func(t *testing.T) {
				protocols(t, func(t *testing.T, p protocol) {
					s := p.open(t, setting{}, who("Cache-Control", cc))
					for _, name := range []string{"alice", "bob", "alice"} {
						s.get("/", field, name).wants(t, "for "+name)
					}
					s.get("/").wants(t, "for ")
					s.get("/", field, "carol").wants(t, "for carol")

					gate := make(chan struct{})
					s = p.open(t, setting{}, func(w http.ResponseWriter, r *http.Request) {
						<-gate
						who("Cache-Control", cc)(w, r)
					})
					c := s.crowd(20, func(i int) *http.Request { return s.request("/", field, fmt.Sprint(i)) })
					s.running(20)
					close(gate)
					for i, a := range c.wait() {
						a.wants(t, fmt.Sprint("for ", i))
					}
				})
			})
		}
	}
}

// What is stored from a request without credentials is not shown to one with them, nor the other way round:
// the handler may know the caller.
func TestCrowdOfKnownAndUnknownCallersIsNotMixed(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		gate := make(chan struct{})
		s := p.open(t, setting{}, func(w http.ResponseWriter, r *http.Request) {
			<-gate
			who("Cache-Control", "max-age=60")(w, r)
		})
		c := s.crowd(30, func(i int) *http.Request {
			switch i % 3 {
			case 1:
				return s.request("/", "Cookie", fmt.Sprint(i))
			case 2:
				return s.request("/", "Authorization", fmt.Sprint(i))
			}
			return s.request("/")
		})
		close(gate)
		for i, a := range c.wait() {
			if want := fmt.Sprint("for ", i); i%3 != 0 {
				a.wants(t, want)
			} else {
				a.wants(t, "for ")
			}
		}
		s.ran(21) // the ten unknown ones together, each of the others alone
	})
}

// unshareable are answers that nobody may be given but who asked for them.
var unshareable = map[string][]string{
	"no-store":                     {"Cache-Control", "no-store"},
	"private":                      {"Cache-Control", "private"},
	"private for a while":          {"Cache-Control", "private, max-age=60"},
	"private in capitals":          {"Cache-Control", "max-age=60, PRIVATE"},
	"private for one field":        {"Cache-Control", `max-age=60, private="x-a"`},
	"no-cache":                     {"Cache-Control", "no-cache"},
	"no-cache for a while":         {"Cache-Control", "max-age=60, no-cache"},
	"no-cache for one field":       {"Cache-Control", `no-cache="x-a", max-age=60`},
	"no-store on a second line":    {"Cache-Control", "max-age=60", "Cache-Control", "no-store"},
	"no-store after a quoted list": {"Cache-Control", `ext="a, b", max-age=60, no-store`},
	"stale at once":                {"Cache-Control", "max-age=0"},
	"stale at once for all":        {"Cache-Control", "max-age=60, s-maxage=0"},
	"a cookie":                     {"Set-Cookie", "session=1"},
	"a second cookie":              {"Set-Cookie", "", "Set-Cookie", "session=1"},
	"Vary: *":                      {"Vary", "*"},
	"Vary: * in a list":            {"Vary", "Accept, *"},
	"Vary: * on a second line":     {"Vary", "Accept", "Vary", "*"},
	"an expired date":              {"Cache-Control", "", "Expires", "0"},
	"an announced trailer":         {"Trailer", "X-Sum"},
	"events":                       {"Content-Type", "text/event-stream"},
}

// Django CVE-2026-48588, CVE-2026-35192: answers that set a cookie were stored, and others got the session in
// it. Hono CVE-2026-24472: so were private ones. The handler is asked every time.
func TestUnshareableAnswersAreNotStored(t *testing.T) {
	for name, header := range unshareable {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				s := p.open(t, setting{}, numbered(header...))
				for i := range 4 {
					s.get("/").wants(t, fmt.Sprint("answer ", i+1))
				}
			})
		})
	}
}

// caddyserver/cache-handler#82: a URL sometimes answers for all and sometimes for one; collapsing would mix
// them up. The crowd that waited for an answer that turns out to be for one is let go at once, all together,
// and each gets an answer of its own.
func TestUnshareableAnswersAreNotSharedWithTheCrowd(t *testing.T) {
	for name, header := range unshareable {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				first, others := make(chan struct{}), make(chan struct{})
				h := gated(nil, header...)
				s := p.open(t, setting{}, func(w http.ResponseWriter, r *http.Request) {
					if run(r) == 1 {
						<-first
					} else {
						<-others
					}
					h(w, r)
				})
				c := s.same(20, "/")
				s.running(1)
				close(first)
				s.running(19)
				close(others)
				distinct(t, c.wait())
				s.ran(20)
			})
		})
	}
}

// The session is as private when a layer inside the cache sets its cookie on every answer (Django
// CVE-2026-48588 again).
func TestCookieOfALayerInsideIsNotStored(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		n := 0
		session := func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n++
				http.SetCookie(w, &http.Cookie{Name: "session", Value: fmt.Sprint(n)})
				next.ServeHTTP(w, r)
			})
		}
		s := p.open(t, setting{inner: session}, numbered())
		for i := range 3 {
			a := s.get("/")
			a.wants(t, fmt.Sprint("answer ", i+1))
			if got, want := a.header.Get("Set-Cookie"), fmt.Sprint("session=", i+1); got != want {
				t.Errorf("cookie %q, want %q", got, want)
			}
		}
	})
}

// A layer outside sets a cookie that is for this caller alone. The stored answer holds none of it.
func TestCookieOfALayerOutsideStaysWithItsCaller(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		session := func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				http.SetCookie(w, &http.Cookie{Name: "session", Value: r.Header.Get("X-Name")})
				w.Header().Set("X-Request-Id", r.Header.Get("X-Name"))
				next.ServeHTTP(w, r)
			})
		}
		gate := make(chan struct{})
		s := p.open(t, setting{outer: session}, gated(gate))
		c := s.crowd(10, func(i int) *http.Request { return s.request("/", "X-Name", fmt.Sprint(i)) })
		close(gate)
		replies := append(c.wait(), s.get("/", "X-Name", "10"))
		for i, a := range replies {
			a.wants(t, "answer 1")
			if got := a.header["Set-Cookie"]; len(got) != 1 || got[0] != fmt.Sprint("session=", i) {
				t.Errorf("request %d got the cookies %q", i, got)
			}
			if got := a.header["X-Request-Id"]; len(got) != 1 || got[0] != fmt.Sprint(i) {
				t.Errorf("request %d got the numbers %q", i, got)
			}
		}
		s.ran(1)
	})
}

// Hono#1915: the cache replaced the handler's Cache-Control. In respect mode it reaches the client as it
// was, on a miss and on a hit.
func TestCacheControlOfTheHandlerReachesTheClient(t *testing.T) {
	for _, lines := range [][]string{
		{"max-age=60"},
		{"private, max-age=60"},
		{"no-store"},
		{"max-age=60, stale-while-revalidate=30, stale-if-error=300"},
		{"public, s-maxage=60", "immutable"},
		{`max-age=60, ext="a, b"`},
	} {
		t.Run(lines[0], func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				s := p.open(t, setting{}, func(w http.ResponseWriter, _ *http.Request) { w.Header()["Cache-Control"] = lines })
				for range 3 {
					if got := s.get("/").header["Cache-Control"]; fmt.Sprint(got) != fmt.Sprint(lines) {
						t.Errorf("got %q, want %q", got, lines)
					}
				}
			})
		})
	}
}

// An answer that changes its nature must not leave the old one behind: what was for all a minute ago, and is
// now for one, is served to nobody any more, not even as stale.
func TestStaleAnswerGoesWhenTheNewOneIsPrivate(t *testing.T) {
	for name, header := range map[string][]string{
		"private":  {"Cache-Control", "private"},
		"no-store": {"Cache-Control", "no-store"},
		"a cookie": {"Cache-Control", "max-age=60", "Set-Cookie", "session=1"},
		"Vary: *":  {"Cache-Control", "max-age=60", "Vary", "*"},
	} {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				s := p.open(t, setting{}, func(w http.ResponseWriter, r *http.Request) {
					n := run(r)
					if n == 1 {
						setHeaders(w, []string{"Cache-Control", "max-age=1, stale-while-revalidate=3600, stale-if-error=3600"})
					} else {
						setHeaders(w, header)
					}
					fmt.Fprint(w, "answer ", n)
				})
				s.get("/").wants(t, "answer 1")
				s.sleep(2)
				s.get("/").wants(t, "answer 1") // stale, and the refresh behind it finds out
				synctest.Wait()
				if a := s.get("/"); a.body == "answer 1" {
					t.Errorf("served after the handler had taken it back: %v", a)
				}
			})
		})
	}
}
