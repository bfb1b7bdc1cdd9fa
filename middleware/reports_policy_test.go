package middleware_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/herdgate/herdgate/middleware"
)

// under is a setting with a policy.
func under(p middleware.Policy) setting { return setting{opts: middleware.Options{Policy: p}} }

// Next.js CVE-2024-46982 (GHSA-gp8f-8m3g-qvj9): a header that was no part of the key made a page for one
// caller cacheable, and what it changed was kept for all. What is stripped, the handler does not see.
func TestStrippedHeadersChangeNeitherTheAnswerNorItsCaching(t *testing.T) {
	fields := []string{
		"X-Now-Route-Matches", "1", "X-Forwarded-Host", "evil.example", "X-Original-URL", "/admin", "Forwarded", "host=evil.example",
		"X-HTTP-Method-Override", "POST", "User-Agent", "evil",
	}
	protocols(t, func(t *testing.T, p protocol) {
		strip := []string{"X-Now-*", "X-Forwarded-*", "x-original-url", "Forwarded", "X-HTTP-Method-Override", "User-Agent"}
		s := p.open(t, under(middleware.Policy{Strip: strip}), func(w http.ResponseWriter, r *http.Request) {
			seen := ""
			for i := 0; i < len(fields); i += 2 {
				if v := r.Header.Get(fields[i]); v != "" {
					seen += fields[i] + ": " + v + "\n"
				}
			}
			w.Header().Set("Cache-Control", "max-age=60")
			if seen != "" {
				w.Header().Set("Cache-Control", "s-maxage=1, stale-while-revalidate")
			}
			_, _ = io.WriteString(w, "page "+seen)
		})
		for i := 0; i < len(fields); i += 2 {
			target := fmt.Sprint("/", i)
			for _, f := range [][]string{fields[i : i+2], nil, fields} {
				a := s.get(target, f...)
				a.wants(t, "page ")
				if got := a.header.Get("Cache-Control"); got != "max-age=60" {
					t.Errorf("%q: Cache-Control %q", f, got)
				}
			}
		}
		s.ran(len(fields) / 2)
	})
}

// A field that a policy strips, but that Vary or the key names, is not stripped: it tells answers apart.
func TestHeadersOfTheKeyAreNotStripped(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		s := p.open(t, under(middleware.Policy{Strip: []string{"X-*"}, Headers: []string{"X-Tenant"}}), fresh(func(r *http.Request) string {
			return r.Header.Get("X-Tenant") + r.Header.Get("X-Other")
		}))
		for range 2 {
			for _, tenant := range []string{"a", "b", ""} {
				s.get("/", "X-Tenant", tenant, "X-Other", "1").wants(t, tenant)
			}
		}
		s.ran(3)
	})
}

// milwil-2/climb-elo#205: the key had a parameter in its normal form, and the page repeated it in the form of
// whoever came first. What the key does not know, the handler does not see: a parameter that does not count
// is taken out, and one that counts is there as it was written.
func TestQueryThatDoesNotCountIsNotSeen(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		s := p.open(t, under(middleware.Policy{Query: []string{"q", "page"}}), fresh(func(r *http.Request) string {
			q := r.URL.Query()
			return fmt.Sprintf("%q %q %q", q["q"], q["page"], q["utm"])
		}))
		for _, c := range []struct{ target, want string }{
			{"/?q=a", `["a"] [] []`},
			{"/?q=a&utm=1", `["a"] [] []`},
			{"/?utm=2&q=a", `["a"] [] []`},
			{"/?q=a&utm=<script>", `["a"] [] []`},
			{"/?q=A", `["A"] [] []`},
			{"/?q=a&q=b", `["a" "b"] [] []`},
			{"/?q=b&q=a", `["b" "a"] [] []`},
			{"/?q=a&page=2", `["a"] ["2"] []`},
			{"/?q=a%26page=2", `["a&page=2"] [] []`},
			{"/?q=%zz&page=3", `[] ["3"] []`},
			{"/?q=a;page=2", `[] [] []`},
			{"/", `[] [] []`},
			{"/?Q=a", `[] [] []`},
			{"/?q", `[""] [] []`},
		} {
			for range 2 {
				s.get(c.target).wants(t, c.want)
			}
		}
	})
}

// The same for cookies: those that do not count are not seen, the others part the answers.
func TestCookiesThatDoNotCountAreNotSeen(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		s := p.open(t, under(middleware.Policy{Cookies: []string{"lang"}}), fresh(func(r *http.Request) string { return r.Header.Get("Cookie") }))
		for range 2 {
			for cookie, want := range map[string]string{
				"lang=de; session=alice": "lang=de",
				"session=bob; lang=de":   "lang=de",
				"lang=fr; session=alice": "lang=fr",
				"session=carol":          "",
				"":                       "",
				"LANG=de":                "",
				"lang=fr ; x=lang=de":    "lang=fr",
			} {
				s.get("/", "Cookie", cookie).wants(t, want)
			}
		}
		s.ran(3)
	})
}

