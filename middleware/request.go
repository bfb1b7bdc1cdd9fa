package middleware

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/herdgate/herdgate/internal/budget"
	"github.com/herdgate/herdgate/stampede"
)

// request is a request that the store may answer. Loads that it starts outlive it; they use a copy of it
// that is made before it ends.
type request struct {
	h        *handler
	w        http.ResponseWriter
	r        *http.Request
	wait     waitCtx // what the guard is called with
	target   target
	identity string
	auth     bool // its Authorization decides what may be stored for it
	base     key
	baseName string  // its hash
	spec     *stored // that the base entry holds
	variant  key     // by that
	varName  string  // its hash

	mu     sync.Mutex // protects what follows
	wants  string     // the name whose load runs the handler for this request; "": runs are for others
	ended  bool
	copied *http.Request
	outer  http.Header // what the layers outside had set by then
	saved  any         // of the router
	ex     *exchange   // the run of the handler that this request follows, or will
}

// newRequest prepares r for the guard.
func (h *handler) newRequest(w http.ResponseWriter, r *http.Request, t target) *request {
	p := &h.cache.policy
	q := &request{h: h, w: w, r: r, target: t, wait: waitCtx{Context: r.Context()}}
	if p.Identity != nil {
		q.identity = p.Identity(r)
	}
	q.auth = q.identity == "" && p.Authorization == ExplicitAuthorization && authorized(r)
	q.base, q.baseName = baseKey(p.Version, p.class(q.auth), &t)
	q.wants = q.baseName
	return q
}

// secure makes the copy for loads, if there is none yet. It is called before the request's header fields are
// touched or the request ends, if a load of its own may be about to begin.
func (q *request) secure() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.copy()
}

// copy is called with q.mu held.
func (q *request) copy() {
	if q.copied == nil {
		q.saved = q.h.save(q.r)
		q.outer = sent(q.w.Header()).Clone()
		q.copied = q.r.Clone(context.WithoutCancel(q.r.Context()))
	}
}

// forLoad makes of a copy what the handler of a load gets to see.
func (q *request) forLoad(r *http.Request) {
	p := &q.h.cache.policy
	for _, name := range conditionalFields {
		delete(r.Header, name)
	}
	for name := range r.Header {
		if p.strips(name) {
			delete(r.Header, name)
		}
	}
	if p.Authorization == IgnoreAuthorization && q.identity == "" {
		delete(r.Header, "Authorization")
		r.URL.User = nil
		if r.TLS != nil {
			state := *r.TLS
			state.PeerCertificates, state.VerifiedChains = nil, nil
			r.TLS = &state
		}
	}
	if p.Cookies != nil && q.identity == "" {
		keepCookies(r, p.Cookies)
	}
	if p.Query != nil {
		r.URL.RawQuery, r.URL.ForceQuery = keptQuery(r.URL.RawQuery, p.Query), false
		r.Form, r.PostForm = nil, nil
	}
	if plain(r) {
		r.URL.Scheme, r.URL.Host = "", ""
	}
	if r.RequestURI != "" {
		r.RequestURI = askedPath(r) + q.target.query
	}
	if len(p.Encodings) > 0 {
		r.Header["Accept-Encoding"] = []string{acceptedEncodings(r.Header, p.Encodings)}
	}
	r.Host = q.target.host
	r.Method, r.Body, r.ContentLength = http.MethodGet, http.NoBody, 0
}

// keepCookies removes all cookies but those named.
func keepCookies(r *http.Request, names []string) {
	var kept []*http.Cookie
	for _, name := range names {
		kept = append(kept, r.CookiesNamed(name)...)
	}
	r.Header.Del("Cookie")
	for _, c := range kept {
		c.Quoted = false // the key does not know of it
		r.AddCookie(c)
	}
}

// letGo says that the request is answered with something else than a run of its own, which may be going on
// behind all the same.
func (q *request) letGo() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wants = ""
	if q.ex != nil {
		q.ex.leave()
	}
}

// end is called when the request has been answered.
func (q *request) end() {
	q.letGo()
	q.mu.Lock()
	q.ended = true
	q.mu.Unlock()
	q.wait.end()
}

// hasLeft says whether the client has left. If so when an informational response has been written, nothing may be
// done to the header any more: over HTTP/2, WriteHeader returns as soon as the client leaves, and net/http may
// read the header after that.
func (q *request) hasLeft() bool { return q.r.Context().Err() != nil }

