package middleware_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
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

// What the handler says counts also where a layer outside has said the same before.
func TestAttackWhatALayerOutsideHasSaidToo(t *testing.T) {
	for _, f := range [][2]string{{"Cache-Control", "private"}, {"Cache-Control", "no-store"}, {"Vary", "X-Who"}, {"Vary", "*"}} {
		t.Run(f[0]+f[1], func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				layer := func(next http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						w.Header().Set(f[0], f[1]) // a default
						next.ServeHTTP(w, r)
					})
				}
				s := p.open(t, setting{outer: layer, opts: minutes()}, func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set(f[0], f[1])
					fmt.Fprint(w, r.Header.Get("X-Who"))
				})
				s.get("/", "X-Who", "alice").wants(t, "alice")
				s.get("/", "X-Who", "bob").wants(t, "bob")
			})
		})
	}
}

// A hit has the Content-Type of the miss, not what its body looks like.
func TestAttackContentTypeOfALayerOutside(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		layer := func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/plain; charset=utf-8")
				next.ServeHTTP(w, r)
			})
		}
		s := p.open(t, setting{outer: layer, opts: minutes()}, func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "<script>alert(1)</script>")
		})
		for range 2 {
			if got := s.get("/"); got.header.Get("Content-Type") != "text/plain; charset=utf-8" {
				t.Error(got)
			}
		}
	})
}

// net/http sends fields as the map has them; what they mean does not depend on their case.
func TestAttackFieldsWrittenAsTheyAre(t *testing.T) {
	for _, f := range [][2]string{{"cache-control", "private"}, {"set-cookie", "session=alice"}, {"vary", "X-Who"}} {
		t.Run(f[0], func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				s := p.open(t, setting{opts: minutes()}, func(w http.ResponseWriter, r *http.Request) {
					w.Header()[f[0]] = []string{f[1]}
					fmt.Fprint(w, r.Header.Get("X-Who"))
				})
				s.get("/", "X-Who", "alice").wants(t, "alice")
				s.get("/", "X-Who", "bob").wants(t, "bob")
			})
		})
	}
}

// net/http makes spaces of line ends in values, and trims them: so must who reads them.
func TestAttackLineEndsInCacheControl(t *testing.T) {
	for _, v := range []string{"private\n", "\r\nno-store", "max-age=60,\n private", "max-age=60,\r\n\tno-store"} {
		t.Run(fmt.Sprintf("%q", v), func(t *testing.T) {
			s := serve(t, &middleware.Options{Policy: middleware.Policy{TTL: time.Minute}}, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Cache-Control", v)
				fmt.Fprint(w, r.Header.Get("X-Who"))
			})
			a := s.get("/", "X-Who", "alice")
			b := s.get("/", "X-Who", "bob")
			if b.body != "bob" {
				t.Errorf("bob got %q; on the wire Cache-Control is %q; %s", b.body, a.Header["Cache-Control"], b.status())
			}
		})
	}
}

func raw(t *testing.T, addr, text string) answer {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	_, _ = io.WriteString(c, text)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(resp.Body)
	return answer{resp, string(b)}
}

// What the key does not have of an absolute-form target, the handler must not see either.
func TestAttackAbsoluteForm(t *testing.T) {
	for _, target := range []string{"http://alice:secret@HOST/p", "evil://HOST/p", "https://HOST/p"} {
		t.Run(target, func(t *testing.T) {
			s := serve(t, &middleware.Options{Policy: middleware.Policy{TTL: time.Minute}}, func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprint(w, r.URL.String())
			})
			host := s.server.Listener.Addr().String()
			a := raw(t, host, "GET "+strings.Replace(target, "HOST", host, 1)+" HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n")
			b := s.get("/p")
			if b.body != "/p" {
				t.Errorf("first %q %s; then %q %s", a.body, a.status(), b.body, b.status())
			}
		})
	}
}

// What is stored under a policy that names less is no answer under one that names more.
func TestAttackPolicyThatNamesMoreTakesNothingStoredWithout(t *testing.T) {
	for name, pol := range map[string]middleware.Policy{
		"headers":  {TTL: time.Minute, Headers: []string{"X-Who"}},
		"identity": {TTL: time.Minute, Identity: func(r *http.Request) string { return r.Header.Get("X-Who") }},
		"cookies":  {TTL: time.Minute, Cookies: []string{"who"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := minutes()
				cache := newCache(t, new(stampede.MemoryStore), &o)
				named, err := cache.With(&pol)
				if err != nil {
					t.Fatal(err)
				}
				h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					fmt.Fprint(w, "for "+r.Header.Get("X-Who")+r.Header.Get("Cookie"))
				})
				open, closed := cache.Handler(h), named.Handler(h)
				client := http1.connect(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("X-Who")+r.Header.Get("Cookie") != "" {
						closed.ServeHTTP(w, r)
						return
					}
					open.ServeHTTP(w, r)
				}))
				s := &scene{t: t, cache: cache, client: client}
				s.get("/").wants(t, "for ")
				if name == "cookies" {
					s.get("/", "Cookie", "who=bob").wants(t, "for who=bob")
				} else {
					s.get("/", "X-Who", "bob").wants(t, "for bob")
				}
			})
		})
	}
}

// Two lines and one with a comma are one key; a handler that uses Header.Get tells them apart.
func TestAttackLinesAndCommas(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		o := minutes()
		o.Policy.Headers = []string{"X-Who"}
		s := p.open(t, setting{opts: o}, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header.Get("X-Who")) })
		s.get("/", "X-Who", "alice", "X-Who", "bob").wants(t, "alice")
		s.get("/", "X-Who", "alice,bob").wants(t, "alice,bob")
	})
}

// Separators that are not quite right, and a quote that does not end: the careful reading is that it is private.
func TestAttackMalformedCacheControl(t *testing.T) {
	for _, v := range []string{"private; max-age=0", "no-cache; no-store", `max-age=60, ext="b, private`} {
		t.Run(fmt.Sprintf("%q", v), func(t *testing.T) {
			s := serve(t, &middleware.Options{Policy: middleware.Policy{TTL: time.Minute}}, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Cache-Control", v)
				fmt.Fprint(w, r.Header.Get("X-Who"))
			})
			s.get("/", "X-Who", "alice")
			if b := s.get("/", "X-Who", "bob"); b.body != "bob" {
				t.Errorf("bob got %q; %s", b.body, b.status())
			}
		})
	}
}
