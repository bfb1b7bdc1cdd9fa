package main

import (
	"fmt"
	"strings"
)

// expected holds, by test, the reason why it does not pass.
type expected map[string]string

// parseExpected reads a list with one test a line: its id, white space, the reason. Empty lines, and lines
// that begin with #, mean nothing.
func parseExpected(list string) (expected, error) {
	e := make(expected)
	number := 0
	for line := range strings.Lines(list) {
		number++
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || strings.HasPrefix(words[0], "#"):
		case len(words) == 1:
			return nil, fmt.Errorf("expected.txt:%d: %s has no reason", number, words[0])
		case e[words[0]] != "":
			return nil, fmt.Errorf("expected.txt:%d: %s is there twice", number, words[0])
		default:
			e[words[0]] = strings.Join(words[1:], " ")
		}
	}
	return e, nil
}

// surprises says where the results and the list differ.
func (e expected) surprises(results []result) []string {
	var list []string
	seen := make(map[string]bool)
	for _, r := range results {
		seen[r.ID] = true
		reason, known := e[r.ID]
		switch {
		case known && !r.judged():
			list = append(list, fmt.Sprintf("a check cannot fail, take it out of expected.txt: %s", r.ID))
		case known && r.passed():
			list = append(list, fmt.Sprintf("passes, take it out of expected.txt: %s (%s)", r.ID, reason))
		case !known && r.judged() && !r.passed():
			list = append(list, fmt.Sprintf("FAILS: %s", r))
		}
	}
	for id := range e {
		if !seen[id] {
			list = append(list, fmt.Sprintf("there is no such test, take it out of expected.txt: %s", id))
		}
	}
	return list
}
