package middleware

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// varyFields returns the names of the fields that Vary nominates, canonical, sorted, each once. star says
// that it holds a "*" anywhere, which no request ever matches.
func varyFields(lines []string) (names []string, star bool) {
	for _, line := range lines {
		for line != "" {
			var member string
			member, line, _ = strings.Cut(line, ",")
			switch member = trim(member); member {
			case "":
			case "*":
				return nil, true
			default:
				names = append(names, textproto.CanonicalMIMEHeaderKey(member))
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), false
}

// selecting returns the value of a request's field as it is compared: its lines joined by commas, without the
// space around members. ok is false if the request has no such field.
func selecting(h http.Header, name string) (value string, ok bool) {
	lines := h[name]
	if len(lines) == 0 {
		return "", false
	}
	joined := strings.Join(lines, ",")
	if !strings.Contains(joined, ",") {
		return trim(joined), true
	}
	b := make([]byte, 0, len(joined))
	for rest := joined; ; b = append(b, ',') {
		member, after := cutMember(rest)
		b = append(b, trim(member)...)
		if len(member) == len(rest) { // there was no comma
			return string(b), true
		}
		rest = after
	}
}

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
