package middleware

import (
	"context"
	"net/http"

	"github.com/go-chi/chi/v5"
)

// Chi is Handler for chi, to be used with With, Group, Route, Mount or Use. Events carry the route's pattern.
// A handler that runs for a load has a routing context of its own: chi uses a request's again as soon as that
// has ended.
func (c *Cache) Chi(next http.Handler) http.Handler {
	if next == nil {
		panic("middleware: Chi of nil")
	}
	return &handler{
		cache: c, next: next,
		route: chiPattern,
		saveRoute: func(r *http.Request) any {
			if rctx := chi.RouteContext(r.Context()); rctx != nil {
				return rctx.Clone()
			}
			return (*chi.Context)(nil)
		},
		restoreRoute: func(ctx context.Context, saved any) context.Context {
			if rctx := saved.(*chi.Context); rctx != nil {
				return context.WithValue(ctx, chi.RouteCtxKey, rctx.Clone())
			}
			return ctx
		},
	}
}

// chiPattern returns the whole pattern, also where the routers below have not been asked yet.
func chiPattern(r *http.Request) string {
	rctx := chi.RouteContext(r.Context())
	if rctx == nil {
		return ""
	}
	if rctx.Routes != nil {
		path := r.URL.RawPath
		if path == "" {
			path = r.URL.Path
		}
		if pattern := rctx.Routes.Find(chi.NewRouteContext(), r.Method, path); pattern != "" {
			return pattern
		}
	}
	return rctx.RoutePattern()
}
