package report

import (
	"fmt"
	"slices"
	"strings"
)

// Extracts returns what documents show of the results, by the name of the place: Markdown for README.md and
// docs/performance.md. What there are no results of is left out.
func (b *Book) Extracts() map[string]string {
	all := make(map[string]string)
	for name, text := range map[string]string{
		"speed":  b.speed(),
		"http":   b.web(),
		"growth": b.growth(),
	} {
		if text != "" {
			all[name] = strings.TrimSpace(text) + "\n\n" + b.source() + "\n"
		}
	}
	return all
}

// source says where the numbers of an extract are from.
func (b *Book) source() string {
	r := &b.Run
	return fmt.Sprintf("*%s, %s, %d cores, %s, Redis %s on loopback; medians.*", r.Time.Format("January 2006"), r.CPU, r.Cores, r.Go, r.Redis)
}

// pick names a number of the results.
type pick struct {
	title, workload, variant, key string
	unit                          string
}

// cell is the median of what is picked, of one contender; "" when there is none.
func (b *Book) cell(p pick, contender string) string {
	i := slices.IndexFunc(b.Run.Workloads, func(w Workload) bool { return w.Name == p.workload })
	if i < 0 {
		return ""
	}
	columns := b.Run.Workloads[i].Columns
	j := slices.IndexFunc(columns, func(c Column) bool { return c.Key == p.key })
	if j < 0 {
		return ""
	}
	s, ok := b.Value(p.workload, p.variant, contender, columns[j])
	if !ok {
		return ""
	}
	s.N = 1 // the median alone
	return columns[j].Cell(s) + p.unit
}

// matrix is a table of picks by contenders, without those that have none of them.
func (b *Book) matrix(picks []pick, names []string) string {
	var rows strings.Builder
	for _, name := range names {
		cells, empty := make([]string, len(picks)), true
		for i, p := range picks {
			cells[i] = b.cell(p, name)
			empty = empty && cells[i] == ""
		}
		if empty {
			continue
		}
		if ours(name) {
			name = "**" + name + "**"
		}
		fmt.Fprintf(&rows, "| %s | %s |\n", name, strings.Join(cells, " | "))
	}
	if rows.Len() == 0 {
		return ""
	}
	var heads []string
	for _, p := range picks {
		heads = append(heads, p.title)
	}
	return fmt.Sprintf("| | %s |\n|---|%s\n%s", strings.Join(heads, " | "), strings.Repeat("--:|", len(heads)), rows.String())
}

// speed is README.md's: what counts in a stampede, and what a hit costs.
func (b *Book) speed() string {
	const storm, cold = "8 pods x 32", "8 pods x 64"
	stampede := b.matrix([]pick{
		{"loads per expiry", "storm", storm, "per_expiry", ""},
		{"p99", "storm", storm, "p99", " ms"},
		{"within 5 ms", "storm", storm, "within5", " %"},
		{"requests per call", "storm", storm, "requests", ""},
		{"cold key: loads", "cold", cold, "per_round", ""},
		{"wait beyond the load", "cold", cold, "beyond", " ms"},
		{"leader killed: next load after", "crash", "4 processes", "next", " ms"},
		{"Redis stopped: within 50 ms", "outage", "default clients", "within50", " %"},
	}, b.names(func(name string) bool { return !strings.HasPrefix(name, "raw") && b.shared(name) }))
	hits := b.list([]listed{
		{"hit in Redis, 1 goroutine", "calls of raw `GET`", pick{"", "redis-hit", "1000 keys, 1 goroutine", "vs_get", ""}, "herdgate"},
		{"the same, 128 goroutines", "calls of raw `GET`", pick{"", "redis-hit", "1000 keys, 128 goroutines", "vs_get", ""}, "herdgate"},
		{"", "rueidis, calls of raw `GET`", pick{"", "redis-hit", "1000 keys, 128 goroutines", "vs_get", ""}, "raw GET rueidis"},
		{"hit in memory (`Local.TTL`), 1 goroutine", "time of otter", pick{"", "memory-hit", "Zipf over 1000, 1 goroutine", "vs_otter", ""}, "herdgate+L1"},
		{"the same, 256 goroutines", "time of otter", pick{"", "memory-hit", "Zipf over 1000, 256 goroutines", "vs_otter", ""}, "herdgate+L1"},
		{"page of 1 KiB from memory", "requests of a bare handler", pick{"", "http", "hit, 1 KiB", "vs_bare", ""}, "herdgate+L1"},
		{"the same from Redis", "requests of a bare handler", pick{"", "http", "hit, 1 KiB", "vs_bare", ""}, "herdgate"},
		{"request that goes past the cache", "requests of a bare handler", pick{"", "http", "past the cache, 1 KiB", "vs_bare", ""}, "herdgate+L1"},
	})
	if stampede == "" {
		return ""
	}
	return "![Loads per expiry, and the 99th percentile of latency, in an expiry storm](docs/storm.svg)\n\n" + stampede + "\n" + hits
}

