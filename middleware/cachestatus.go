package middleware

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

const cacheStatus = "Cache-Status"

// report is what Cache-Status says of one response (RFC 9211).
type report struct {
	hit       bool
	ttl       time.Duration // of a hit, or of what was collapsed or stored; noTTL: not known
	fwd       string        // why the request went to the handler
	status    int           // the handler's; zero: not told
	stored    bool
	collapsed bool
	apart     bool // it had to run by itself after all
	detail    string
}

// noTTL stands for a time that is not known.
const noTTL = time.Duration(-1 << 63)

// append adds the report to the field. Caches nearer to the handler stand before.
func (c *Cache) report(h http.Header, rep *report) {
	name := c.statusName
	if name == "" {
		return
	}
	var buf [128]byte
	b := append(buf[:0], name...)
	if rep.hit {
		b = append(b, "; hit"...)
	}
	if rep.fwd != "" {
		b = append(append(b, "; fwd="...), rep.fwd...)
	}
	if rep.status != 0 {
		b = strconv.AppendInt(append(b, "; fwd-status="...), int64(rep.status), 10)
	}
	if rep.ttl != noTTL {
		b = append(append(b, "; ttl="...), wholeSeconds(rep.ttl)...)
	}
	if rep.stored {
		b = append(b, "; stored"...)
	}
	if rep.collapsed {
		b = append(b, "; collapsed"...)
	}
	if rep.apart {
		b = append(b, "; collapsed=?0"...)
	}
	if rep.detail != "" {
		b = append(append(b, "; detail="...), rep.detail...)
	}
	h[cacheStatus] = append(h[cacheStatus], string(b))
}

// bypassTexts makes what is said of requests that go past the cache, by why, once.
func (c *Cache) bypassTexts() map[string]string {
	texts := make(map[string]string)
	if c.statusName == "" {
		return texts
	}
	for _, why := range [...]string{"method", "upgrade", "event-stream", "body", "condition", "authorization", "cookie", "host", "key-size"} {
		h := make(http.Header)
		c.report(h, &report{fwd: "bypass", detail: why, ttl: noTTL})
		texts[why] = h.Get(cacheStatus)
	}
	return texts
}

// token says whether s is one of a structured field (RFC 9651, section 3.3.4).
func token(s string) bool {
	for i := range len(s) {
		c := s[i]
		alpha := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '*'
		if !alpha && (i == 0 || !(c >= '0' && c <= '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~:/", rune(c))) {
			return false
		}
	}
	return s != ""
}
