package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"
)

// printProgress prints a line each second until ended is closed, and a last one.
func printProgress(out io.Writer, s *storm, m *meter, ended <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	begun := time.Now()
	seen := 0
	for done := false; !done; {
		select {
		case <-tick.C:
		case <-ended:
			done = true
		}
		n, c := s.counts(), m.counts()
		fmt.Fprintf(out, "   %4.1fs  %5d sent  %4d waiting  %4d loads, %3d running  p99 %7s  %d errors\n",
			time.Since(begun).Seconds(), n.sent, n.sent-len(n.took), c.loads, c.now, at(n.took[seen:], 99), n.errors)
		seen = len(n.took)
	}
}

// printSummary prints a table of all phases and a sentence that says what it means.
func printSummary(out io.Writer, results []result) {
	fmt.Fprintln(out)
	const row = "%-20s %10s %8s %8s %8s %8s %8s %7s %9s\n"
	fmt.Fprintf(out, "%-20s %10s %8s %8s\n", "", "loads per", "most at", "within")
	fmt.Fprintf(out, row, "", "expiry", "once", short(quick), "p50", "p99", "max", "errors", "requests")
	for _, r := range results {
		fmt.Fprintf(out, row, r.name, ratio(r.loads, r.expiries), strconv.Itoa(r.most), percent(r.quick, len(r.took)),
			at(r.took, 50), at(r.took, 99), at(r.took, 100), strconv.Itoa(r.errors), strconv.Itoa(len(r.took)))
	}
	fmt.Fprintln(out)
	if len(results) < len(ways) || results[0].expiries == 0 {
		return
	}
	a, b, c := results[0], results[1], results[2]
	fmt.Fprintf(out, "One expiry cost the database %s reports without protection, %s with a singleflight in each pod, and %s with\n"+
		"herdgate; of 100 callers 99 had their answer, or an error, within %s, %s and %s.\n",
		ratio(a.loads, a.expiries), ratio(b.loads, b.expiries), ratio(c.loads, c.expiries),
		at(a.took, 99), at(b.took, 99), at(c.took, 99))
	if 4*a.errors > len(a.took) {
		fmt.Fprintf(out, "Without protection %d of %d requests failed: scans piled up until none of them ended in time, so that\n"+
			"nothing refilled the cache.\n", a.errors, len(a.took))
	}
}

// at returns the time within which p percent of requests ended.
func at(took []time.Duration, p int) string {
	if len(took) == 0 {
		return "-"
	}
	sorted := slices.Sorted(slices.Values(took))
	return short(sorted[max((len(sorted)*p+99)/100, 1)-1])
}

func ratio(a, b int) string {
	if b == 0 {
		return "-"
	}
	if a >= 10*b {
		return fmt.Sprintf("%.0f", float64(a)/float64(b))
	}
	return fmt.Sprintf("%.1f", float64(a)/float64(b))
}

func percent(a, b int) string {
	if b == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", math.Floor(1000*float64(a)/float64(b))/10) // 100 is all
}

// short prints a duration as far as it is of interest.
func short(d time.Duration) string {
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond).String()
	default:
		return d.Round(100 * time.Microsecond).String()
	}
}
