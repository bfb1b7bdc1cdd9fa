// Package middlewaretest checks that a handler may safely stand behind a cache: that no request header
// changes its answer behind the cache's back, that it sets no cookies, that a crowd costs one run.
//
// Most of what is called cache poisoning, and most private pages that strangers got to see, come from a
// handler that looks at something which the cache does not. No cache can see that. A test of the handler
// can:
//
//	func TestReportMayBeCached(t *testing.T) {
//		middlewaretest.Check(t, middlewaretest.Route{Handler: report, Cache: newCache})
//	}
//
// The checks look from outside only, so they work with every policy, and with every middleware of the form
// func(http.Handler) http.Handler. What they try is a list: that they find nothing proves nothing about a
// header that is not on it; see [Route.Headers].
package middlewaretest
