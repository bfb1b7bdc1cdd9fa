package middleware

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"time"
)

// Mode says who decides how long a response is fresh: the handler, by Cache-Control and Expires, or the
// policy. In every mode the handler decides whether it may be stored at all.
type Mode uint8

// Who decides how long a response is fresh.
const (
	// Respect: the handler. Where it says nothing, the policy's TTL counts, if there is one.
	Respect Mode = iota
	// Cap: the handler, but no longer than the policy's TTL.
	Cap
	// Override: the policy. Clients are told its TTL as well: max-age is replaced, Expires removed.
	Override
)

// String returns the mode's name.
func (m Mode) String() string {
	switch m {
	case Respect:
		return "respect"
	case Cap:
		return "cap"
	case Override:
		return "override"
	}
	return "unknown"
}

// Authorization says what happens to requests that have an Authorization field, a client certificate, or a name or
// password in their URL.
type Authorization uint8

// What happens to requests with an Authorization field, a client certificate, or a name or password in their URL.
const (
	// BypassAuthorization: they go to the handler, past the cache.
	BypassAuthorization Authorization = iota
	// ExplicitAuthorization: they are given, and leave behind, only what the handler declares fit for all,
	// by public, s-maxage or must-revalidate (RFC 9111, section 3.5). What they leave behind is given to such
	// requests only.
	ExplicitAuthorization
	// IgnoreAuthorization: all of these are removed from requests whose response is to be stored. For routes
	// that are the same for all.
	IgnoreAuthorization
)

// Policy says what is stored for a route and how long. The zero value stores what the handler declares
// cacheable and nothing else. In the fields of type time.Duration zero means the default and a negative
// value means off.
type Policy struct {
	// Mode says who decides how long a response is fresh. Default Respect.
	Mode Mode
	// TTL is the policy's lifetime for responses of status 200, 203, 204, 300, 301, 308, 404, 405 and
	// 410. Default, and negative: none. Cap and Override need one, here or in StatusTTL.
	TTL time.Duration
	// StatusTTL is the same by status, and takes precedence. Not above zero: the policy has none for this
	// status.
	StatusTTL map[int]time.Duration
	// EmptyBodies lets TTL and StatusTTL apply to responses of status 200, 203 and 204 without a body, too.
	// Such a response is often a mistake, and what the handler declares itself is stored anyway. Default no.
	EmptyBodies bool

	// StaleFor is how long after its lifetime a response is served at once while it is loaded behind. It
	// applies where the handler does not say stale-while-revalidate, and is not used where it forbids that
	// (must-revalidate, proxy-revalidate, no-cache, or s-maxage). Default TTL, or off if there is none.
	StaleFor time.Duration
	// StaleIfError is how long after its lifetime a response is served when the handler fails: a status of
	// 500, 502, 503 or 504, or a panic. Where it applies: as StaleFor, for stale-if-error. Default 10 m.
	StaleIfError time.Duration
	// KeepFor is how long after its lifetime a response with an ETag or Last-Modified is kept, so that
	// the handler can say that it still holds, by a 304. Default 10 m.
	KeepFor time.Duration
	// PassFor is how long a URL whose response may not be shared is remembered as such. Meanwhile its
	// requests do not wait for each other. Default 10 s; at least half a second, also when off.
	PassFor time.Duration

	// Version is part of all keys. Change it when the handler's responses change in a way that old and
	// new code must not serve each other's. Default none.
	Version string
	// Query lists the query parameters that the response depends on. The others are removed from the
	// request that the handler sees when its response is to be stored, as are those that Go cannot read.
	// Default (nil): all of the query counts, as it is written. Empty but not nil: none does.
	Query []string
	// Headers lists request fields that the response depends on, besides those that it names in Vary.
	Headers []string
	// Cookies lists the cookies that the response depends on. The others are removed from the request
	// that the handler sees when its response is to be stored. Default (nil): requests with a Cookie field
	// go to the handler, past the cache. Empty but not nil: no cookie counts.
	Cookies []string
	// Identity names whom the request is from, by what the layers outside have found out about it. With
	// a name, Authorization and Cookie do not send it past the cache: what is stored is for this name
	// alone. With "" the request is treated as if there was no Identity. Default none.
	Identity func(*http.Request) string
	// Encodings lists the content codings that the handler may use, like "gzip", in lower case. Of a
	// request's Accept-Encoding only counts which of them it accepts. Set it when a compressor stands
	// between the cache and the handler. Default none: Accept-Encoding counts where Vary names it, or a
	// response has a Content-Encoding.
	Encodings []string
	// Authorization says what happens to requests with an Authorization field, a client certificate, or a name
	// or password in their URL. Default BypassAuthorization.
	Authorization Authorization
	// Strip lists request fields that are removed from the request that the handler sees when its response
	// is to be stored, so that it cannot depend on them, like "X-Forwarded-*". A name that ends in "*"
	// stands for all that begin so. Fields in Headers stay. Default none.
	Strip []string
	// StripSetCookie lets responses with Set-Cookie be stored, without that field. Only the request that
	// ran the handler gets it. Default no: such responses are neither stored nor shared.
	StripSetCookie bool

	// MaxBody bounds the body of a stored response, in bytes. A longer one is passed on as it comes, and
	// neither stored nor shared. Default 4 MiB; negative: none but empty ones are stored.
	MaxBody int
	// MaxHeader bounds the sum of a response's fields, in bytes, and the length of its key: the URL and what
	// the request has for the fields that it depends on. Default 16 KiB; negative: no bound.
	MaxHeader int
	// MaxVariants bounds how many responses for one URL a pod stores, by what they vary on. Default 64;
	// negative: no bound.
	MaxVariants int
}

