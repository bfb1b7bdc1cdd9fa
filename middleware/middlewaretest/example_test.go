package middlewaretest_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/herdgate/herdgate/middleware"
	"github.com/herdgate/herdgate/middleware/middlewaretest"
	"github.com/herdgate/herdgate/stampede"
)

// report is the handler of an application. It builds links with the host that a proxy says it was asked for.
func report(w http.ResponseWriter, r *http.Request) {
	host := r.Host
	if forwarded := r.Header.Get("X-Forwarded-Host"); forwarded != "" {
		host = forwarded
	}
	_, _ = io.WriteString(w, `<a href="https://`+host+`/next">next</a>`)
}

// newReportCache is the cache that the application puts in front of it, over a store of its own.
func newReportCache() func(http.Handler) http.Handler {
	cache, err := middleware.New(new(stampede.MemoryStore), &middleware.Options{
		Policy: middleware.Policy{TTL: time.Minute},
	})
	if err != nil {
		panic(err)
	}
	return cache.Handler
}

// printer prints what a *testing.T would report.
type printer struct{}

func (printer) Helper()                      {}
func (printer) Errorf(f string, args ...any) { fmt.Println(wrap(fmt.Sprintf(f, args...))) }
func (printer) Fatalf(f string, args ...any) { fmt.Println(wrap(fmt.Sprintf(f, args...))) }

func wrap(s string) string {
	return strings.ReplaceAll(strings.TrimPrefix(s, "middlewaretest: "), ": name", ":\nname")
}

func ExampleCheck() {
	t := printer{} // in a test: the *testing.T
	middlewaretest.Check(t, middlewaretest.Route{
		Handler: http.HandlerFunc(report),
		Cache:   newReportCache,
	})
	// Output:
	// X-Forwarded-Host: "other.example" changes the body, and who comes after gets to see that without having sent the header:
	// name it in Vary, always, or have it in the key or out of the request
}

// The policy counts: what it strips, keys or lets pass is no fault any more.
func TestChecksLookAtTheHandlerAndItsPolicyTogether(t *testing.T) {
	for name, c := range map[string]struct {
		policy middleware.Policy
		header string // that the handler repeats
		fault  bool
	}{
		"unkeyed":                          {middleware.Policy{}, "X-Forwarded-Host", true},
		"stripped":                         {middleware.Policy{Strip: []string{"X-Forwarded-*"}}, "X-Forwarded-Host", false},
		"keyed":                            {middleware.Policy{Headers: []string{"X-Forwarded-Host"}}, "X-Forwarded-Host", false},
		"a cookie, which passes":           {middleware.Policy{}, "Cookie", false},
		"a cookie, said not to matter":     {middleware.Policy{Cookies: []string{}}, "Cookie", false},
		"credentials, which pass":          {middleware.Policy{}, "Authorization", false},
		"credentials, said not to matter":  {middleware.Policy{Authorization: middleware.IgnoreAuthorization}, "Authorization", false},
		"a language that Vary should name": {middleware.Policy{}, "Accept-Language", true},
	} {
		t.Run(name, func(t *testing.T) {
			r := route(page(func(r *http.Request) string { return r.Header.Get(c.header) }))
			c.policy.TTL = time.Minute
			r.Cache = func() func(http.Handler) http.Handler {
				cache, err := middleware.New(new(stampede.MemoryStore), &middleware.Options{Policy: c.policy})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = cache.Close(context.Background()) })
				return cache.Handler
			}
			var got reports
			middlewaretest.Check(&got, r)
			if (len(got.errors) > 0) != c.fault || len(got.fatal) > 0 {
				t.Errorf("%q %q", got.errors, got.fatal)
			}
		})
	}
}
