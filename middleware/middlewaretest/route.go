package middlewaretest

import (
	"context"
	"net/http"
	"net/http/httptest"
)

// T is what the checks need of *testing.T, *testing.B or *testing.F.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Route is a handler together with the cache that is to stand in front of it.
type Route struct {
	// Handler is what the cache would stand in front of, without the cache. Required.
	Handler http.Handler

	// Cache returns the middleware of a new, empty cache with the policy that the route has in production,
	// such as the method Handler of a middleware.Cache over a memory store. It is called many times in a
	// check. Required by all checks but [CheckCookies].
	Cache func() func(http.Handler) http.Handler

	// Request returns a new request for the route. It is called many times; the requests must be equal. Nil
	// means GET of the path /.
	Request func() *http.Request

	// Headers are tried beside those that the checks know: each value alone, and never two of them together.
	// Give here what the handler, or anything it calls, is known to read. Nil: nothing more.
	Headers http.Header

	// Ignore names response headers that may differ between two answers to the same request, such as a
	// request's number. Age, Cache-Status, Date and Expires are ignored always. Nil: nothing more.
	Ignore []string

	// Body takes out of a body what may differ between two answers to the same request, such as the time of
	// day. It may change what it is given. Nil: bodies are compared as they are.
	Body func(body []byte) []byte
}

func (r *Route) request() *http.Request {
	if r.Request == nil {
		return httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/", nil)
	}
	return r.Request()
}

// cached returns the handler behind a new cache.
func (r *Route) cached(t T) http.Handler {
	t.Helper()
	if r.Handler == nil || r.Cache == nil {
		t.Fatalf("middlewaretest: Route needs a Handler and a Cache")
		return http.NotFoundHandler() // for a T whose Fatalf returns
	}
	return r.Cache()(r.Handler)
}

// Check runs all checks, with a crowd of 20.
func Check(t T, r Route) {
	t.Helper()
	CheckHeaders(t, r)
	CheckCookies(t, r)
	CheckCollapse(t, r, 20)
}
