package main

import (
	"slices"
	"strings"
	"testing"
)

func TestSurprisesAreWhatTheListDoesNotSay(t *testing.T) {
	list, err := parseExpected("# a comment\n\nknown  it is impossible\nmended was impossible\ngone\tnobody knows\nasked why not\n")
	if err != nil {
		t.Fatal(err)
	}
	got := list.surprises([]result{
		{ID: "known", Kind: "required", Outcome: "fail"},
		{ID: "mended", Kind: "optimal", Outcome: "pass"},
		{ID: "asked", Kind: "check", Outcome: "no"},
		{ID: "other", Kind: "check", Outcome: "no"},
		{ID: "good", Kind: "required", Outcome: "pass"},
		{ID: "broken", Kind: "required", Outcome: "dependency_fail"},
		{ID: "slow", Kind: "optimal", Outcome: "optional_fail"},
	})
	for _, id := range []string{"mended", "asked", "broken", "slow", "gone"} {
		if !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, id) }) {
			t.Errorf("nothing is said of %s", id)
		}
	}
	if len(got) != 5 {
		t.Errorf("%q", got)
	}
}

func TestExpectedListGivesEachTestOneReason(t *testing.T) {
	for _, bad := range []string{"a", "a ", "a once\na twice"} {
		if list, err := parseExpected(bad); err == nil {
			t.Errorf("%q was read as %v", bad, list)
		}
	}
	if _, err := parseExpected(expectedList); err != nil {
		t.Error(err)
	}
}

func TestTableAndSummaryCountByGroupAndKind(t *testing.T) {
	results := []result{
		{Group: "stale", Kind: "required", Outcome: "pass"},
		{Group: "vary", Kind: "required", Outcome: "pass"},
		{Group: "vary", Kind: "required", Outcome: "setup_fail"},
		{Group: "vary", Kind: "optimal", Outcome: "optional_fail"},
		{Group: "vary", Kind: "check", Outcome: "yes"},
	}
	want := `
group  required  optimal  check
stale  1/1       -        -
vary   1/2       0/1      1/1
all    2/3       0/1      1/1
`
	if got := table(results); got != want[1:] {
		t.Errorf("got\n%s", got)
	}
	if got, want := summary(results), "required 2/3 safety 1/2"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