// begin runs the handler for a load. It returns nil if there is no request any more to run it with.
func (q *request) begin(ctx context.Context, l *stampede.Load[*stored], prev *stored, fwd string) *exchange {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended && q.copied == nil {
		return nil
	}
	q.copy()
	r := q.copied.Clone(ctx)
	q.forLoad(r)
	ex := &exchange{q: q, name: l.Key(), prev: prev, fwd: fwd, leased: l.Leased()}
	ex.ready(ctx, q.outer)
	if q.wants == l.Key() && (q.ex == nil || q.ex.giveWay()) {
		q.ex = ex
	} else {
		ex.leave()
	}
	ex.start(q.h.next, r)
	return ex
}

// turnTo leaves the run that there may be, since the request now wants the load of another name. If it is too
// late for that, it returns the run.
func (q *request) turnTo(name string) *exchange {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ex != nil && !q.ex.giveWay() {
		return q.ex
	}
	q.wants = name
	return nil
}

// run is a load of the handler's response. What it returns as a response is for the leader as it is, and for
// others as the guard was told.
func (q *request) run(ctx context.Context, l *stampede.Load[*stored], prev *stored, fwd string) (*exchange, *stored, error) {
	if prev != nil {
		fwd = "stale"
	}
	leaders := &stored{streamed: true}
	ex := q.begin(ctx, l, prev, fwd)
	if ex == nil { // it is put off
		l.DoNotShare()
		return nil, leaders, nil
	}
	j, ok := ex.result(ctx)
	if !ok {
		if ctx.Err() != nil && !ex.isReleased() {
			return ex, leaders, context.Cause(ctx)
		}
		q.unshared(ctx, l, prev, &j)
		return ex, leaders, nil
	}
	err := ex.err
	if err == nil && failed(ex.capture.status) && prev != nil && (prev.errorFor > 0 || !j.store) {
		err = &failedError{ex.capture.status}
	}
	switch {
	case err != nil && prev != nil && prev.errorFor <= 0: // the older one is no alternative
		l.DoNotShare()
		return ex, leaders, nil
	case err != nil:
		return ex, leaders, err
	case !j.store:
		q.unshared(ctx, l, prev, &j)
		return ex, leaders, nil
	}
	return ex, ex.value, nil
}

// unshared says that a response is for the leader alone. If it is another kind of thing than what is stored,
// that is not served any more, though it may be within its windows.
func (q *request) unshared(ctx context.Context, l *stampede.Load[*stored], prev *stored, j *judgement) {
	c := q.h.cache
	l.DoNotShare()
	if d := c.policy.PassFor; j.remember && d > 0 {
		l.Pass(d)
		c.passes.put(l.Key(), d)
	}
	if prev != nil && j.changed {
		c.drop(ctx, l.Key())
	}
}

// settle says how long a response is stored.
func (p *policy) settle(l *stampede.Load[*stored], s *stored, life *lifetimes) {
	keep := p.keep(s, life)
	if s.validate { // fresh as far as the guard is concerned: it is asked about at each use
		l.TTL(max(keep, s.errorFor, time.Millisecond))
		l.StaleFor(0)
		l.StaleIfError(0)
		return
	}
	fresh, stale := life.fresh, life.stale
	if fresh < time.Millisecond { // only its window is left
		stale, keep = stale+fresh, keep+fresh
		fresh = time.Millisecond
	}
	l.TTL(fresh)
	l.StaleFor(stale)
	l.StaleIfError(keep)
}

// loadBase loads the base entry: the response, or a spec if it depends on more than the URL.
func (q *request) loadBase(ctx context.Context, l *stampede.Load[*stored]) (*stored, error) {
	c := q.h.cache
	prev := previous(l, q.base)
	switch {
	case prev != nil && prev.isSpec():
		return prev, nil // it is used: so it goes on
	case c.policy.keyed:
		return &stored{key: q.base, gen: newGeneration()}, nil
	}
	ex, answer, err := q.run(ctx, l, prev, "uri-miss")
	if err == nil && !answer.streamed {
		c.shareable(ctx, l)
		if vary := ex.judged.vary; len(vary) > 0 {
			answer = &stored{key: q.base, gen: newGeneration(), vary: vary}
			q.storeVariant(ctx, ex, answer)
		} else {
			answer.key = q.base
			c.policy.settle(l, answer, &ex.judged.life)
		}
	}
	q.answered(ex, answer, "")
	return answer, err
}

