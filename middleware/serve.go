package middleware

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/herdgate/herdgate/internal/budget"
	"github.com/herdgate/herdgate/stampede"
)

// handler is a handler behind the cache.
type handler struct {
	cache *Cache
	next  http.Handler
	route func(*http.Request) string // the pattern of the request's route

	// For routers whose data of a request ends with it: save is called while it lives, restore gives a
	// handler that outlives it its own. Nil: there is nothing to do.
	saveRoute    func(*http.Request) any
	restoreRoute func(context.Context, any) context.Context
}

func (h *handler) save(r *http.Request) any {
	if h.saveRoute == nil {
		return nil
	}
	return h.saveRoute(r)
}

func (h *handler) detached(ctx context.Context, saved any) context.Context {
	if h.restoreRoute == nil {
		return ctx
	}
	return h.restoreRoute(ctx, saved)
}

// ServeHTTP is the way of a request: past the cache, to what is stored and nothing else, or to the guard,
// which finds what is stored or has somebody run the handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	way, why := h.cache.policy.way(r)
	if way == wayChange {
		h.change(w, r)
		return
	}
	if way == wayAround {
		h.bypass(w, r, why)
		return
	}
	t, ok := h.cache.target(r)
	if !ok {
		h.bypass(w, r, "host")
		return
	}
	q := h.newRequest(w, r, t)
	if q.tooLong(q.base) {
		h.bypass(w, r, "key-size")
		return
	}
	defer q.end()
	if way == wayLook {
		q.look()
		return
	}
	q.serve()
}

type way uint8

const (
	wayGuard  way = iota
	wayLook       // only what is stored already is of use
	wayAround     // past the cache
	wayChange     // past the cache, and what is stored is invalid after it
)

// way decides by the request alone.
func (p *policy) way(r *http.Request) (w way, why string) {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodOptions, http.MethodTrace, http.MethodConnect, "PROPFIND", "REPORT", "SEARCH", "QUERY":
		return wayAround, "method" // safe, but not for a cache
	default:
		return wayChange, "method"
	}
	h := r.Header
	switch {
	case len(h["Upgrade"]) > 0:
		return wayAround, "upgrade"
	case eventStream(h["Accept"]):
		return wayAround, "event-stream"
	case r.ContentLength != 0:
		return wayAround, "body"
	case len(h["If-Match"]) > 0, len(h["If-Unmodified-Since"]) > 0:
		return wayAround, "condition"
	}
	authorization := authorized(r) && p.Authorization == BypassAuthorization
	cookie := len(h["Cookie"]) > 0 && p.Cookies == nil
	if (authorization || cookie) && (p.Identity == nil || p.Identity(r) == "") {
		if authorization {
			return wayAround, "authorization"
		}
		return wayAround, "cookie"
	}
	if r.Method == http.MethodHead || len(h["Range"]) > 0 {
		return wayLook, ""
	}
	if lines := h["Cache-Control"]; len(lines) > 0 {
		if cc := parseCacheControl(lines); cc.noStore || cc.onlyIfCached {
			return wayLook, "request"
		}
	}
	return wayGuard, ""
}

// authorized says whether the request says whom it is from, other than by cookies.
func authorized(r *http.Request) bool {
	return len(r.Header["Authorization"]) > 0 || r.URL.User != nil || r.TLS != nil && len(r.TLS.PeerCertificates) > 0
}

// serve asks the guard for the base entry and, if that is a spec, for the response that it leads to.
func (q *request) serve() {
	res, ex, err := q.fetch(q.baseName, q.loadBase)
	if ex == nil && err == nil && q.leads(res.Value) {
		if q.tooLong(q.variant) {
			q.letGo()
			q.apart("key-size")
			return
		}
		if ex = q.turnTo(q.varName); ex != nil {
			res.Stored = false
		} else {
			res, ex, err = q.fetch(q.varName, q.loadVariant)
		}
	}
	if ex == nil {
		q.letGo()
	}
	switch {
	case ex != nil:
		q.lead(ex, res.Stored)
	case err != nil:
		q.without(err)
	default:
		q.reuse(&res)
	}
}

