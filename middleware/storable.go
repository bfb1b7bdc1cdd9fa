package middleware

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// judgement says what may be done with a response: whether it may be stored, which is also whether those who
// wait may have it, and for how long. See RFC 9111, section 3.
type judgement struct {
	store    bool
	why      string // it may not be stored: a word for Cache-Status
	remember bool   // and that is so for all requests of this URL
	changed  bool   // and what was stored before must not be used any more
	life     lifetimes
	age      time.Duration // now
	validate bool          // store it, but ask the handler at each use
	public   bool          // it may be given to requests with credentials
	byPolicy bool          // the lifetime is the policy's
	override bool          // and clients are told so
	vary     []string
}

// judge looks at a response when its header is complete. h holds what the handler has set, told also what the
// layers outside have: that the response is for nobody else they may say as well, and the handler may have left
// it to them. auth says that the request's Authorization decides what may be stored.
func (p *policy) judge(auth bool, status int, h, told http.Header, date, now time.Time, delay time.Duration) (j judgement) {
	cc, all := parseCacheControl(h["Cache-Control"]), parseCacheControl(told["Cache-Control"])
	cc.noStore, cc.private = cc.noStore || all.noStore, cc.private || all.private
	vary, star := varyFields(h["Vary"])
	if _, outside := varyFields(told["Vary"]); outside {
		star = true
	}
	if len(p.Encodings) == 0 && !identityCoded(h["Content-Encoding"]) {
		vary = union(vary, []string{"Accept-Encoding"}) // whether it says so or not
	}
	j.vary = vary
	j.public = cc.public || cc.mustRevalidate || cc.sMaxAge.given
	j.remember = status < 400
	switch {
	case status == http.StatusPartialContent, status == http.StatusNotModified, status < 200:
		j.why = "status"
	case cc.mustUnderstand && http.StatusText(status) == "":
		j.why = "status"
	case cc.noStore:
		j.why, j.remember, j.changed = "no-store", true, true
	case cc.private:
		j.why, j.remember, j.changed = "private", true, true
	case star:
		j.why, j.remember, j.changed = "vary", true, true
	case len(h["Trailer"]) > 0:
		j.why = "trailers"
	case len(h["Set-Cookie"]) > 0 && !p.StripSetCookie:
		j.why, j.changed = "set-cookie", true
	case auth && !j.public:
		j.why = "authorization"
	case eventStream(h["Content-Type"]):
		j.why = "event-stream"
	case p.MaxHeader > 0 && headerSize(h) > p.MaxHeader:
		j.why = "header-size"
	default:
		p.lifetimes(&j, status, h, &cc, date, now, delay)
	}
	return j
}

// lifetimes completes the judgement of a response that nothing forbids to store.
func (p *policy) lifetimes(j *judgement, status int, h http.Header, cc *directives, date, now time.Time, delay time.Duration) {
	life, shared, explicit := explicitLifetime(h, cc, date)
	ttl := p.ttl(status)
	switch {
	case p.Mode == Override && ttl > 0:
		life, shared, j.byPolicy, j.override = ttl, false, true, !cc.noCache
	case p.Mode == Cap && explicit && ttl > 0:
		life = min(life, ttl)
	case !explicit && ttl > 0:
		life, j.byPolicy = ttl, true
	case !explicit && !cc.noCache:
		j.why = "no-lifetime"
		return
	}
	j.age = initialAge(h, date, now, delay)
	if j.override {
		j.age = 0 // the lifetime counts from here on
	}
	forbidden := cc.mustRevalidate || cc.proxyRevalidate || cc.noCache
	j.life = lifetimes{
		fresh:        life - j.age,
		stale:        window(cc.staleWhileRevalidate, p.StaleFor, forbidden, forbidden || shared),
		staleIfError: window(cc.staleIfError, p.StaleIfError, forbidden, forbidden || shared),
	}
	servable := j.life.fresh > 0 || j.life.fresh+j.life.stale > 0
	switch {
	case cc.noCache, !servable:
		// To be asked about each time. Without a validator there is nothing to ask, but it may serve when
		// the handler fails.
		j.validate = true
		j.store = validator(h) && p.KeepFor > 0 || j.life.fresh+j.life.staleIfError > 0 && !cc.noCache
		j.why = "stale"
		if cc.noCache {
			j.why = "no-cache"
		}
	default:
		j.store = true
	}
}

// aged says that so much time has passed since the response was judged.
func (j *judgement) aged(d time.Duration) {
	j.age += d
	j.life.fresh -= d
	if j.life.fresh+max(j.life.stale, j.life.staleIfError) <= 0 && !j.validate {
		j.store, j.why = false, "stale"
	}
}

// window is a stale window: the response's own, or the policy's where that says nothing. s-maxage forbids the
// policy's (RFC 9111, section 5.2.2.10).
func window(own seconds, policy time.Duration, forbidden, onlyOwn bool) time.Duration {
	switch {
	case forbidden:
		return 0
	case own.given:
		return own.d
	case onlyOwn:
		return 0
	}
	return policy
}

// keep is how long an entry is kept beyond its lifetime.
func (p *policy) keep(s *stored, life *lifetimes) time.Duration {
	keep := max(life.stale, life.staleIfError)
	if len(s.lines("Etag")) > 0 || len(s.lines("Last-Modified")) > 0 {
		keep = max(keep, p.KeepFor)
	}
	return keep
}

// failed says whether a status means that the handler could not do its work (RFC 5861, section 4).
func failed(status int) bool {
	switch status {
	case 500, 502, 503, 504:
		return true
	}
	return false
}

func identityCoded(lines []string) bool {
	for _, line := range lines {
		if line = trim(line); line != "" && !strings.EqualFold(line, "identity") {
			return false
		}
	}
	return true
}

func eventStream(lines []string) bool {
	if len(lines) == 0 {
		return false
	}
	media, _, _ := strings.Cut(lines[0], ";")
	return strings.EqualFold(trim(media), "text/event-stream")
}

func headerSize(h http.Header) (n int) {
	for name, values := range h {
		for _, v := range values {
			n += len(name) + len(v)
		}
	}
	return n
}

// contentLength returns what the handler has declared, -1 if nothing that can be read.
func contentLength(h http.Header) int64 {
	lines := h["Content-Length"]
	if len(lines) != 1 {
		return -1
	}
	n, err := strconv.ParseUint(trim(lines[0]), 10, 62)
	if err != nil {
		return -1
	}
	return int64(n)
}

// impliedBody says whether it takes a body for the response to be stored.
func (j *judgement) impliedBody(p *policy, status int) bool {
	if p.EmptyBodies || !j.byPolicy {
		return false
	}
	return status == 200 || status == 203 || status == 204
}
