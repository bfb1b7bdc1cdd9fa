package middleware

import (
	"net/http"
	"net/url"
	"time"
)

// Directives is what Cache-Control says, for tests.
type Directives struct {
	NoStore, NoCache, Private, Public, MustRevalidate, ProxyRevalidate, MustUnderstand, OnlyIfCached bool
	MaxAge, SMaxAge, StaleWhileRevalidate, StaleIfError                                              string // "" if not given
}

// ParseCacheControl opens what it is named after.
func ParseCacheControl(lines ...string) Directives {
	d := parseCacheControl(lines)
	text := func(s seconds) string {
		if !s.given {
			return ""
		}
		return wholeSeconds(s.d)
	}
	return Directives{
		d.noStore, d.noCache, d.private, d.public, d.mustRevalidate, d.proxyRevalidate, d.mustUnderstand, d.onlyIfCached,
		text(d.maxAge), text(d.sMaxAge), text(d.staleWhileRevalidate), text(d.staleIfError),
	}
}

// What follows opens functions to tests.
var (
	ParseDate         = parseDate
	ParseAge          = parseAge
	VaryFields        = varyFields
	Selecting         = selecting
	NotModified       = notModified
	AcceptedEncodings = acceptedEncodings
	OverrideMaxAge    = overrideMaxAge
	KeptQuery         = keptQuery
	IsToken           = token
)

// BaseKey returns the key made of these parts.
func BaseKey(version, class, scheme, host, path, query string) (string, string) {
	k, name := baseKey(version, class, &target{scheme: scheme, host: host, path: path, query: query})
	return string(k), name
}

// VariantKey returns the key of a response that depends on these pairs of a name and a value.
func VariantKey(base string, pairs ...string) string {
	var dims []dimension
	for i := 0; i+1 < len(pairs); i += 2 {
		dims = append(dims, dimension{pairs[i], pairs[i+1], true})
	}
	return string(variantKey(key(base), generation{1}, dims))
}

// QueryOf returns the query's part of a key when all of it counts.
func QueryOf(u *url.URL) string { return new(policy).query(u) }

// Encoded returns the bytes of a stored response.
func Encoded(key_ string, status int, h http.Header, body []byte, age time.Duration) ([]byte, error) {
	return codec{}.Marshal(&stored{
		key: key(key_), status: status, fields: changes(nil, nil, h), body: body, age: age, validate: true, public: true, errorFor: time.Hour,
	})
}

// EncodedSpec returns the bytes of a spec.
func EncodedSpec(key_ string, vary ...string) ([]byte, error) {
	return codec{}.Marshal(&stored{key: key(key_), gen: newGeneration(), vary: vary})
}

// Recoded decodes and encodes again.
func Recoded(data []byte) ([]byte, error) {
	var s *stored
	if err := (codec{}).Unmarshal(data, &s); err != nil {
		return nil, err
	}
	return codec{}.Marshal(s)
}