// storeVariant stores a response under the generation of a spec that nobody knows yet.
func (q *request) storeVariant(ctx context.Context, ex *exchange, spec *stored) {
	c := q.h.cache
	s := ex.value
	s.key = variantKey(q.base, spec.gen, c.policy.dimensions(q.copied, q.identity, spec.vary))
	name := s.key.hash()
	c.variants.admit(spec.gen, name, c.policy.MaxVariants)
	_, _ = c.guard.Fetch(ctx, name, func(_ context.Context, l *stampede.Load[*stored]) (*stored, error) {
		c.policy.settle(l, s, &ex.judged.life)
		return s, nil
	})
}

// loadVariant loads the response for what the request has for the dimensions.
func (q *request) loadVariant(ctx context.Context, l *stampede.Load[*stored]) (*stored, error) {
	c := q.h.cache
	fwd := "uri-miss"
	if len(q.spec.vary) > 0 {
		fwd = "vary-miss"
	}
	ex, answer, err := q.run(ctx, l, previous(l, q.variant), fwd)
	why := ""
	if err == nil && !answer.streamed {
		c.shareable(ctx, l)
		switch {
		case !contains(q.spec.vary, ex.judged.vary): // the key lacks something
			l.DoNotShare()
			if l.Leased() { // once, not by each of those that it lets go
				q.widen(ctx, union(q.spec.vary, ex.judged.vary))
			}
			why = "vary"
		case !c.variants.admit(q.spec.gen, q.varName, c.policy.MaxVariants):
			answer.key = q.variant
			l.DoNotStore()
			why = "variants"
		default:
			answer.key = q.variant
			c.policy.settle(l, answer, &ex.judged.life)
		}
	}
	q.answered(ex, answer, why)
	return answer, err
}

// widen replaces the spec by one with more fields. Its generation is new: what a load that began before an
// invalidation has learnt must lead to nothing that is stored.
func (q *request) widen(ctx context.Context, vary []string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = q.h.cache.guard.Set(ctx, q.baseName, &stored{key: q.base, gen: newGeneration(), vary: vary})
}

// answered keeps with a run what its load returned, and why that is not stored though it could be.
func (q *request) answered(ex *exchange, answer *stored, why string) {
	if ex == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	ex.answer, ex.why = answer, why
}

func (q *request) whyUnstored(ex *exchange) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return ex.why
}

// led returns the run of the handler that v is the answer of, nil if it is from elsewhere.
func (q *request) led(v *stored) *exchange {
	q.mu.Lock()
	defer q.mu.Unlock()
	if v != nil && q.ex != nil && v == q.ex.answer {
		return q.ex
	}
	return nil
}

// latest returns the run of the handler that this request follows, or would have.
func (q *request) latest() *exchange {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ex
}

// previous is what a load is to replace. Two keys of one hash are not expected, but would be told apart.
func previous(l *stampede.Load[*stored], k key) *stored {
	if prev, ok := l.Previous(); ok && prev != nil && prev.key == k {
		return prev
	}
	return nil
}

// waitCtx is the request's ctx, with a way to leave the guard before it ends. It makes a channel only for who
// asks for one, which on the way to a hit nobody does.
type waitCtx struct {
	context.Context
	spent budget.Spent // one budget for all that the guard is asked

	mu       sync.Mutex // protects what follows
	own      context.Context
	cancel   context.CancelFunc
	detached bool
}

// Done is closed when the request's ctx ends, or by detach.
func (c *waitCtx) Value(key any) any {
	if key == budget.Key {
		return &c.spent
	}
	return c.Context.Value(key)
}

func (c *waitCtx) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.make().Done()
}

func (c *waitCtx) make() context.Context {
	if c.own == nil {
		c.own, c.cancel = context.WithCancel(c.Context)
		if c.detached {
			c.cancel()
		}
	}
	return c.own
}

// Err says why it has ended.
func (c *waitCtx) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.detached {
		return context.Canceled
	}
	return nil
}

// AfterFunc spares package context a goroutine.
func (c *waitCtx) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	own := c.make()
	c.mu.Unlock()
	return context.AfterFunc(own, f)
}

// detach makes calls of the guard return.
func (c *waitCtx) detach() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.detached = true
	if c.cancel != nil {
		c.cancel()
	}
}

func (c *waitCtx) isDetached() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.detached
}

// end gives back what Done took.
func (c *waitCtx) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel != nil {
		c.cancel()
	}
}
