package middleware

import (
	"net/http"
	"strings"
)

// The fields that make a request conditional (RFC 9110, section 13), and those that ask for a part. A handler
// whose response is to be stored does not see the client's own: it is to make the whole response.
var conditionalFields = []string{"If-None-Match", "If-Modified-Since", "If-Match", "If-Unmodified-Since", "If-Range", "Range"}

// notModified says whether the client's copy, as its conditions describe it, is what h describes.
// If-Modified-Since counts only without If-None-Match.
func notModified(req, h http.Header) bool {
	if tags, ok := req["If-None-Match"]; ok {
		return anyTagMatches(tags, h.Get("Etag"))
	}
	since, ok := req["If-Modified-Since"]
	if !ok {
		return false
	}
	at, ok := onlyDate(since)
	if !ok {
		return false
	}
	last, ok := onlyDate(h["Last-Modified"])
	if !ok {
		if last, ok = onlyDate(h["Date"]); !ok {
			return false
		}
	}
	return !last.After(at)
}

// anyTagMatches compares by the weak comparison. "*" matches whatever there is.
func anyTagMatches(lines []string, tag string) bool {
	for _, line := range lines {
		for line != "" {
			var member string
			member, line = cutTag(line)
			switch member = trim(member); {
			case member == "*":
				return true
			case tag != "" && weak(member) == weak(tag):
				return true
			}
		}
	}
	return false
}

// cutTag cuts off the first member of a list of entity tags, in which a backslash is a character like others.
func cutTag(list string) (tag, rest string) {
	quoted := false
	for i := range len(list) {
		switch c := list[i]; {
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			return list[:i], list[i+1:]
		}
	}
	return list, ""
}

func weak(tag string) string { return strings.TrimPrefix(tag, "W/") }

// validate makes a request conditional on the stored response. It returns false if that has no validator.
func validate(req http.Header, stored *stored) bool {
	tag, last := stored.line("Etag"), stored.line("Last-Modified")
	if tag != "" {
		req.Set("If-None-Match", tag)
	}
	if last != "" {
		req.Set("If-Modified-Since", last)
	}
	return tag != "" || last != ""
}

// notIn304 are the fields of a stored response that a 304 leaves out: they describe content that it does
// not have (RFC 9110, section 15.4.5).
func notIn304(name string) bool {
	switch name {
	case "Content-Length", "Content-Encoding", "Content-Type", "Content-Range", "Content-Md5", "Content-Digest", "Repr-Digest":
		return true
	}
	return false
}

// leaveOut removes them.
func leaveOut(h http.Header) {
	for name := range h {
		if notIn304(name) {
			delete(h, name)
		}
	}
}

// validator says whether a response has one.
func validator(h http.Header) bool { return len(h["Etag"]) > 0 || len(h["Last-Modified"]) > 0 }

// notFrom304 are the fields that a 304 of the handler does not change in what is stored: those that belong
// to the stored content, the validator that has just been confirmed (RFC 9111, section 3.2), and trailers, which
// are of this one response.
func notFrom304(name string) bool {
	switch name {
	case "Content-Length", "Content-Encoding", "Content-Range", "Content-Md5", "Content-Digest", "Repr-Digest", "Etag", "Trailer":
		return true
	}
	return strings.HasPrefix(name, http.TrailerPrefix)
}
