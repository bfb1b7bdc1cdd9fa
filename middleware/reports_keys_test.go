package middleware_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/herdgate/herdgate/middleware"
	"github.com/herdgate/herdgate/stampede"
)

// gofiber GHSA-35hp-hqmv-8qg8 (CVE-2026-30246): the key was the path alone, so that /?id=1 and /?id=2 were
// one entry. A URL is what it is: whatever tells two of them apart for the handler does so for the cache.
func TestURLsThatDifferHaveAnswersOfTheirOwn(t *testing.T) {
	targets := []string{
		"/", "/?id=1", "/?id=2", "/?id=1&id=2", "/?id=2&id=1", "/?ID=1", "/?id=", "/?id",
		"/a", "/A", "/a/", "//a", "/./a", "/b/../a", "/a/.", "/a%2e", "/%61", "/a%20", "/a+",
		"/a/b", "/a%2Fb", "/a%2fb", "/a;b", "/a%3Bb", "/a?b", "/a%3Fb", "/a#b", "/a%23b", "/a??b",
		"/ab", "/aa?b", "/aab", "/a?b;c", "/a?b&c", "/a?c&b", "/a?b=%26c", "/a?b%3Dc", "/a?b=c", "/a?b=%zz", "/a?b=%z",
		"http://other.example/a", "http://site.example:8080/a", "http://sub.site.example/a",
	}
	protocols(t, func(t *testing.T, p protocol) {
		echo := fresh(func(r *http.Request) string { return r.Host + r.RequestURI })
		s := p.open(t, setting{}, echo)
		made := 0
		for range 2 {
			for _, target := range targets {
				before := s.source.total()
				a := s.get(target)
				want := httptest.NewRecorder()
				echo(want, s.sent(target))
				a.wants(t, want.Body.String())
				made += s.source.total() - before
			}
		}
		// The fragment is not sent: /a#b is /a.
		if want := len(targets) - 1; made != want {
			t.Errorf("%d runs for %d URLs, asked for twice", made, want)
		}
	})
}

// sent returns the request as a server without a cache sees it.
func (s *scene) sent(target string) *http.Request {
	r := s.request(target)
	r.RequestURI = r.URL.RequestURI()
	r.Host = r.URL.Host
	return r
}

// gofiber/fiber#4467: one part of a key could be written so that it looked like another part. Values of the
// headers that Vary names are parts of a key, as are the path, the query and the host; none may run into the
// next one.
func TestPartsOfAKeyDoNotRunIntoEachOther(t *testing.T) {
	var values []string
	for _, sep := range []string{"", ",", ":", ";", "|", "&", "=", "/", "_", "\\", "%00", "_auth_", "X-B", "X-B: ", "\t"} {
		values = append(values, strings.Trim("a"+sep+"b", "\t"), strings.Trim("a"+sep, " \t"), strings.Trim(sep+"b", " \t"))
	}
	protocols(t, func(t *testing.T, p protocol) {
		s := p.open(t, setting{}, varying("X-A, X-B", func(r *http.Request) string {
			return fmt.Sprintf("%q %q", r.Header.Get("X-A"), r.Header.Get("X-B"))
		}))
		for i, a := range values {
			b := values[(i+1)%len(values)]
			for _, pair := range [][2]string{{a, b}, {a + b, ""}, {"", a + b}, {b, a}} {
				s.get("/", "X-A", pair[0], "X-B", pair[1]).wants(t, fmt.Sprintf("%q %q", pair[0], pair[1]))
			}
		}
	})
	protocols(t, func(t *testing.T, p protocol) {
		s := p.open(t, setting{}, fresh(func(r *http.Request) string { return r.Host + " " + r.RequestURI }))
		for _, target := range []string{
			"http://a.example/b?c", "http://a.example/b%3Fc", "http://a.example/?b?c", "http://a.exampleb/?c",
			"http://a.example/bGET", "http://a.example/GETb", "http://a.example/b?cGET",
		} {
			r := s.sent(target)
			s.get(target).wants(t, r.Host+" "+r.RequestURI)
		}
	})
}

// varying is fresh with a Vary.
func varying(vary string, f func(r *http.Request) string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", vary)
		fresh(f)(w, r)
	}
}

// Django CVE-2020-13254: keys that the store could not take collided. Control bytes, spaces and great length
// are nothing special.
func TestOddKeysAreDistinctAndNoError(t *testing.T) {
	long := strings.Repeat("k", 10_000)
	protocols(t, func(t *testing.T, p protocol) {
		s := p.open(t, setting{}, fresh(func(r *http.Request) string { return fmt.Sprint(len(r.RequestURI), r.RequestURI[len(r.RequestURI)-1:]) }))
		targets := []string{
			"/%00", "/%0A", "/%0D%0A", "/%20", "/%7F", "/%C0%80", "/%FF", "/%E2%80%AE",
			"/" + long, "/" + long + "1", "/?" + long, "/?" + long + "1", "/?%00" + long, "/{" + long + "}",
		}
		for range 2 {
			for _, target := range targets {
				uri := s.sent(target).RequestURI
				s.get(target).wants(t, fmt.Sprint(len(uri), uri[len(uri)-1:]))
			}
		}
		s.ran(len(targets))
	})
}

