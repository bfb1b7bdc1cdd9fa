package middleware

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// A key names what is stored for a URL. It is made of parts, each with its length before it, so that no part
// can imitate the end of another one. The store gets a hash of it: a URL may hold secrets, and may be long.
// The key itself is kept in the entry and compared on each hit.
type key string

// hash is what the store knows the key by. It is never empty.
func (k key) hash() string { return hashed([]byte(k)) }

func hashed(b []byte) string {
	sum := sha256.Sum256(b)
	var text [(sha256.Size*8 + 5) / 6]byte
	base64.RawURLEncoding.Encode(text[:], sum[:])
	return string(text[:])
}

// appendPart adds a part to a key.
func appendPart(b []byte, part string) []byte {
	b = binary.AppendUvarint(b, uint64(len(part)))
	return append(b, part...)
}

// target is a URL as keys see it.
type target struct {
	scheme, host string
	path, query  string
	before       string // what it was before a layer outside the cache has rewritten it; "" if none has
}

// The classes of requests that share entries. What was made for a request with credentials is kept apart,
// so that such requests cannot keep others from storing and sharing. So are the entries of policies that name what
// responses depend on: what is stored under another one depends on nothing, and must not be given to all.
var classes = [...]string{"p", "a", "pk", "ak"}

func (p *policy) class(auth bool) string {
	i := 0
	if auth {
		i++
	}
	if p.keyed {
		i += 2
	}
	return classes[i]
}

// baseKey is the key of the base entry, through which all that is stored for a URL is found, and its hash.
func baseKey(version, class string, t *target) (key, string) {
	var buf [256]byte
	b := buf[:0]
	for _, part := range [...]string{version, class, t.scheme, t.host, t.path, t.query, t.before} {
		b = appendPart(b, part)
	}
	return key(b), hashed(b)
}

// variantKey is the key of one of the responses for a URL, of the given generation of its base entry.
func variantKey(base key, gen generation, dims []dimension) key {
	b := make([]byte, 0, len(base)+len(gen)+32+32*len(dims))
	b = appendPart(b, string(base))
	b = append(b, gen[:]...)
	for _, d := range dims {
		b = appendPart(b, d.name)
		if !d.given { // no value is not an empty one
			b = append(b, 0)
			continue
		}
		b = appendPart(append(b, 1), d.value)
	}
	return key(b)
}

// dimension is what a response depends on besides its URL, and its value in a request.
type dimension struct {
	name  string
	value string
	given bool
}

// target returns what the request is for. ok is false when its host is none that is served here.
func (c *Cache) target(r *http.Request) (t target, ok bool) {
	t.scheme = c.scheme(r.TLS)
	if t.host, ok = c.host(t.scheme, r.Host); !ok {
		return t, false
	}
	t.path = r.URL.EscapedPath()
	t.query = c.policy.query(r.URL)
	t.before = before(r, t.path)
	return t, true
}

// before returns the path that the client has asked for, if it is another one than path. Two routes from
// which different prefixes are stripped may have one path and two handlers. With it goes what else the URL says.
func before(r *http.Request, path string) string {
	asked := askedPath(r)
	if asked == path {
		asked = ""
	}
	u := r.URL
	if plain(r) {
		return asked
	}
	b := []byte{0} // which no path has
	for _, part := range [...]string{u.Scheme, u.Opaque, u.Host, asked} {
		b = appendPart(b, part)
	}
	return string(b)
}

// plain says whether the URL's scheme and host, if there are any, are the connection's and the request's own, or those of
// a target in absolute form, which say nothing: clients choose them. The handler of a load does not see such ones.
func plain(r *http.Request) bool {
	u := r.URL
	if u.Opaque != "" || u.Host != "" && !strings.EqualFold(u.Host, r.Host) {
		return false
	}
	if u.Scheme == "" || r.RequestURI == "" {
		return true
	}
	asked, _, _ := strings.Cut(r.RequestURI, "://")
	return strings.EqualFold(u.Scheme, asked) || u.Scheme == schemeOf(r.TLS)
}

// askedPath is the path of the request target; that of the URL where the request has no target, as those
// that are made by hand.
func askedPath(r *http.Request) string {
	asked, _, _ := strings.Cut(r.RequestURI, "?")
	if asked == "" {
		return r.URL.EscapedPath()
	}
	if _, rest, ok := strings.Cut(asked, "://"); ok && asked[0] != '/' && r.URL.Opaque == "" { // as for a proxy
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			return rest[i:]
		}
		return r.URL.EscapedPath()
	}
	return asked
}

func (c *Cache) scheme(state *tls.ConnectionState) string {
	if c.opts.Scheme != "" {
		return c.opts.Scheme
	}
	return schemeOf(state)
}

func schemeOf(state *tls.ConnectionState) string {
	if state != nil {
		return "https"
	}
	return "http"
}

// host returns the host as keys hold it.
func (c *Cache) host(scheme, host string) (string, bool) {
	if c.opts.Host != "" {
		return c.opts.Host, true
	}
	host = plainHost(scheme, host)
	if len(c.opts.Hosts) > 0 && !slices.Contains(c.opts.Hosts, host) {
		return "", false
	}
	return host, true
}

// plainHost is host in lower case and without its scheme's own port.
func plainHost(scheme, host string) string {
	host = strings.ToLower(host)
	if port := defaultPort(scheme); strings.HasSuffix(host, port) {
		host = strings.TrimSuffix(host, port)
	}
	return host
}

func defaultPort(scheme string) string {
	if scheme == "https" {
		return ":443"
	}
	return ":80"
}

// query returns the part of the query that is in the key, which is all that a handler gets to see whose
// response is to be stored. Parameters keep their order and their spelling. It begins with "?", even if nothing
// follows that, and is empty if there is none.
func (p *policy) query(u *url.URL) string {
	raw := u.RawQuery
	if p.Query != nil {
		raw = keptQuery(raw, p.Query)
	}
	if raw == "" && (p.Query != nil || !u.ForceQuery) {
		return ""
	}
	return "?" + raw
}

// keptQuery drops all parameters but those named, and those that Go could not read.
func keptQuery(raw string, names []string) string {
	var kept []string
	for _, pair := range strings.Split(raw, "&") {
		name, value, _ := strings.Cut(pair, "=")
		plain, err := url.QueryUnescape(name)
		if err != nil || pair == "" || strings.Contains(pair, ";") || !slices.Contains(names, plain) {
			continue
		}
		if _, err := url.QueryUnescape(value); err == nil {
			kept = append(kept, pair)
		}
	}
	return strings.Join(kept, "&")
}