// leads says whether a value is the spec that leads on, and follows it.
func (q *request) leads(s *stored) bool {
	if s == nil || !s.isSpec() || s.key != q.base {
		return false
	}
	q.spec = s
	q.variant = variantKey(q.base, s.gen, q.h.cache.policy.dimensions(q.r, q.identity, s.vary))
	q.varName = q.variant.hash()
	return true
}

// tooLong says whether a key, of which each stored response has a copy, is longer than a client may make it.
func (q *request) tooLong(k key) bool {
	most := q.h.cache.policy.MaxHeader
	return most > 0 && len(k) > most
}

type loadFunc func(context.Context, *stampede.Load[*stored]) (*stored, error)

// fetch asks the guard. If what came of it is a run of the handler for this very request, it returns that.
func (q *request) fetch(name string, load loadFunc) (res stampede.Result[*stored], ex *exchange, err error) {
	res, err = q.h.cache.guard.Fetch(&q.wait, name, load)
	if err == nil && res.From != stampede.FromLoad && !res.Behind {
		return res, nil, nil
	}
	q.secure()
	if err == nil {
		return res, q.led(res.Value), nil
	}
	if ex = q.latest(); ex != nil && !q.wait.isDetached() && !ex.isDone() {
		ex = nil // it was given up, or the client has left
	}
	return res, ex, err
}

// lead answers the request that the handler ran for.
func (q *request) lead(ex *exchange, stored bool) {
	returned, late := ex.follow(q.r.Context(), q.w)
	if !returned {
		if late && !q.standIn(ex, stampede.ErrLoadTimeout) {
			q.without(stampede.ErrLoadTimeout)
		}
		return
	}
	c := &ex.capture
	if err := ex.failure(); err != nil && !c.passing && q.standIn(ex, err) {
		return
	}
	var p *panicked
	switch {
	case errors.As(ex.err, &p):
		panic(p.value) // its stack has been logged
	case c.passing && !ex.isShown(): // nor will be
		panic(http.ErrAbortHandler)
	case ex.err == nil && c.passing:
		c.trailers(q.w.Header())
	case errors.Is(ex.err, errAborted), c.passing:
		panic(http.ErrAbortHandler)
	case ex.err != nil:
		q.without(ex.err)
	default:
		q.complete(ex, stored)
	}
}

// standIn answers with what is stale, if that may serve, instead of a run that has failed. Mostly the guard sees
// to that. Here it is for who left the guard, since the handler had hints or a deadline for the client, and has
// been sent no answer yet.
func (q *request) standIn(ex *exchange, why error) bool {
	if !q.wait.isDetached() || ex.prev == nil || ex.prev.errorFor <= 0 {
		return false
	}
	again := func(context.Context, *stampede.Load[*stored]) (*stored, error) { return nil, why }
	res, err := q.h.cache.guard.Fetch(context.WithValue(q.r.Context(), budget.Key, &q.wait.spent), ex.name, again)
	if err != nil || !q.mayHave(res.Value) || res.Value.validate {
		return false
	}
	q.reuse(&res)
	return true
}

// complete sends the whole response of a run.
func (q *request) complete(ex *exchange, stored bool) {
	c, h := &ex.capture, q.w.Header()
	rep := report{fwd: ex.fwd, status: c.status, ttl: noTTL, stored: stored}
	switch {
	case stored:
		rep.ttl = ex.judged.life.fresh
	case !ex.judged.store:
		rep.detail = ex.judged.why
	case !ex.leased:
		rep.detail = "no-lease"
	default:
		rep.detail = q.whyUnstored(ex)
	}
	outcome := Miss
	if c.status == http.StatusNotModified && ex.asked && ex.value != nil {
		outcome = Validated
		ex.value.setFields(h)
		if i := indexField(ex.fields, "Set-Cookie"); i >= 0 {
			h["Set-Cookie"] = append(slices.Clone(h["Set-Cookie"]), ex.fields[i].values...) // its own
		}
		q.write(h, &rep, ex.value.status, ex.value.body, outcome)
		return
	}
	replaceHeader(h, c.final)
	if ex.value != nil {
		q.write(h, &rep, c.status, c.body, outcome)
		return
	}
	q.h.cache.report(h, &rep)
	q.h.observe(q.r, outcome, rep.detail)
	c.trailers(h)
	q.w.WriteHeader(c.status)
	if len(c.body) > 0 {
		_, _ = q.w.Write(c.body)
	}
}

