package middleware

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// change runs the handler for a request of an unsafe method. When that has been done without an error, what
// is stored for its URL is invalid, and for those that Location and Content-Location name (RFC 9111, section
// 4.4). The response goes out after that: who has it sees what has changed.
func (h *handler) change(w http.ResponseWriter, r *http.Request) {
	h.cache.report(w.Header(), &report{fwd: "method", ttl: noTTL})
	c := &changing{ResponseWriter: w, h: h, r: r}
	returned := false
	defer func() {
		if !returned || !c.wrote { // who knows what a handler that panicked has done
			c.invalidate(http.StatusOK)
		}
		h.observe(r, Bypass, "method")
	}()
	h.next.ServeHTTP(c, r)
	returned = true
}

// changing sees to it that the invalidation comes before the response.
type changing struct {
	http.ResponseWriter
	h     *handler
	r     *http.Request
	wrote bool
}

func (c *changing) invalidate(status int) {
	if c.wrote {
		return
	}
	c.wrote = true
	if status >= 400 {
		return
	}
	cache, r := c.h.cache, c.r
	path := r.URL.EscapedPath()
	was := before(r, path)
	keys := cache.keysOf(r.Host, r.URL, was)
	public, err := url.Parse(askedPath(r)) // what relative references are relative to
	if err != nil {
		public = r.URL
	}
	prefix, _ := strings.CutSuffix(was, path)
	header := sent(c.Header())
	for _, name := range [...]string{"Location", "Content-Location"} {
		for _, line := range header[name] {
			u, err := public.Parse(line)
			if err != nil || u.Host != "" && u.Host != r.Host { // others are not ours to invalidate
				continue
			}
			asked := u.EscapedPath()
			keys = append(keys, cache.keysOf(r.Host, u, "")...)
			if rest, ok := strings.CutPrefix(u.Path, prefix); ok && prefix != "" {
				u.Path, u.RawPath = rest, ""
				keys = append(keys, cache.keysOf(r.Host, u, asked)...)
			}
		}
	}
	cache.drop(r.Context(), keys...)
}

// WriteHeader invalidates before the client can know that anything has changed.
func (c *changing) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		c.invalidate(status)
	}
	c.ResponseWriter.WriteHeader(status)
}

// Write is WriteHeader(200), if that was not called.
func (c *changing) Write(p []byte) (int, error) {
	c.invalidate(http.StatusOK)
	return c.ResponseWriter.Write(p)
}

// WriteString is Write for strings.
func (c *changing) WriteString(s string) (int, error) {
	c.invalidate(http.StatusOK)
	return io.WriteString(c.ResponseWriter, s)
}

// ReadFrom is Write for what src holds.
func (c *changing) ReadFrom(src io.Reader) (int64, error) {
	c.invalidate(http.StatusOK)
	return io.Copy(c.ResponseWriter, src)
}

// FlushError sends the header, so it invalidates, too.
func (c *changing) FlushError() error {
	c.invalidate(http.StatusOK)
	return http.NewResponseController(c.ResponseWriter).Flush()
}

// Flush is FlushError without the error.
func (c *changing) Flush() { _ = c.FlushError() }

// Hijack takes the connection for an answer that nobody sees here.
func (c *changing) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c.invalidate(http.StatusOK)
	return http.NewResponseController(c.ResponseWriter).Hijack()
}

// Unwrap is for deadlines and full duplex; what could get past this writer is above.
func (c *changing) Unwrap() http.ResponseWriter { return c.ResponseWriter }