// dotnet/aspnetcore#67763: a value for which no key could be made gave the empty key, under which requests
// that had nothing to do with each other were collapsed. No server lets such values through, but other
// middleware may make them.
func TestRequestsWithImpossibleValuesShareNothing(t *testing.T) {
	cache := newCache(t, new(stampede.MemoryStore), nil)
	h := cache.Handler(varying("X-A", func(r *http.Request) string {
		return fmt.Sprintf("%s %q %q", r.URL.Path, r.Header["X-A"], r.Host)
	}))
	var requests []*http.Request
	for _, path := range []string{"/a", "/b", ""} {
		for _, value := range []string{"\x1e", "\x1f", "\x00", "\n", "\xff", ""} {
			for _, host := range []string{"site.example", "", "site.example\x00", "a b", "[::1", ":::"} {
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				r.URL.Path, r.Host = path, host
				r.Header["X-A"] = []string{value}
				requests = append(requests, r)
			}
		}
	}
	for range 2 {
		for _, r := range requests {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			want := fmt.Sprintf("%s %q %q", r.URL.Path, r.Header["X-A"], r.Host)
			if got := w.Body.String(); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
	}
}

// The key is that of the request as it came. What wraps the cache, or the router, may have changed the URL
// of the request; a handler that changes it changes only its own.
func TestHandlerThatChangesItsRequestChangesNoKey(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		s := p.open(t, setting{}, func(w http.ResponseWriter, r *http.Request) {
			target := r.RequestURI
			r.URL.Path, r.URL.RawQuery, r.Host = "/same", "", "same.example"
			r.Header.Set("X-A", "same")
			w.Header().Set("Cache-Control", "max-age=60")
			w.Header().Set("Vary", "X-A")
			_, _ = io.WriteString(w, target)
		})
		for range 2 {
			for _, target := range []string{"/a", "/b", "/b?c"} {
				for _, value := range []string{"1", "2"} {
					s.get(target, "X-A", value).wants(t, target)
				}
			}
		}
		s.ran(6)
	})
}

// Hosts that are not served are not cached, and no host of a list is mixed up with another one.
func TestHostsThatAreNotListedPass(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		s := p.open(t, setting{opts: middleware.Options{Hosts: []string{"site.example", "a.example:8080"}}}, fresh(func(r *http.Request) string { return r.Host }))
		for range 3 {
			for _, host := range []string{"site.example", "a.example:8080", "evil.example", "a.example", "site.example:8080", "site.example.evil.example", "asite.example"} {
				s.get("http://"+host+"/").wants(t, host)
			}
		}
		s.ran(2 + 5*3)
	})
	protocols(t, func(t *testing.T, p protocol) {
		s := p.open(t, setting{opts: middleware.Options{Host: "site.example"}}, fresh(func(r *http.Request) string { return r.Host }))
		for _, host := range []string{"evil.example", "site.example", "other.example:8080"} {
			s.get("http://"+host+"/").wants(t, "site.example")
		}
		s.ran(1)
	})
}

// Where the key has the host in its normal form, what the handler saw of the host must not have been another
// one (the kind of milwil-2/climb-elo#205): its links would be for everybody.
func TestHostIsInTheHandlersRequestAsItIsInTheKey(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		s := p.open(t, setting{}, fresh(func(r *http.Request) string { return "//" + r.Host + "/" }))
		first := ""
		for _, host := range []string{"SITE.example", "site.example:80", "Site.Example:80", "site.example", "site.example."} {
			r := s.request("/")
			r.Host = host
			a := s.do(r)
			if hits(a) == 0 { // its own answer
				first = a.body
				continue
			}
			if a.wants(t, first); a.body != "//"+host+"/" && a.body != "//site.example/" {
				t.Errorf("asked %s, got %s", host, a.body)
			}
		}
	})
}

// What a policy puts into the key in its normal form is in that form in the handler's request, too.
func TestWhatIsNormalInTheKeyIsNormalForTheHandler(t *testing.T) {
	for name, c := range map[string]struct {
		policy middleware.Policy
		field  string
		values []string // all of them one key, or else the handler's answer to each is its own
	}{
		"encodings": {middleware.Policy{Encodings: []string{"gzip", "br"}}, "Accept-Encoding", []string{"evil, gzip", "gzip", "gzip;q=0.5", "gzip,  zstd", "br", "gzip, br", "br, gzip", "identity", "*"}},
		"a cookie":  {middleware.Policy{Cookies: []string{"a"}}, "Cookie", []string{`a="1"`, "a=1", "b=2; a=1", "a=1; a=2", "a=2; a=1", "a=", "a"}},
		"a header":  {middleware.Policy{Headers: []string{"X-A"}}, "X-A", []string{"1", "01", "1,2", "1,,2", ",1"}},
		"a query":   {middleware.Policy{Query: []string{"a"}}, "", []string{"a=1", "b=2&a=1", "a=%31", "a=1&a=2", "a=1&&a=2", "a=", "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				for i := range c.values { // whoever comes first
					s := p.open(t, under(c.policy), fresh(func(r *http.Request) string { return r.Header.Get(c.field) + "?" + r.URL.RawQuery }))
					ask := func(value string) reply {
						if c.field == "" {
							return s.get("/?" + value)
						}
						return s.get("/", c.field, value)
					}
					first := ask(c.values[i])
					for _, value := range c.values {
						alone := p.open(t, under(c.policy), s.source.handler.ServeHTTP)
						a := ask(value)
						s2 := s
						s = alone
						want := ask(value)
						s = s2
						if a.body != want.body {
							t.Errorf("after %q (%q), %q got %q, but alone %q", c.values[i], first.body, value, a.body, want.body)
						}
					}
				}
			})
		})
	}
}
