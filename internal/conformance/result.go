package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// result is what run.mjs says of one test.
type result struct {
	ID      string
	Name    string
	Group   string
	Kind    string // required, optimal or check
	Outcome string // the suite's word, such as pass, optional_fail or dependency_fail
	Why     string // what the suite found wrong
}

// judged reports whether the test has a right answer.
func (r result) judged() bool { return r.Kind != "check" }

func (r result) passed() bool { return r.Outcome == "pass" || r.Outcome == "yes" }

// String is the result on one line.
func (r result) String() string {
	return fmt.Sprintf("%s (%s, %s): %s %s", r.ID, r.Group, r.Kind, r.Outcome, oneLine(r.Why))
}

// safetyGroups are those in which a failure may show somebody what was not meant for him, or what is not so
// any more.
var safetyGroups = []string{"cc-response", "auth", "vary", "vary-parse", "invalidation", "heuristic"}

func safety(r result) bool {
	return r.Kind == "required" && slices.Contains(safetyGroups, r.Group)
}

// count counts the tests that are meant, and those of them that passed.
func count(results []result, meant func(result) bool) (passed, total int) {
	for _, r := range results {
		if meant(r) {
			total++
			if r.passed() {
				passed++
			}
		}
	}
	return passed, total
}

// table has a line for each group, in the suite's order, and a column for each kind.
func table(results []result) string {
	var groups []string
	for _, r := range results {
		if !slices.Contains(groups, r.Group) {
			groups = append(groups, r.Group)
		}
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	kinds := []string{"required", "optimal", "check"}
	fmt.Fprintf(w, "group\t%s\n", strings.Join(kinds, "\t"))
	line := func(name string, group func(result) bool) {
		fmt.Fprint(w, name)
		for _, kind := range kinds {
			passed, total := count(results, func(r result) bool { return r.Kind == kind && group(r) })
			cell := "-"
			if total > 0 {
				cell = fmt.Sprintf("%d/%d", passed, total)
			}
			fmt.Fprint(w, "\t", cell)
		}
		fmt.Fprintln(w)
	}
	for _, name := range groups {
		line(name, func(r result) bool { return r.Group == name })
	}
	line("all", func(result) bool { return true })
	_ = w.Flush() // to a strings.Builder
	return b.String()
}

// summary is the line that the run ends with.
func summary(results []result) string {
	passed, total := count(results, func(r result) bool { return r.Kind == "required" })
	safe, all := count(results, safety)
	return fmt.Sprintf("required %d/%d safety %d/%d", passed, total, safe, all)
}