// policy is a Policy with its defaults, and what follows from it.
type policy struct {
	Policy
	keyed bool     // it names what responses depend on, so that each one is a variant
	strip []string // prefixes
}

const (
	defaultMaxBody     = 4 << 20
	defaultMaxHeader   = 16 << 10
	defaultMaxVariants = 64
)

func or[N int | time.Duration](n, def N) N {
	switch {
	case n == 0:
		return def
	case n < 0:
		return 0
	}
	return n
}

// compile fills in the defaults.
func (p *Policy) compile() (policy, error) {
	if p == nil {
		p = new(Policy)
	}
	err := p.validate()
	q := policy{Policy: *p}
	q.TTL = or(p.TTL, 0)
	q.StatusTTL = maps.Clone(p.StatusTTL)
	q.StaleFor = or(p.StaleFor, q.TTL)
	q.StaleIfError = or(p.StaleIfError, 10*time.Minute)
	q.KeepFor = or(p.KeepFor, 10*time.Minute)
	q.PassFor = or(p.PassFor, 10*time.Second)
	q.MaxBody = or(p.MaxBody, defaultMaxBody)
	if p.MaxHeader == 0 {
		q.MaxHeader = defaultMaxHeader
	}
	if p.MaxVariants == 0 {
		q.MaxVariants = defaultMaxVariants
	}
	q.Query, q.Cookies, q.Encodings = slices.Clone(p.Query), slices.Clone(p.Cookies), slices.Clone(p.Encodings)
	q.Headers = canonical(p.Headers)
	q.Strip, q.strip = nil, nil
	for _, name := range p.Strip {
		if prefix, ok := strings.CutSuffix(name, "*"); ok {
			q.strip = append(q.strip, strings.ToLower(prefix))
			continue
		}
		q.Strip = append(q.Strip, textproto.CanonicalMIMEHeaderKey(name))
	}
	q.keyed = len(q.Headers) > 0 || len(q.Cookies) > 0 || len(q.Encodings) > 0 || q.Identity != nil
	return q, err
}

func canonical(names []string) []string {
	var out []string
	for _, name := range names {
		out = append(out, textproto.CanonicalMIMEHeaderKey(name))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (p *Policy) validate() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf("middleware: "+format, args...)) }
	if p.Mode > Override {
		fault("Policy.Mode is %d, which is none of its values", p.Mode)
	}
	if p.Authorization > IgnoreAuthorization {
		fault("Policy.Authorization is %d, which is none of its values", p.Authorization)
	}
	longest := p.TTL
	for status, ttl := range p.StatusTTL {
		longest = max(longest, ttl)
		if status < 200 || status > 599 || status == http.StatusPartialContent || status == http.StatusNotModified {
			fault("Policy.StatusTTL has status %d, whose responses are never stored", status)
		}
		if ttl > maxTTL || ttl > 0 && ttl < time.Millisecond {
			fault("Policy.StatusTTL of %d is %v; from 1ms to %v it may be", status, ttl, maxTTL)
		}
	}
	if longest <= 0 && (p.Mode == Cap || p.Mode == Override) {
		fault("Policy.Mode %v needs a TTL", p.Mode)
	}
	for _, w := range []struct {
		name string
		d    time.Duration
	}{
		{"TTL", p.TTL}, {"StaleFor", p.StaleFor}, {"StaleIfError", p.StaleIfError}, {"KeepFor", p.KeepFor}, {"PassFor", p.PassFor},
	} {
		if w.d > maxTTL || w.d > 0 && w.d < time.Millisecond {
			fault("Policy.%s is %v; from 1ms to %v it may be", w.name, w.d, maxTTL)
		}
	}
	for _, list := range []struct {
		name  string
		names []string
	}{{"Headers", p.Headers}, {"Cookies", p.Cookies}, {"Strip", p.Strip}, {"Encodings", p.Encodings}} {
		for _, name := range list.names {
			if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(`,;=":`, r) }) {
				fault("Policy.%s has %q, which is no name", list.name, name)
			}
		}
	}
	for _, name := range p.Headers {
		switch textproto.CanonicalMIMEHeaderKey(name) {
		case "Host", "Range", "If-None-Match", "If-Modified-Since", "If-Match", "If-Unmodified-Since", "If-Range":
			fault("Policy.Headers has %q, which the cache deals with itself", name)
		case "Cookie":
			fault("Policy.Headers has %q; name the cookies in Policy.Cookies", name)
		}
	}
	return errors.Join(errs...)
}

