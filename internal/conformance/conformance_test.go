package main

import (
	"os"
	"path/filepath"
	"regexp"
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

// docs/conformance.md names tests that there are.
func TestThePageAboutTheTestsNamesTestsThatThereAre(t *testing.T) {
	const root = "../.."
	page, err := os.ReadFile(filepath.Join(root, "docs", "conformance.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "middleware", "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(text)
	}
	names := regexp.MustCompile("`(Test[A-Z]\\w+)`").FindAllStringSubmatch(string(page), -1)
	if len(names) < 30 {
		t.Errorf("only %d tests are named", len(names))
	}
	for _, m := range names {
		if !strings.Contains(code.String(), "\nfunc "+m[1]+"(") {
			t.Errorf("there is no test %s", m[1])
		}
	}
}
