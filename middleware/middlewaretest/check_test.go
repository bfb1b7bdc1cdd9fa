package middlewaretest_test

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/herdgate/herdgate/middleware/middlewaretest"
)

// reports is a T that keeps what it is told.
type reports struct {
	errors []string
	fatal  []string
}

func (r *reports) Helper()                      {}
func (r *reports) Errorf(f string, args ...any) { r.errors = append(r.errors, fmt.Sprintf(f, args...)) }
func (r *reports) Fatalf(f string, args ...any) { r.fatal = append(r.fatal, fmt.Sprintf(f, args...)) }

// names returns the headers that the errors are about, each once.
func (r *reports) names() []string {
	var list []string
	for _, e := range r.errors {
		if m := regexp.MustCompile(`^middlewaretest: ([\w-]+): `).FindStringSubmatch(e); m != nil {
			list = append(list, m[1])
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func route(h http.HandlerFunc) middlewaretest.Route {
	return middlewaretest.Route{Handler: h, Cache: newCache}
}

// page is a handler whose answer depends on what f makes of the request.
func page(f func(r *http.Request) string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "<p>"+f(r)) }
}

func TestGoodHandlersPassAllChecks(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"looks at nothing":         page(func(*http.Request) string { return "the report" }),
		"looks at the URL":         page(func(r *http.Request) string { return r.URL.String() }),
		"answers nothing":          func(http.ResponseWriter, *http.Request) {},
		"says what it varies with": varying(page(func(r *http.Request) string { return r.Header.Get("Accept-Language") }), "Accept-Language"),
		"is not found, for all":    http.NotFound,
	} {
		t.Run(name, func(t *testing.T) { middlewaretest.Check(t, route(h)) })
	}
}

func varying(h http.Handler, names ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Vary"] = names
		h.ServeHTTP(w, r)
	}
}

func TestHeadersThatChangeTheAnswerAreReported(t *testing.T) {
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    []string
	}{
		"in the body": {
			page(func(r *http.Request) string { return r.Header.Get("X-Forwarded-Host") }),
			[]string{"X-Forwarded-Host"},
		},
		"in a header": {
			func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Location", cmp.Or(r.Header.Get("X-Forwarded-Proto"), "https")+"://example.com/")
				w.WriteHeader(http.StatusMovedPermanently)
			},
			[]string{"X-Forwarded-Proto"},
		},
		"in the status": {
			func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("X-Http-Method-Override") == http.MethodPost {
					w.WriteHeader(http.StatusNotFound)
				}
			},
			[]string{"X-Http-Method-Override"},
		},
		"by another URL": {
			page(func(r *http.Request) string {
				return cmp.Or(r.Header.Get("X-Original-URL"), r.Header.Get("X-Rewrite-URL"), r.URL.Path)
			}),
			[]string{"X-Original-Url", "X-Rewrite-Url"},
		},
		"by who asks": {
			page(func(r *http.Request) string { return r.UserAgent() + r.Header.Get("Forwarded") }),
			[]string{"Forwarded", "User-Agent"},
		},
		// What a compressor does that names what it looked at only when it has compressed.
		"named in Vary only when it changes something": {
			func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Accept-Encoding") == "gzip" {
					w.Header().Set("Vary", "Accept-Encoding")
					w.Header().Set("Content-Encoding", "gzip")
				}
			},
			[]string{"Accept-Encoding"},
		},
		"named in Vary only when it changes nothing": {
			func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Origin") == "" {
					w.Header().Set("Vary", "Origin")
					return
				}
				w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
			},
			[]string{"Origin"},
		},
		"into an abort": {
			func(_ http.ResponseWriter, r *http.Request) {
				if r.Header.Get("X-Real-IP") != "" {
					panic(http.ErrAbortHandler)
				}
			},
			[]string{"X-Real-Ip"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got reports
			middlewaretest.CheckHeaders(&got, route(c.handler))
			if !slices.Equal(got.names(), c.want) || got.fatal != nil {
				t.Errorf("reported %q, want %q\n%s%s", got.names(), c.want, strings.Join(got.errors, "\n"), got.fatal)
			}
		})
	}
}

func TestHeadersOfTheUserAreTriedToo(t *testing.T) {
	r := route(page(func(r *http.Request) string { return r.Header.Get("X-Experiment") }))
	var got reports
	middlewaretest.CheckHeaders(&got, r)
	if len(got.errors) != 0 {
		t.Errorf("without: %q", got.errors)
	}
	r.Headers = http.Header{"X-Experiment": {"", "blue", "green"}}
	middlewaretest.CheckHeaders(&got, r)
	if len(got.errors) != 2 {
		t.Errorf("want one report for each value that changes something: %q", got.errors)
	}
}

