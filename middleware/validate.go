package middleware

import (
	"io"
	"maps"
	"net/http"

	"github.com/herdgate/herdgate/stampede"
)

// validate asks the handler whether a stored response that must not be used without that still holds. Each
// request asks for itself, and nobody waits: that is what no-cache is for.
func (q *request) validate(res *stampede.Result[*stored]) {
	s := res.Value
	header := q.r.Header.Clone()
	if header == nil {
		header = make(http.Header)
	}
	for _, name := range conditionalFields {
		delete(header, name)
	}
	asked := validate(header, s)
	r := q.r.WithContext(q.r.Context())
	r.Header = header
	v := &validating{ResponseWriter: q.w, q: q, asked: asked, mayFail: res.Age < s.errorFor, tag: s.line("Etag")}
	outer := sent(q.w.Header())
	v.before, v.given = outer.Clone(), maps.Clone(outer)
	q.h.next.ServeHTTP(v, r)
	v.implied()
	age := s.age + res.Age
	switch {
	case v.abandoned:
	case v.held:
		fields := freshened(s.fields, changes(v.before, v.given, sent(v.Header())))
		replaceHeader(q.w.Header(), v.before)
		now := &stored{status: s.status, body: s.body, fields: fields}
		q.send(now, 0, &report{fwd: "stale", status: http.StatusNotModified, ttl: noTTL}, Validated)
	case v.failed:
		replaceHeader(q.w.Header(), v.before)
		q.send(s, age, &report{hit: true, ttl: noTTL, detail: "stale"}, Stale)
	}
	if v.replaced { // it does not hold any more: the next request stores what does
		name := q.baseName
		if q.spec != nil {
			name = q.varName
		}
		q.h.cache.drop(q.r.Context(), name)
	}
}

// validating passes a response on, unless it says that the stored one holds, or that the handler failed while
// the stored one may serve for that.
type validating struct {
	http.ResponseWriter
	q       *request
	asked   bool
	mayFail bool
	before  http.Header // what the layers outside have set
	given   http.Header // the same, in the slices that the handler finds
	tag     string      // of what is stored

	wrote     bool
	held      bool // 304
	failed    bool // 5xx
	replaced  bool // what is stored is not what there is now
	abandoned bool // the client left while it was sent an informational response
}

func (v *validating) implied() {
	if !v.wrote {
		v.WriteHeader(http.StatusOK)
	}
}

func (v *validating) WriteHeader(status int) {
	if v.wrote || status < 200 {
		if !v.wrote {
			v.ResponseWriter.WriteHeader(status)
			v.abandoned = v.abandoned || v.q.hasLeft()
		}
		return
	}
	v.wrote = true
	header := sent(v.Header())
	cc := parseCacheControl(header["Cache-Control"])
	v.replaced = (cc.noStore || cc.private) && status < 500
	switch {
	case status == http.StatusNotModified && v.asked:
		v.held = true
	case failed(status) && v.mayFail:
		v.failed = true
	default:
		v.replaced = v.replaced || status == http.StatusOK && (v.tag == "" || header.Get("Etag") != v.tag)
		if !v.abandoned {
			v.q.h.cache.report(v.Header(), &report{fwd: "stale", status: status, ttl: noTTL})
		}
		v.q.h.observe(v.q.r, Miss, "validate")
		v.ResponseWriter.WriteHeader(status)
	}
}

func (v *validating) swallow() bool {
	v.implied()
	return v.held || v.failed
}

func (v *validating) Write(p []byte) (int, error) {
	if v.swallow() {
		return len(p), nil
	}
	return v.ResponseWriter.Write(p)
}

func (v *validating) WriteString(s string) (int, error) {
	if v.swallow() {
		return len(s), nil
	}
	return io.WriteString(v.ResponseWriter, s)
}

func (v *validating) ReadFrom(src io.Reader) (int64, error) {
	if v.swallow() {
		return io.Copy(io.Discard, src)
	}
	return io.Copy(v.ResponseWriter, src)
}

func (v *validating) FlushError() error {
	if v.swallow() {
		return nil
	}
	return http.NewResponseController(v.ResponseWriter).Flush()
}

func (v *validating) Flush() { _ = v.FlushError() }

// Unwrap is for deadlines; what could get past this writer is above.
func (v *validating) Unwrap() http.ResponseWriter { return v.ResponseWriter }
