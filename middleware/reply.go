package middleware

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// send answers with a response that another request has brought.
func (q *request) send(s *stored, age time.Duration, rep *report, outcome Outcome) {
	h := q.w.Header()
	spare := s.setFields(h)
	h["Age"] = append(spare, wholeSeconds(age))
	q.write(h, rep, s.status, s.body, outcome)
}

// setFields sets what the handler has set, beside what the layers outside have. Nothing of s is shared. It
// returns room for the value of one more field.
func (s *stored) setFields(h http.Header) (spare []string) {
	n := 0
	for i := range s.fields {
		n += len(s.fields[i].values)
	}
	values := make([]string, 0, n+1)
	for i := range s.fields {
		f := &s.fields[i]
		switch {
		case len(f.values) == 0:
			h[f.name] = nil
		case f.add:
			h[f.name] = append(slices.Clone(h[f.name]), f.values...)
		default:
			from := len(values)
			values = append(values, f.values...)
			h[f.name] = values[from:len(values):len(values)]
		}
	}
	return values[len(values):]
}

// write sends a whole response as the request wants it: all of it, a part, its head, or that the client has
// it already.
func (q *request) write(h http.Header, rep *report, status int, body []byte, outcome Outcome) {
	q.h.cache.report(h, rep)
	q.h.observe(q.r, outcome, rep.detail)
	r := q.r
	if status == http.StatusOK {
		switch {
		case notModified(r.Header, h):
			leaveOut(h)
			q.w.WriteHeader(http.StatusNotModified)
			return
		case len(r.Header["Range"]) > 0 && r.Method == http.MethodGet:
			q.writeRange(h, body)
			return
		}
	}
	if _, ok := h["Content-Type"]; !ok && len(body) > 0 && len(h["Content-Encoding"]) == 0 {
		h["Content-Type"] = []string{http.DetectContentType(body)}
	}
	if _, ok := h["Content-Length"]; !ok && bodyAllowed(status) {
		h["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	q.w.WriteHeader(status)
	if r.Method != http.MethodHead && len(body) > 0 {
		_, _ = q.w.Write(body) // that the client has gone is no fault of the response
	}
}

// writeRange sends parts of a body.
func (q *request) writeRange(h http.Header, body []byte) {
	r := q.r.Clone(q.r.Context())
	for _, name := range conditionalFields { // they have been looked at
		if name != "Range" && name != "If-Range" {
			delete(r.Header, name)
		}
	}
	delete(h, "Content-Length")
	delete(h, "Content-Digest")
	delete(h, "Content-Md5")
	if _, ok := h["Content-Type"]; !ok && len(h["Content-Encoding"]) == 0 {
		h["Content-Type"] = []string{http.DetectContentType(body)}
	}
	modified, _ := onlyDate(h["Last-Modified"])
	http.ServeContent(q.w, r, "", modified, bytes.NewReader(body))
}