// Next.js CVE-2023-46298, CVE-2025-49826: an empty answer was kept for all. The TTL of a policy is for the
// statuses it names, and for bodies that are not empty unless it says so.
func TestTTLOfThePolicyIsForListedStatusesWithABody(t *testing.T) {
	for name, c := range map[string]struct {
		policy middleware.Policy
		status int
		body   string
		stored bool
	}{
		"a page":                       {middleware.Policy{TTL: time.Minute}, 200, page, true},
		"not found":                    {middleware.Policy{TTL: time.Minute}, 404, page, true},
		"an empty page":                {middleware.Policy{TTL: time.Minute}, 200, "", false},
		"an empty page, expected":      {middleware.Policy{TTL: time.Minute, EmptyBodies: true}, 200, "", true},
		"no content":                   {middleware.Policy{TTL: time.Minute}, 204, "", false},
		"a passing redirect":           {middleware.Policy{TTL: time.Minute}, 302, page, false},
		"a passing redirect, listed":   {middleware.Policy{StatusTTL: map[int]time.Duration{302: time.Minute}}, 302, page, true},
		"not found, taken off":         {middleware.Policy{TTL: time.Minute, StatusTTL: map[int]time.Duration{404: 0}}, 404, page, false},
		"a request that makes it fail": {middleware.Policy{TTL: time.Minute}, 400, page, false},
		"a header that is too long":    {middleware.Policy{TTL: time.Minute}, 431, page, false},
		"too many":                     {middleware.Policy{TTL: time.Minute}, 429, page, false},
		"a failure":                    {middleware.Policy{TTL: time.Minute}, 500, page, false},
		"a failure, in override":       {middleware.Policy{TTL: time.Minute, Mode: middleware.Override}, 503, page, false},
		"not authorized":               {middleware.Policy{TTL: time.Minute}, 401, page, false},
		"not authorized, in override":  {middleware.Policy{TTL: time.Minute, Mode: middleware.Override}, 403, page, false},
		"part of a page, in override":  {middleware.Policy{TTL: time.Minute, Mode: middleware.Override}, 206, page, false},
		"not modified, unasked":        {middleware.Policy{TTL: time.Minute, Mode: middleware.Override}, 304, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				s := p.play(t, under(c.policy), scripted{{c.status, c.body, nil}})
				for range 3 {
					s.get("/")
				}
				s.ran(map[bool]int{true: 1, false: 3}[c.stored])
			})
		})
	}
}

// A policy that overrides freshness overrides nothing else: what is for one caller stays his.
func TestOverrideIsNeverOverPrivacy(t *testing.T) {
	for name, header := range unshareable {
		switch name {
		case "stale at once", "stale at once for all", "an expired date":
			continue // freshness is the policy's
		}
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				set := under(middleware.Policy{Mode: middleware.Override, TTL: time.Minute, StaleFor: time.Hour})
				s := p.open(t, set, numbered(header...))
				for i := range 3 {
					s.get("/").wants(t, fmt.Sprint("answer ", i+1))
				}
				gate := make(chan struct{})
				s = p.open(t, set, gated(gate, header...))
				c := s.same(10, "/")
				close(gate)
				distinct(t, c.wait())
			})
		})
	}
	protocols(t, func(t *testing.T, p protocol) {
		s := p.open(t, under(middleware.Policy{Mode: middleware.Override, TTL: time.Minute}), who())
		for _, name := range []string{"alice", "bob", "alice"} {
			s.get("/", "Authorization", name).wants(t, "for "+name)
			s.get("/", "Cookie", name).wants(t, "for "+name)
		}
	})
}

// A policy may let answers be shared although they set a cookie. The cookie itself is never shared: it is
// for the request that ran the handler.
func TestStrippedCookieIsForItsOwnRequestOnly(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		gate := make(chan struct{})
		s := p.open(t, under(middleware.Policy{StripSetCookie: true}), gated(gate, "Set-Cookie", "a=1", "Set-Cookie", "b=1"))
		c := s.same(10, "/")
		close(gate)
		for i, a := range append(c.wait(), s.get("/")) {
			a.wants(t, "answer 1")
			if got, want := len(a.header["Set-Cookie"]), map[bool]int{true: 2}[i == 0]; got != want {
				t.Errorf("request %d got %d cookies, want %d", i, got, want)
			}
		}
		s.ran(1)
	})
}

// With an Identity each name has answers of its own, and a crowd of one name is one run.
func TestIdentitiesShareNothing(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		gate := make(chan struct{})
		set := under(middleware.Policy{Identity: func(r *http.Request) string { return r.Header.Get("X-User") }})
		s := p.open(t, set, func(w http.ResponseWriter, r *http.Request) {
			<-gate
			fresh(func(r *http.Request) string { return "for " + r.Header.Get("X-User") })(w, r)
		})
		names := []string{"alice", "bob", "carol\x80", "a", "lice", "alice,bob"}
		c := s.crowd(60, func(i int) *http.Request {
			name := names[i%len(names)]
			return s.request("/", "X-User", name, "Cookie", name, "Authorization", name)
		})
		s.running(len(names))
		close(gate)
		for i, a := range c.wait() {
			a.wants(t, "for "+names[i%len(names)])
		}
		s.ran(len(names))
		s.get("/").wants(t, "for ")
	})
}
