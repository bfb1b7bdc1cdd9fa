package middleware

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// capture is the ResponseWriter that the handler of a load gets. It keeps the response, or, once that
// is known not to be stored, has the leader write it as it comes. It has no Unwrap: nothing gets
// past it.
type capture struct {
	ex     *exchange
	outer  http.Header // what the layers outside the cache have set
	given  http.Header // the handler's, as it was given them
	header http.Header // the handler's

	wrote    bool
	status   int
	fields   []field     // what the handler has set, as of then
	final    http.Header // all of it, as of then: what the leader gets
	date     time.Time
	ownDate  bool // it is not the handler's
	headerAt time.Time
	declared int64 // Content-Length
	written  int64
	body     []byte
	judged   judgement

	passing bool // the header has gone to the leader
	discard bool // and was a 304: no body follows
}

var (
	_ http.Flusher    = (*capture)(nil)
	_ http.Hijacker   = (*capture)(nil)
	_ io.StringWriter = (*capture)(nil)
)

// Header returns the handler's own map.
func (c *capture) Header() http.Header { return c.header }

// WriteHeader takes the final status; informational ones go to the leader at once.
func (c *capture) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("invalid WriteHeader code %v", status))
	}
	if status < 200 && status != http.StatusSwitchingProtocols {
		if !c.wrote {
			c.inform(status)
		}
		return
	}
	c.writeHeader(status)
}

// writeHeader does nothing the second time.
func (c *capture) writeHeader(status int) {
	if c.wrote {
		return
	}
	ex := c.ex
	c.wrote, c.status = true, status
	header := sent(c.header)
	c.final = header.Clone()
	c.declared = contentLength(header)
	now := time.Now()
	c.headerAt = now
	if date, ok := onlyDate(header["Date"]); ok {
		c.date = date
	} else {
		c.date = now.Truncate(time.Second)
	}
	c.fields = changes(c.outer, c.given, header)
	h := make(http.Header, len(c.fields))
	for _, f := range c.fields {
		h[f.name] = f.values
	}
	c.judged = ex.p.judge(ex.q.auth, status, h, header, c.date, now, time.Since(ex.begun))
	if c.declared > int64(ex.p.MaxBody) && c.judged.store {
		c.judged.store, c.judged.why, c.judged.remember = false, "body-size", true
	}
	if _, ok := onlyDate(h["Date"]); !ok && c.judged.store { // hits are to have the same
		c.ownDate = true
		c.setDate(now)
	}
	if c.judged.override {
		c.final.Set("Cache-Control", overrideMaxAge(c.final["Cache-Control"], ex.p.ttl(status)))
		c.final.Del("Expires")
		c.final.Del("Pragma")
	}
	switch {
	case c.judged.store, status == http.StatusNotModified && ex.asked:
	case failed(status) && ex.prev != nil: // the older one may serve
	default:
		c.pass()
	}
}

// trailers copies what the handler has set for after the body.
func (c *capture) trailers(h http.Header) {
	for _, line := range c.final["Trailer"] {
		for name := range members(line) {
			name = http.CanonicalHeaderKey(name)
			if values, ok := c.header[name]; ok {
				h[name] = values
			}
		}
	}
	for name, values := range c.header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			h[name] = values
		}
	}
}

// setDate sets the Date that the handler has not.
func (c *capture) setDate(now time.Time) {
	values := []string{now.UTC().Format(http.TimeFormat)}
	c.final["Date"] = values
	if i := indexField(c.fields, "Date"); i >= 0 {
		c.fields[i] = field{name: "Date", values: values}
		return
	}
	c.fields = append(c.fields, field{name: "Date", values: values})
}

// pass gives up storing: what there is goes to the leader, and so does what comes.
func (c *capture) pass() {
	c.ex.release()
	c.show()
}

// show has the leader send the header and what there is of the body.
func (c *capture) show() {
	if c.passing {
		return
	}
	ex, status := c.ex, c.status
	c.passing = true
	if status == http.StatusOK && validator(c.final) && notModified(ex.q.copied.Header, c.final) {
		c.discard, status = true, http.StatusNotModified // what the client has is the same
	}
	rep := report{fwd: ex.fwd, status: c.status, detail: c.judged.why, ttl: noTTL}
	ex.post(sendHeader, func(w http.ResponseWriter) {
		h := w.Header()
		replaceHeader(h, c.final)
		if c.discard {
			leaveOut(h)
		}
		ex.q.passed(h, &rep)
		w.WriteHeader(status)
		ex.show(c.discard)
	})
}

// replaceHeader makes h what from is.
func replaceHeader(h, from http.Header) {
	clear(h)
	for name, values := range from {
		h[name] = values
	}
}

