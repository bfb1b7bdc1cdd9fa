package middleware

import (
	"strings"
	"time"
)

// directives are what Cache-Control says (RFC 9111, section 5.2; RFC 5861), in a response or a request.
// Unknown directives are passed over.
type directives struct {
	noStore, noCache, private, public bool
	mustRevalidate, proxyRevalidate   bool
	mustUnderstand                    bool
	onlyIfCached                      bool

	maxAge, sMaxAge, staleWhileRevalidate, staleIfError seconds
}

// seconds is the value of a directive that has one. What is no number counts as zero: a lifetime that cannot
// be read is better taken as none than as endless.
type seconds struct {
	given bool
	d     time.Duration
}

// parseCacheControl reads all lines of the field.
//
// Where the RFC leaves room, the answer is the careful one: private and no-cache with a list of fields
// count as without; of two values of one directive the smaller one counts; and in what breaks the grammar, like
// "private; max-age=60" or a quote that does not end, each word counts that forbids or shortens something.
func parseCacheControl(lines []string) (d directives) {
	for _, line := range lines {
		for line != "" {
			var member string
			member, line = cutMember(line)
			name, value, _ := strings.Cut(member, "=")
			name, value = trim(name), trim(value)
			if strings.ContainsFunc(name, notInWord) || strings.ContainsFunc(value, notInWord) && !quoted(value) {
				d.suspect(member)
			}
			value = unquote(value)
			switch {
			case strings.EqualFold(name, "no-store"):
				d.noStore = true
			case strings.EqualFold(name, "no-cache"):
				d.noCache = true
			case strings.EqualFold(name, "private"):
				d.private = true
			case strings.EqualFold(name, "public"):
				d.public = true
			case strings.EqualFold(name, "must-revalidate"):
				d.mustRevalidate = true
			case strings.EqualFold(name, "proxy-revalidate"):
				d.proxyRevalidate = true
			case strings.EqualFold(name, "must-understand"):
				d.mustUnderstand = true
			case strings.EqualFold(name, "only-if-cached"):
				d.onlyIfCached = true
			case strings.EqualFold(name, "max-age"):
				d.maxAge.set(value)
			case strings.EqualFold(name, "s-maxage"):
				d.sMaxAge.set(value)
			case strings.EqualFold(name, "stale-while-revalidate"):
				d.staleWhileRevalidate.set(value)
			case strings.EqualFold(name, "stale-if-error"):
				d.staleIfError.set(value)
			}
		}
	}
	return d
}

// suspect reads the words of what is no directive: those that permit something do not count, and a lifetime is none.
func (d *directives) suspect(text string) {
	for word := range strings.FieldsFuncSeq(text, notInWord) {
		switch strings.ToLower(word) {
		case "no-store":
			d.noStore = true
		case "no-cache":
			d.noCache = true
		case "private":
			d.private = true
		case "must-revalidate", "proxy-revalidate":
			d.proxyRevalidate = true // must-revalidate permits something as well
		case "max-age", "s-maxage":
			d.maxAge.set("")
		case "stale-while-revalidate":
			d.staleWhileRevalidate.set("")
		case "stale-if-error":
			d.staleIfError.set("")
		}
	}
}

func notInWord(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
}

func (s *seconds) set(text string) {
	n, _ := deltaSeconds(text)
	d := time.Duration(n) * time.Second
	if !s.given || d < s.d {
		s.given, s.d = true, d
	}
}

// maxSeconds is what larger numbers count as (RFC 9111, section 1.2.2).
const maxSeconds = 1 << 31

// deltaSeconds reads a number of seconds: digits and nothing else.
func deltaSeconds(text string) (n int64, ok bool) {
	if text == "" {
		return 0, false
	}
	for i := range len(text) {
		c := text[i]
		if c < '0' || c > '9' {
			return 0, false
		}
		if n = n*10 + int64(c-'0'); n > maxSeconds {
			n = maxSeconds
		}
	}
	return n, true
}

// members yields the members of a comma-separated list, each as what is before and after its first equals
// sign. Commas and equals signs within a quoted string belong to it; a value that is wholly quoted is
// yielded without its quotes.
func members(line string) func(yield func(name, value string) bool) {
	return func(yield func(name, value string) bool) {
		for line != "" {
			var member string
			member, line = cutMember(line)
			name, value, _ := strings.Cut(member, "=")
			name = trim(name)
			if name == "" {
				continue
			}
			if !yield(name, unquote(trim(value))) {
				return
			}
		}
	}
}

// cutMember cuts off the first member of a list.
func cutMember(list string) (member, rest string) {
	quoted := false
	for i := 0; i < len(list); i++ {
		switch c := list[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			return list[:i], list[i+1:]
		}
	}
	return list, ""
}

func trim(s string) string { return strings.Trim(s, " \t") }

// quoted says whether all of s is one quoted string.
func quoted(s string) bool {
	if !strings.HasPrefix(s, `"`) {
		return false
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i == len(s)-1
		}
	}
	return false
}

// unquote takes the quotes of a quoted string away; escapes in it stay, since no directive needs them.
func unquote(s string) string {
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		return s[1 : len(s)-1]
	}
	return s
}

// overrideMaxAge returns Cache-Control with max-age instead of whatever lifetime it had. The rest stays.
func overrideMaxAge(lines []string, life time.Duration) string {
	var b strings.Builder
	b.WriteString("max-age=")
	b.WriteString(wholeSeconds(life))
	for _, line := range lines {
		for line != "" {
			var member string
			member, line = cutMember(line)
			member = trim(member)
			name, _, _ := strings.Cut(member, "=")
			if name = trim(name); name == "" || strings.EqualFold(name, "max-age") || strings.EqualFold(name, "s-maxage") {
				continue
			}
			b.WriteString(", ")
			b.WriteString(member)
		}
	}
	return b.String()
}
