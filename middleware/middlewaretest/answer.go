package middlewaretest

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
)

// answer is what came back for a request, without what may differ between equal answers.
type answer struct {
	aborted bool // the handler panicked
	status  int
	header  http.Header
	body    []byte
}

// ask sends a request to h, as the server of net/http would.
func (r *Route) ask(h http.Handler, req *http.Request) (a answer) {
	w := httptest.NewRecorder()
	defer func() {
		if recover() != nil {
			a = answer{aborted: true}
		}
	}()
	h.ServeHTTP(w, req)
	res := w.Result()
	a = answer{status: res.StatusCode, header: res.Header, body: w.Body.Bytes()}
	for _, name := range append([]string{"Age", "Cache-Status", "Date", "Expires", "Content-Length"}, r.Ignore...) {
		a.header.Del(name)
	}
	if r.Body != nil {
		a.body = r.Body(a.body)
	}
	return a
}

// difference says in what two answers differ; "" if in nothing.
func (a *answer) difference(b *answer) string {
	switch {
	case a.aborted != b.aborted:
		return "whether there is an answer"
	case a.status != b.status:
		return fmt.Sprintf("the status (%d, %d)", a.status, b.status)
	}
	names := slices.AppendSeq(slices.Collect(maps.Keys(a.header)), maps.Keys(b.header))
	slices.Sort(names)
	for _, name := range names {
		if x, y := a.header[name], b.header[name]; !slices.Equal(x, y) {
			return fmt.Sprintf("the header %s (%q, %q)", name, x, y)
		}
	}
	if !bytes.Equal(a.body, b.body) {
		return "the body"
	}
	return ""
}