// inform has the leader send an informational response.
func (c *capture) inform(status int) {
	header := c.header.Clone()
	c.ex.claim()
	c.ex.post(sendHints, func(w http.ResponseWriter) {
		h := w.Header()
		before := h.Clone()
		replaceHeader(h, header)
		w.WriteHeader(status)
		if c.ex.q.hasLeft() {
			c.ex.abandoned = true
			return
		}
		replaceHeader(h, before)
	})
}

// Write keeps p, or has the leader write it.
func (c *capture) Write(p []byte) (int, error) {
	return c.write(len(p), func() { c.body = append(c.body, p...) }, func(w http.ResponseWriter) (int, error) { return w.Write(p) })
}

// WriteString is Write for strings.
func (c *capture) WriteString(s string) (int, error) {
	return c.write(len(s), func() { c.body = append(c.body, s...) }, func(w http.ResponseWriter) (int, error) { return io.WriteString(w, s) })
}

func (c *capture) write(n int, keep func(), send func(http.ResponseWriter) (int, error)) (int, error) {
	c.writeHeader(http.StatusOK)
	if !bodyAllowed(c.status) {
		return 0, http.ErrBodyNotAllowed
	}
	if c.written += int64(n); c.declared >= 0 && c.written > c.declared {
		return 0, http.ErrContentLength
	}
	ex := c.ex
	ex.mu.Lock()
	capturing := ex.capturing
	if capturing && len(c.body)+n <= ex.p.MaxBody {
		keep()
		if c.passing {
			ex.wake()
		}
		ex.mu.Unlock()
		return n, nil
	}
	ex.mu.Unlock()
	switch {
	case capturing:
		c.judged.store, c.judged.why, c.judged.remember = false, "body-size", c.status < 400
		c.pass()
	default: // if the load was given up, nothing has been sent yet
		c.show()
	}
	if c.discard {
		return n, nil
	}
	var err error
	if !ex.do(func(w http.ResponseWriter) { n, err = send(w) }) {
		return 0, c.lost()
	}
	return n, err
}

// lost is what a handler is told that writes for nobody.
func (c *capture) lost() error {
	if err := c.ex.ctx.Err(); err != nil {
		return err
	}
	return io.ErrClosedPipe
}

// Flush is FlushError without the error.
func (c *capture) Flush() { _ = c.FlushError() }

// FlushError has the leader send what there is. Where nobody but a default has said that the response may be
// stored, it is taken for a stream. Else it is stored when it is complete.
func (c *capture) FlushError() (err error) {
	c.writeHeader(http.StatusOK)
	switch {
	case c.passing:
	case !c.judged.store: // it may not be shown yet, if at all
		return nil
	case c.judged.byPolicy && c.ex.p.Mode == Respect:
		c.judged.store, c.judged.why, c.judged.remember = false, "stream", c.status < 400
		c.pass()
	default:
		c.ex.claim()
		c.show()
		if c.judged.byPolicy {
			close(c.ex.flushed)
		}
	}
	ex := c.ex
	ex.mu.Lock()
	if ex.capturing {
		ex.flushing = true
		ex.wake()
		ex.mu.Unlock()
		return nil
	}
	ex.mu.Unlock()
	ex.do(func(w http.ResponseWriter) { err = http.NewResponseController(w).Flush() })
	return err
}

// Hijack is not possible in a load; requests that ask for an upgrade do not come here.
func (c *capture) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, http.ErrNotSupported
}

// SetReadDeadline applies to the leader's connection.
func (c *capture) SetReadDeadline(at time.Time) error {
	return c.control(setReadDeadline, func(rc *http.ResponseController) error { return rc.SetReadDeadline(at) })
}

// SetWriteDeadline applies to the leader's connection.
func (c *capture) SetWriteDeadline(at time.Time) error {
	return c.control(setWriteDeadline, func(rc *http.ResponseController) error { return rc.SetWriteDeadline(at) })
}

// EnableFullDuplex applies to the leader's connection.
func (c *capture) EnableFullDuplex() error {
	return c.control(setFullDuplex, (*http.ResponseController).EnableFullDuplex)
}

// control tells the error only where the handler waits for the leader anyway.
func (c *capture) control(kind opKind, set func(*http.ResponseController) error) error {
	var err error
	waits := !c.ex.isCapturing()
	c.ex.claim()
	if !c.ex.post(kind, func(w http.ResponseWriter) {
		if e := set(http.NewResponseController(w)); waits {
			err = e
		}
	}) {
		return http.ErrNotSupported
	}
	if !waits {
		return nil
	}
	return err
}

func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}
