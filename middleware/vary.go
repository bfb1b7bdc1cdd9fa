package middleware

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// varyFields returns the names of the fields that Vary nominates, canonical, sorted, each once. star says
// that it holds a "*" anywhere, which no request ever matches. What is no name counts as one: nobody knows what
// it was to nominate.
func varyFields(lines []string) (names []string, star bool) {
	for _, line := range lines {
		for line != "" {
			var member string
			member, line, _ = strings.Cut(line, ",")
			switch member = trim(member); {
			case member == "":
			case member == "*", strings.ContainsFunc(member, notInName):
				return nil, true
			default:
				names = append(names, textproto.CanonicalMIMEHeaderKey(member))
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), false
}

// selecting returns the value of a request's field as it is compared: without the space around members. Lines stay
// apart, each with its length before it: a list may be one line or several, but a handler that looks at the first
// line alone tells them apart. ok is false if the request has no such field.
func selecting(h http.Header, name string) (value string, ok bool) {
	lines := h[name]
	if len(lines) == 0 {
		return "", false
	}
	if value = spaceless(lines[0]); len(lines) == 1 && !strings.HasPrefix(value, severalLines) {
		return value, true
	}
	b := []byte(severalLines)
	for _, line := range lines {
		b = appendPart(b, spaceless(line))
	}
	return string(b), true
}

// severalLines is what the value of several lines begins with, and of one that begins so itself: no server lets that
// through.
const severalLines = "\x00"

// spaceless returns a list without the space around its members.
func spaceless(list string) string {
	if !strings.Contains(list, ",") {
		return trim(list)
	}
	b := make([]byte, 0, len(list))
	for rest := list; ; b = append(b, ',') {
		member, after := cutMember(rest)
		b = append(b, trim(member)...)
		if len(member) == len(rest) { // there was no comma
			return string(b)
		}
		rest = after
	}
}

// notInName says whether r does not belong to the name of a field (RFC 9110, section 5.6.2).
func notInName(r rune) bool { return notInWord(r) && !strings.ContainsRune("!#$%&'*+.^`|~", r) }

// contains says whether all names of b, which are sorted, are in a.
func contains(a, b []string) bool {
	for _, name := range b {
		if _, ok := slices.BinarySearch(a, name); !ok {
			return false
		}
	}
	return true
}

// union returns the names of both, sorted.
func union(a, b []string) []string {
	all := append(slices.Clone(a), b...)
	slices.Sort(all)
	return slices.Compact(all)
}