// listed is a line of a list of numbers.
type listed struct {
	what, of  string
	pick      pick
	contender string
}

func (b *Book) list(lines []listed) string {
	var rows strings.Builder
	for _, l := range lines {
		if cell := b.cell(l.pick, l.contender); cell != "" {
			fmt.Fprintf(&rows, "| %s | %s | %s |\n", l.what, cell, l.of)
		}
	}
	if rows.Len() == 0 {
		return ""
	}
	return "| | | times the |\n|---|--:|---|\n" + rows.String()
}

// web is what docs/performance.md shows of HTTP.
func (b *Book) web() string {
	var rows strings.Builder
	for _, variant := range b.Variants("http") {
		at := func(key, contender string) string { return b.cell(pick{"", "http", variant, key, ""}, contender) }
		fmt.Fprintf(&rows, "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", variant,
			at("vs_bare", "bare handler"), at("vs_bare", "herdgate+L1"), at("vs_bare", "herdgate"),
			at("vs_cpu", "herdgate+L1"), at("vs_cpu", "herdgate"),
			at("beyond", "herdgate+L1"), at("beyond", "herdgate"), at("requests", "herdgate"))
	}
	if rows.Len() == 0 {
		return ""
	}
	return "| | bare, again | from memory | from Redis | CPU, memory | CPU, Redis | allocations, memory | allocations, Redis | requests to Redis |\n" +
		"|---|--:|--:|--:|--:|--:|--:|--:|--:|\n" + rows.String()
}

// growth is what docs/performance.md shows of how costs grow: a table for each series.
func (b *Book) growth() string {
	var text strings.Builder
	for _, workload := range []string{"cold-growth", "hit-growth"} {
		for _, series := range b.Series(workload) {
			picks := []pick{
				{"loads", workload, "", "per_round", ""}, {"beyond the load", workload, "", "beyond", " ms"}, {"requests per pod", workload, "", "requests_round", ""},
				{"singleflight: beyond", workload, "", "beyond", " ms"},
			}
			who := []string{"herdgate", "herdgate", "herdgate", "singleflight"}
			if workload == "hit-growth" {
				picks = []pick{
					{"calls of raw GET", workload, "", "vs_get", ""}, {"CPU of raw GET", workload, "", "vs_cpu", ""}, {"requests per call", workload, "", "requests", ""},
					{"writes per call", workload, "", "writes", ""},
				}
				who = []string{"herdgate", "herdgate", "herdgate", "herdgate"}
			}
			fmt.Fprintf(&text, "| %s |", series)
			for _, p := range picks {
				fmt.Fprintf(&text, " %s |", p.title)
			}
			fmt.Fprintf(&text, "\n|--:|%s\n", strings.Repeat("--:|", len(picks)))
			for _, place := range b.places(workload, series) {
				fmt.Fprintf(&text, "| %.0f |", place.x)
				for i, p := range picks {
					p.variant = place.variant
					fmt.Fprintf(&text, " %s |", b.cell(p, who[i]))
				}
				text.WriteString("\n")
			}
			text.WriteString("\n")
		}
	}
	return strings.TrimSuffix(text.String(), "\n")
}

// names returns the contenders that keep says, in the order of the report.
func (b *Book) names(keep func(string) bool) (list []string) {
	for _, name := range b.Run.Order {
		if keep(name) {
			list = append(list, name)
		}
	}
	return list
}

// shared says whether a contender takes part in the cold start, as those do that keep values in Redis.
func (b *Book) shared(name string) bool {
	return slices.ContainsFunc(b.Results, func(r Result) bool { return r.Workload == "cold" && r.Contender == name })
}
