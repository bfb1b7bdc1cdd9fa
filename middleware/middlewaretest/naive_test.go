package middlewaretest_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
)

// newCache makes a cache that knows the least: one answer for each URL and what Vary names, one run at a time.
func newCache() func(http.Handler) http.Handler {
	c := new(cache)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			e := c.entry(next, r)
			maps.Copy(w.Header(), e.header.Clone())
			w.WriteHeader(e.status)
			_, _ = w.Write(e.body)
		})
	}
}

type cache struct {
	mu      sync.Mutex
	entries []*entry
}

type entry struct {
	request *http.Request
	status  int
	header  http.Header
	body    []byte
}

// entry finds the answer, or has it made.
func (c *cache) entry(next http.Handler, r *http.Request) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.entries {
		if e.answers(r) {
			return e
		}
	}
	rec := httptest.NewRecorder()
	next.ServeHTTP(rec, r)
	e := &entry{r.Clone(r.Context()), rec.Code, rec.Result().Header, rec.Body.Bytes()}
	if e.header.Get("Set-Cookie") == "" && e.header.Get("Cache-Control") != "private" {
		c.entries = append(c.entries, e)
	}
	return e
}

func (e *entry) answers(r *http.Request) bool {
	if e.request.URL.String() != r.URL.String() {
		return false
	}
	for _, line := range e.header["Vary"] {
		for name := range strings.SplitSeq(line, ",") {
			name = strings.TrimSpace(name)
			if e.request.Header.Get(name) != r.Header.Get(name) {
				return false
			}
		}
	}
	return true
}
