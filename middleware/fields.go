package middleware

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

// field is a field of the handler's response.
type field struct {
	name   string
	values []string // none: the handler wants net/http not to set it
	add    bool     // to those that the layers outside the cache have set
}

// changes returns what a handler has done to the fields that it found. The map that it was given held the values
// of outer, in the slices of given: what it has set it has said, also where that is what was there before.
func changes(outer, given, h http.Header) []field {
	fields := make([]field, 0, len(h))
	for name, values := range h {
		before, had := outer[name]
		switch {
		case had && slices.Equal(before, values) && (len(values) == 0 || &values[0] == &given[name][0]):
		case had && len(before) > 0 && len(values) > len(before) && slices.Equal(before, values[:len(before)]):
			fields = append(fields, field{name, slices.Clone(values[len(before):]), true})
		default:
			fields = append(fields, field{name, slices.Clone(values), false})
		}
	}
	slices.SortFunc(fields, func(a, b field) int {
		switch {
		case a.name < b.name:
			return -1
		case a.name > b.name:
			return 1
		}
		return 0
	})
	return fields
}

// sent returns h as clients get it: to them a name is one name in any spelling, and net/http sends each as the
// map has it; of the line ends in a value it makes spaces. It is h itself where there is nothing of that.
func sent(h http.Header) http.Header {
	var odd []string
	for name, values := range h {
		if http.CanonicalHeaderKey(name) != name || slices.ContainsFunc(values, hasLineEnd) {
			odd = append(odd, name)
		}
	}
	if odd == nil {
		return h
	}
	slices.Sort(odd)
	out := maps.Clone(h)
	for _, name := range odd {
		delete(out, name)
	}
	for _, name := range odd {
		plain := http.CanonicalHeaderKey(name)
		values := slices.Clip(out[plain])
		for _, value := range h[name] {
			values = append(values, trim(lineEnds.Replace(value)))
		}
		out[plain] = values
	}
	return out
}

var lineEnds = strings.NewReplacer("\n", " ", "\r", " ")

func hasLineEnd(value string) bool { return strings.ContainsAny(value, "\r\n") }

func indexField(fields []field, name string) int {
	for i := range fields {
		if fields[i].name == name {
			return i
		}
	}
	return -1
}

// hopByHop are fields that belong to a connection (RFC 9110, section 7.6.1) or to one exchange with a proxy,
// and are not stored.
func hopByHop(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Te", "Transfer-Encoding", "Upgrade", "Trailer",
		"Proxy-Authenticate", "Proxy-Authentication-Info", "Proxy-Authorization":
		return true
	}
	return false
}

// kept returns those of a response's fields that are stored.
func (p *policy) kept(fields []field) []field {
	var named []string // by Connection
	for _, f := range fields {
		if f.name == "Connection" {
			for _, line := range f.values {
				for name := range members(line) {
					named = append(named, http.CanonicalHeaderKey(name))
				}
			}
		}
	}
	out := make([]field, 0, len(fields))
	for _, f := range fields {
		switch {
		case hopByHop(f.name), f.name == "Age", f.name == "Warning", f.name == "Set-Cookie":
			continue
		}
		drop := false
		for _, name := range named {
			drop = drop || name == f.name
		}
		if !drop {
			out = append(out, f)
		}
	}
	return out
}

// freshened returns the fields of a stored response with those of a 304 in their place.
func freshened(stored, fresh []field) []field {
	fields := make([]field, 0, len(stored)+len(fresh))
	for _, f := range stored {
		if i := indexField(fresh, f.name); i >= 0 && !notFrom304(f.name) {
			f = fresh[i]
		}
		fields = append(fields, f)
	}
	for _, f := range fresh {
		if indexField(fields, f.name) < 0 && !notFrom304(f.name) {
			fields = append(fields, f)
		}
	}
	return fields
}