func TestHeaderThatTheRequestHasAlreadyIsNoDifference(t *testing.T) {
	r := route(page(func(r *http.Request) string { return r.Header.Get("X-Requested-With") }))
	r.Request = func() *http.Request {
		req := httptest.NewRequest(http.MethodGet, "/a", nil)
		req.Header.Set("X-Requested-With", "XMLHttpRequest")
		return req
	}
	middlewaretest.CheckHeaders(t, r)
}

func TestAnswersThatDifferByThemselvesAreRefusedUnlessThatIsTakenOut(t *testing.T) {
	var n atomic.Int64
	r := route(func(w http.ResponseWriter, r *http.Request) {
		id := fmt.Sprint(n.Add(1))
		w.Header().Set("X-Request-Id", id)
		_, _ = io.WriteString(w, "number "+id+" for "+r.UserAgent())
	})
	var got reports
	if middlewaretest.CheckHeaders(&got, r); len(got.fatal) != 1 || !strings.Contains(got.fatal[0], "X-Request-Id") {
		t.Errorf("with nothing taken out: %q", got)
	}
	got = reports{}
	r.Ignore = []string{"X-Request-Id"}
	if middlewaretest.CheckHeaders(&got, r); len(got.fatal) != 1 || !strings.Contains(got.fatal[0], "the body") {
		t.Errorf("with the header taken out: %q", got)
	}
	got = reports{}
	r.Body = func(body []byte) []byte { return regexp.MustCompile(`\d+ for`).ReplaceAll(body, nil) }
	if middlewaretest.CheckHeaders(&got, r); len(got.fatal) != 0 || !slices.Equal(got.names(), []string{"User-Agent"}) {
		t.Errorf("with both taken out: %q", got)
	}
}

func TestCookiesAreReportedOnceEach(t *testing.T) {
	var got reports
	middlewaretest.CheckCookies(&got, route(func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "visit", Value: "1"})
		if _, err := r.Cookie("session"); err == nil {
			http.SetCookie(w, &http.Cookie{Name: "session", Value: "renewed"})
		}
		w.Header().Add("Set-Cookie", "nonsense")
	}))
	if len(got.errors) != 3 {
		t.Fatalf("%q", got.errors)
	}
	for i, name := range []string{"visit", "nonsense", "session"} {
		if !strings.Contains(got.errors[i], `"`+name+`"`) {
			t.Errorf("%q is not about %s", got.errors[i], name)
		}
	}
}

func TestCollapseReportsMoreThanOneRun(t *testing.T) {
	for name, c := range map[string]struct {
		header http.Header
		cache  func() func(http.Handler) http.Handler
		runs   string
	}{
		"a private answer":          {http.Header{"Cache-Control": {"private"}}, newCache, "20 runs"},
		"a cookie":                  {http.Header{"Set-Cookie": {"a=b"}}, newCache, "20 runs"},
		"a cache that does nothing": {nil, func() func(http.Handler) http.Handler { return func(h http.Handler) http.Handler { return h } }, "20 runs"},
	} {
		t.Run(name, func(t *testing.T) {
			var got reports
			r := route(func(w http.ResponseWriter, _ *http.Request) {
				for name, values := range c.header {
					w.Header()[name] = values
				}
			})
			r.Cache = c.cache
			middlewaretest.CheckCollapse(&got, r, 20)
			if len(got.errors) != 1 || !strings.Contains(got.errors[0], c.runs) {
				t.Errorf("%q", got.errors)
			}
		})
	}
}

func TestCollapseReportsAnswersThatDiffer(t *testing.T) {
	var n atomic.Int64
	r := route(page(func(*http.Request) string { return "the report" }))
	inner := r.Cache
	r.Cache = func() func(http.Handler) http.Handler {
		mw := inner()
		return func(h http.Handler) http.Handler {
			cached := mw(h)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				cached.ServeHTTP(w, r)
				if n.Add(1) == 2 {
					_, _ = io.WriteString(w, "twice")
				}
			})
		}
	}
	var got reports
	if middlewaretest.CheckCollapse(&got, r, 5); len(got.errors) != 1 || !strings.Contains(got.errors[0], "the body differs") {
		t.Errorf("%q", got.errors)
	}
}

func TestRouteThatLacksSomethingIsRefused(t *testing.T) {
	h := page(func(*http.Request) string { return "" })
	for name, r := range map[string]middlewaretest.Route{"a handler": {Cache: newCache}, "a cache": {Handler: h}} {
		var got reports
		if middlewaretest.CheckCollapse(&got, r, 2); len(got.fatal) == 0 {
			t.Errorf("collapse without %s was not refused", name)
		}
		got = reports{}
		if middlewaretest.CheckHeaders(&got, r); len(got.fatal) == 0 {
			t.Errorf("headers without %s were not refused", name)
		}
	}
	var got reports
	if middlewaretest.CheckCookies(&got, middlewaretest.Route{}); len(got.fatal) == 0 {
		t.Error("cookies without a handler were not refused")
	}
}
