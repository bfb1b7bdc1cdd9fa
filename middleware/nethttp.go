package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/herdgate/herdgate/stampede"
)

// Cache is a middleware that keeps responses. It is made by New and safe for concurrent use.
type Cache struct {
	guard    *stampede.Guard[*stored]
	opts     *Options
	variants *variants
	passes   *passes

	policy     policy
	statusName string
	bypasses   map[string]string // what Cache-Status says of requests that go past the cache, by why
}

// New makes a cache over store. opts may be nil. All faults are returned at once, joined.
func New(store stampede.Store, opts *Options) (*Cache, error) {
	o := new(Options)
	if opts != nil {
		*o = *opts
	}
	p, err := o.Policy.compile()
	errs := []error{o.validate(), err}
	c := &Cache{opts: o, policy: p, statusName: o.StatusName, variants: new(variants), passes: new(passes)}
	switch c.statusName {
	case "":
		c.statusName = "herdgate"
	case "-":
		c.statusName = ""
	}
	c.bypasses = c.bypassTexts()
	guard := o.guard()
	c.guard, err = stampede.New[*stored](store, &guard)
	if fault := errors.Join(append(errs, err)...); fault != nil {
		return nil, fault
	}
	return c, nil
}

// With returns a cache for routes with another policy. It shares the store and all else with c. A URL's responses
// are served under both policies where these name the same Version, Headers, Cookies and Encodings, and both have an
// Identity or neither has: that must mean the same, then. Purge and unsafe methods reach all of one Version.
func (c *Cache) With(policy *Policy) (*Cache, error) {
	p, err := policy.compile()
	if err != nil {
		return nil, err
	}
	other := *c
	other.policy = p
	return &other, nil
}

// Handler returns next behind the cache.
//
// To load, next runs on a goroutine of its own, with a copy of the request, which outlives the client's
// leaving; it must not use anything of the request's that ends with it. Its ResponseWriter offers Flush, the
// deadlines and EnableFullDuplex, but not Hijack. Requests that go past the cache run next as they
// are.
func (c *Cache) Handler(next http.Handler) http.Handler {
	if next == nil {
		panic("middleware: Handler of nil")
	}
	return &handler{cache: c, next: next, route: func(r *http.Request) string { return r.Pattern }}
}

// Purge removes what is stored for a URL, in all variants, fleet-wide. Loads under way will not bring it back.
// The URL is absolute, or, with Options.Host, begins with a slash. A query must be written as clients
// write it; see Policy.Query, which is that of the cache that Purge is called on. Errors are those of Guard.Delete.
func (c *Cache) Purge(ctx context.Context, rawURL string) error {
	u, err := url.Parse(rawURL)
	if err != nil {
		return fmt.Errorf("middleware: purge: %w", err)
	}
	if u.Host == "" && c.opts.Host == "" {
		return fmt.Errorf("middleware: purge %q: it names no host", rawURL)
	}
	return c.guard.Delete(ctx, c.keysOf(u.Host, u, "")...)
}

// PurgeRequest removes what is stored for the URL of r, like Purge. r must have come the way of the requests
// that are served: where a layer outside the cache rewrites URLs, like http.StripPrefix, Purge does not know
// what it does.
func (c *Cache) PurgeRequest(ctx context.Context, r *http.Request) error {
	return c.guard.Delete(ctx, c.keysOf(r.Host, r.URL, before(r, r.URL.EscapedPath()))...)
}

// keysOf returns the names of all base entries for a URL.
func (c *Cache) keysOf(host string, u *url.URL, before string) []string {
	schemes := []string{"http", "https"}
	if c.opts.Scheme != "" {
		schemes = []string{c.opts.Scheme}
	}
	var names []string
	for _, scheme := range schemes {
		t := target{scheme: scheme, path: u.EscapedPath(), query: c.policy.query(u), before: before}
		if t.host = c.opts.Host; t.host == "" {
			t.host = plainHost(scheme, host)
		}
		for _, class := range classes {
			_, name := baseKey(c.policy.Version, class, &t)
			names = append(names, name)
		}
	}
	return names
}

// Stats returns the guard's counts since the cache was made: a request may be more than one call of the
// guard, and those that go past the cache are none.
func (c *Cache) Stats() stampede.Stats { return c.guard.Stats() }

// Close ends loading; it is Guard.Close. Requests that come later are served from the store where that is
// possible, and by the handler else. The store stays open.
func (c *Cache) Close(ctx context.Context) error { return c.guard.Close(ctx) }
