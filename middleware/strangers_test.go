package middleware_test

import (
	"fmt"
	"net/http"
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
