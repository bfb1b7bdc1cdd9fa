package middlewaretest

import (
	"maps"
	"net/http"
	"slices"
)

// unkeyed are request headers that handlers, and the libraries under them, look at, and that a cache does
// not put into its key unless it is told to.
var unkeyed = http.Header{
	// Who and where the client says it is, often through a proxy that lets such headers pass.
	"Forwarded":          {"for=192.0.2.77;host=other.example;proto=https"},
	"X-Forwarded-For":    {"192.0.2.77"},
	"X-Forwarded-Host":   {"other.example"},
	"X-Forwarded-Port":   {"8443"},
	"X-Forwarded-Prefix": {"/other"},
	"X-Forwarded-Proto":  {"http", "https"},
	"X-Forwarded-Scheme": {"http", "https"},
	"X-Forwarded-Server": {"other.example"},
	"X-Forwarded-Ssl":    {"on"},
	"X-Host":             {"other.example"},
	"X-Real-Ip":          {"192.0.2.77"},
	"True-Client-Ip":     {"192.0.2.77"},
	"Client-Ip":          {"192.0.2.77"},

	// Another request than the one that the cache sees.
	"X-Original-Url":         {"/other"},
	"X-Rewrite-Url":          {"/other"},
	"X-Http-Method":          {"POST"},
	"X-Http-Method-Override": {"POST", "HEAD"},
	"X-Method-Override":      {"POST"},

	// What the client would like.
	"Accept":                    {"application/json", "text/html", "image/webp", "text/event-stream"},
	"Accept-Charset":            {"iso-8859-1"},
	"Accept-Encoding":           {"gzip", "br", "identity"},
	"Accept-Language":           {"de", "fr-CA"},
	"Accept-Profile":            {"other"},
	"Prefer":                    {"return=minimal"},
	"Save-Data":                 {"on"},
	"Upgrade-Insecure-Requests": {"1"},
	"X-Requested-With":          {"XMLHttpRequest"},
	"Purpose":                   {"prefetch"},
	"Sec-Purpose":               {"prefetch"},
	"Sec-Fetch-Mode":            {"cors"},
	"Sec-Fetch-Dest":            {"empty"},
	"Sec-Ch-Ua-Mobile":          {"?1"},
	"Sec-Ch-Ua-Platform":        {`"Android"`},
	"Viewport-Width":            {"320"},

	// Who the client is.
	"Authorization": {"Bearer alice", "Basic YWxpY2U6c2VjcmV0"},
	"Cookie":        {"session=alice", "lang=de"},
	"Origin":        {"https://other.example"},
	"Referer":       {"https://other.example/"},
	"User-Agent":    {"Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) Mobile/15E148", "Googlebot/2.1"},
	"X-Api-Key":     {"alice"},
	"X-Csrf-Token":  {"alice"},
	"X-Tenant":      {"alice"},
	"X-User":        {"alice"},
	"X-User-Id":     {"alice"},
}

// CheckHeaders reports every request header that changes the answer although the cache does not tell
// requests with it from requests without it. The handler must name such a header in Vary, always and not
// only in the answers that it changes; or the policy must have it in the key, or take it out of the request,
// or let requests with it pass.
//
// An answer is its status, its headers and its body. Of each header, some values are tried, one at a time:
// first a request without the header and then one with it, in a cache of their own, and then the other way
// round in another. Conditional and range requests are not tried.
func CheckHeaders(t T, r Route) {
	t.Helper()
	plain := r.first(t, nil)
	if again := r.first(t, nil); plain.difference(&again) != "" {
		t.Fatalf("middlewaretest: %s differs between two answers to the same request: take it out with Route.Ignore or Route.Body, "+
			"or nothing can be said of the headers", plain.difference(&again))
		return
	}
	for _, try := range r.tries() {
		r.tryHeader(t, &plain, try)
	}
}

// try is a header that a request is given.
type try struct{ name, value string }

func (r *Route) tries() []try {
	var list []try
	for _, headers := range []http.Header{unkeyed, r.Headers} {
		for _, name := range slices.Sorted(maps.Keys(headers)) {
			for _, value := range headers[name] {
				list = append(list, try{name, value})
			}
		}
	}
	return list
}

// first returns the answer of a cache that has seen nothing.
func (r *Route) first(t T, h *try) answer {
	t.Helper()
	return r.ask(r.cached(t), r.with(h))
}

// with returns the route's request, with a header more.
func (r *Route) with(h *try) *http.Request {
	req := r.request()
	if h != nil {
		req.Header.Set(h.name, h.value)
	}
	return req
}

func (r *Route) tryHeader(t T, plain *answer, h try) {
	t.Helper()
	if r.request().Header.Get(h.name) == h.value {
		return
	}
	cache := r.cached(t)
	special := r.ask(cache, r.with(&h))
	what := plain.difference(&special)
	if what == "" {
		return
	}
	poisoned := r.ask(cache, r.with(nil))
	cache = r.cached(t)
	r.ask(cache, r.with(nil))
	deaf := r.ask(cache, r.with(&h))
	switch {
	case poisoned.difference(plain) != "":
		t.Errorf("middlewaretest: %s: %q changes %s, and who comes after gets to see that without having sent the header: "+
			"name it in Vary, always, or have it in the key or out of the request", h.name, h.value, what)
	case deaf.difference(&special) != "":
		t.Errorf("middlewaretest: %s: %q changes %s, but not for who comes after somebody without the header: "+
			"name it in Vary, always, or have it in the key or out of the request", h.name, h.value, what)
	}
}