// without answers a request that the guard has nothing for.
func (q *request) without(err error) {
	switch {
	case q.r.Context().Err() != nil: // nobody is there any more
	case errors.Is(err, stampede.ErrLoadTimeout):
		q.fail(http.StatusGatewayTimeout, "timeout")
	case errors.Is(err, stampede.ErrWaitTimeout):
		q.fail(http.StatusServiceUnavailable, "wait-timeout")
	case errors.Is(err, stampede.ErrOverloaded):
		q.fail(http.StatusServiceUnavailable, "overloaded")
	default: // another one's run has failed, or the guard is closed
		q.apart("failed")
	}
}

// fail answers instead of the handler.
func (q *request) fail(status int, why string) {
	h := q.w.Header()
	q.h.cache.report(h, &report{fwd: "miss", ttl: noTTL, detail: why})
	q.h.observe(q.r, Miss, why)
	if status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	http.Error(q.w, http.StatusText(status), status)
}

// apart runs the handler for this request alone, since it may not have what is there.
func (q *request) apart(why string) {
	q.h.around(q.w, q.r, report{fwd: "miss", detail: why, apart: true, ttl: noTTL})
}

// bypass runs the handler for a request that is none for the cache.
func (h *handler) bypass(w http.ResponseWriter, r *http.Request, why string) {
	if text, ok := h.cache.bypasses[why]; ok {
		fields := w.Header()
		fields[cacheStatus] = append(fields[cacheStatus], text)
	}
	h.next.ServeHTTP(w, r)
	h.observe(r, Bypass, why)
}

// around runs the handler where the store has nothing for the request.
func (h *handler) around(w http.ResponseWriter, r *http.Request, rep report) {
	h.cache.report(w.Header(), &rep)
	h.next.ServeHTTP(w, r)
	h.observe(r, Bypass, rep.detail)
}

func (h *handler) observe(r *http.Request, outcome Outcome, detail string) {
	if observe := h.cache.opts.Observe; observe != nil {
		observe(Event{Route: h.route(r), Method: r.Method, Outcome: outcome, Detail: detail})
	}
}

// reuse answers with what is stored, or with what the handler said to another request, if this one may have it.
func (q *request) reuse(res *stampede.Result[*stored]) {
	s := res.Value
	switch {
	case !q.mayHave(s):
		q.apart("not-shared")
	case s.validate:
		q.validate(res)
	default:
		rep := report{hit: true, ttl: res.FreshFor}
		outcome := Hit
		age := s.age + res.Age
		switch {
		case res.From == stampede.FromLoad:
			rep = report{fwd: "miss", collapsed: true, ttl: res.FreshFor}
			outcome, age = Collapsed, s.age
		case res.From == stampede.FromCopy:
			rep.detail = "copy"
		case res.Freshness != stampede.Fresh:
			rep.detail, outcome = "stale", Stale
		}
		q.send(s, age, &rep, outcome)
	}
}

// mayHave says whether a value is a response for this request.
func (q *request) mayHave(s *stored) bool {
	if s == nil || s.streamed || s.isSpec() || q.auth && !s.public {
		return false
	}
	if q.spec != nil {
		return s.key == q.variant
	}
	return s.key == q.base
}

// look serves what is stored, and runs no load: for requests that want a part, or no body.
func (q *request) look() {
	guard := q.h.cache.guard
	res, ok, err := guard.Peek(&q.wait, q.baseName)
	if ok && err == nil && q.leads(res.Value) {
		res, ok, err = guard.Peek(&q.wait, q.varName)
	}
	cc := parseCacheControl(q.r.Header["Cache-Control"])
	switch {
	case ok && err == nil && q.mayHave(res.Value) && !res.Value.validate:
		q.reuse(&res)
	case cc.onlyIfCached:
		q.fail(http.StatusGatewayTimeout, "only-if-cached")
	case len(q.r.Header["Range"]) > 0:
		q.h.around(q.w, q.r, report{fwd: "partial", ttl: noTTL})
	default:
		q.h.around(q.w, q.r, report{fwd: "miss", ttl: noTTL})
	}
}

// passed adds Cache-Status to a response that is passed on.
func (q *request) passed(h http.Header, rep *report) {
	q.h.cache.report(h, rep)
	q.h.observe(q.r, Miss, rep.detail)
}
