package middleware

import (
	"net/http"
	"strconv"
	"time"
)

// lifetimes say how long a response may be used. The windows count from the end of fresh on.
type lifetimes struct {
	fresh        time.Duration // what is left of it when the response is stored; not above zero: it is stale
	stale        time.Duration // served stale at once while one loads
	staleIfError time.Duration // served stale when the handler fails
}

// explicitLifetime is the freshness lifetime that the response itself states (RFC 9111, section 4.2.1).
// shared says that it is that of s-maxage.
func explicitLifetime(h http.Header, cc *directives, date time.Time) (life time.Duration, shared, ok bool) {
	switch {
	case cc.sMaxAge.given:
		return cc.sMaxAge.d, true, true
	case cc.maxAge.given:
		return cc.maxAge.d, false, true
	}
	lines, ok := h["Expires"]
	if !ok || lines == nil {
		return 0, false, false
	}
	at, valid := onlyDate(lines)
	if !valid { // "0", say: it has expired already
		return 0, false, true
	}
	return min(max(at.Sub(date), 0), maxSeconds*time.Second), false, true
}

// initialAge is how old the response is when it is stored (RFC 9111, section 4.2.3). delay is how long the
// handler took; it counts only where the response has come from elsewhere, as Age shows. For one that the
// handler made itself, Date is when it was made.
func initialAge(h http.Header, date, now time.Time, delay time.Duration) time.Duration {
	apparent := max(now.Sub(date), 0)
	lines := h["Age"]
	if len(lines) == 0 {
		return apparent
	}
	return max(apparent, parseAge(lines)+delay)
}

// parseAge reads Age. Anything but one number counts as older than any lifetime: RFC 9111 would pass it over
// (section 5.1), but a response whose freshness is in doubt is better taken as stale (section 4.2.1).
func parseAge(lines []string) time.Duration {
	if len(lines) == 1 {
		if n, ok := deltaSeconds(trim(lines[0])); ok {
			return time.Duration(n) * time.Second
		}
	}
	return maxSeconds * time.Second
}

// onlyDate reads a field that holds one date. Two lines are no date.
func onlyDate(lines []string) (time.Time, bool) {
	if len(lines) != 1 {
		return time.Time{}, false
	}
	return parseDate(lines[0])
}

// parseDate reads an HTTP date in one of its three forms (RFC 9110, section 5.6.7). Go's parser takes an
// hour of one digit, too; the length does not.
func parseDate(text string) (time.Time, bool) {
	at, err := http.ParseTime(text)
	if err != nil {
		return time.Time{}, false
	}
	if len(text) == len(http.TimeFormat) && text[len(text)-4:] == " GMT" {
		return at, true
	}
	// RFC 850 and asctime, whose lengths differ from that and among each other.
	for _, layout := range []string{time.RFC850, time.ANSIC} {
		if again, err := time.Parse(layout, text); err == nil && again.Format(layout) == text {
			return at, true
		}
	}
	return time.Time{}, false
}

// wholeSeconds writes d in seconds, rounded down.
func wholeSeconds(d time.Duration) string {
	s := d / time.Second
	if d < 0 && d%time.Second != 0 {
		s--
	}
	return strconv.FormatInt(int64(s), 10)
}