// maxTTL is the longest time that a guard takes.
const maxTTL = 10 * 365 * 24 * time.Hour

// ttl is the policy's lifetime for a response; not above zero: it has none.
func (p *policy) ttl(status int) time.Duration {
	if d, ok := p.StatusTTL[status]; ok {
		return d
	}
	switch status {
	case 200, 203, 204, 300, 301, 308, 404, 405, 410:
		return p.TTL
	}
	return 0
}

// strips says whether a request field is hidden from handlers whose response is to be stored.
func (p *policy) strips(name string) bool {
	if slices.Contains(p.Headers, name) {
		return false
	}
	if slices.Contains(p.Strip, name) {
		return true
	}
	for _, prefix := range p.strip {
		if len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix) {
			return true
		}
	}
	return false
}

// dimensions returns what the response to a request may depend on: what the policy names, and what base
// entries say that Vary has named.
func (p *policy) dimensions(r *http.Request, identity string, vary []string) []dimension {
	dims := make([]dimension, 0, len(vary)+len(p.Headers)+len(p.Cookies)+2)
	if p.Identity != nil {
		dims = append(dims, dimension{"i", identity, identity != ""})
	}
	if len(p.Encodings) > 0 {
		dims = append(dims, dimension{"e", acceptedEncodings(r.Header, p.Encodings), true})
	}
	for _, name := range p.Cookies {
		value, ok := cookieValues(r, name)
		dims = append(dims, dimension{"c:" + name, value, ok})
	}
	for _, names := range [...][]string{p.Headers, vary} {
		for _, name := range names {
			if name == "Accept-Encoding" && len(p.Encodings) > 0 {
				continue
			}
			value, ok := selecting(r.Header, name)
			dims = append(dims, dimension{"h:" + name, value, ok})
		}
	}
	return dims
}

// cookieValues joins the values of all cookies of a name, each with its length.
func cookieValues(r *http.Request, name string) (string, bool) {
	var b []byte
	for _, c := range r.CookiesNamed(name) {
		b = appendPart(b, c.Value)
	}
	return string(b), b != nil
}

// acceptedEncodings returns which of the codings the request accepts.
func acceptedEncodings(h http.Header, codings []string) string {
	var some, star, starSeen bool
	accepted := make([]bool, len(codings))
	named := make([]bool, len(codings))
	for _, line := range h["Accept-Encoding"] {
		for line != "" {
			var member string
			member, line, _ = strings.Cut(line, ",")
			coding, params, _ := strings.Cut(member, ";")
			coding = strings.ToLower(trim(coding))
			yes := !zeroQuality(params)
			if coding == "*" {
				star, starSeen = yes, true
			}
			if i := slices.Index(codings, coding); i >= 0 {
				accepted[i], named[i] = yes, true
			}
			some = true
		}
	}
	var yes []string
	for i, coding := range codings {
		if some && (accepted[i] || !named[i] && starSeen && star) {
			yes = append(yes, coding)
		}
	}
	return strings.Join(yes, ", ")
}

func zeroQuality(params string) bool {
	name, value, _ := strings.Cut(trim(params), "=")
	if !strings.EqualFold(trim(name), "q") {
		return false
	}
	return strings.Trim(trim(value), "0.") == "" && trim(value) != ""
}
