package report

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

const reading = "Medians over the repeats, with the lowest and the highest where they differ. Latency counts from when a call was due, not from when it was made; a call that failed counts as one that took until its deadline. " +
	"A script is one request to Redis; GET and the PTTL beside it are one; commands that scripts run are told apart."

// Markdown writes all results as tables.
func (b *Book) Markdown(to io.Writer) error {
	w := bufio.NewWriter(to)
	fmt.Fprintf(w, "# herdgate load benchmark\n\n")
	for _, line := range b.about() {
		fmt.Fprintf(w, "%s  \n", line)
	}
	fmt.Fprintf(w, "\n%s\n", reading)
	for _, wl := range b.Run.Workloads {
		variants := b.Variants(wl.Name)
		if len(variants) == 0 {
			continue
		}
		fmt.Fprintf(w, "\n## %s\n\n%s\n", wl.Title, wl.About)
		for _, v := range variants {
			fmt.Fprintf(w, "\n**%s**\n\n", v)
			writeTable(w, b.table(wl, v))
			for _, line := range b.notes(wl, v) {
				fmt.Fprintf(w, "\n%s\n", line)
			}
		}
	}
	fmt.Fprintf(w, "\n## Contenders\n\n")
	for _, name := range b.Run.Order {
		if about := b.Run.Contenders[name]; about != "" {
			fmt.Fprintf(w, "- **%s**: %s\n", name, about)
		}
	}
	fmt.Fprintf(w, "\nVersions: %s.\n", strings.Join(b.Run.versions(), ", "))
	return w.Flush()
}

func writeTable(w io.Writer, t table) {
	fmt.Fprintf(w, "| | %s |\n|---|%s\n", strings.Join(t.heads, " | "), strings.Repeat("--:|", len(t.heads)))
	if t.limits != nil {
		fmt.Fprintf(w, "| *limit* | %s |\n", strings.Join(t.limits, " | "))
	}
	for i, name := range t.names {
		if ours(name) {
			name = "**" + name + "**"
		}
		fmt.Fprintf(w, "| %s | %s |\n", name, strings.Join(t.cells[i], " | "))
	}
}

// tooLate is by how many ms calls may be made late, at the 99th percentile, without a word about it.
const tooLate = 5

// about says where and how all was measured, and how far the machine can be believed.
func (b *Book) about() []string {
	r := &b.Run
	lines := []string{
		fmt.Sprintf("Measured %s with %#q", r.Time.Format("2006-01-02 15:04 MST"), r.Command),
		fmt.Sprintf("%s, %d cores, %s, %s, Redis %s on loopback", r.CPU, r.Cores, r.OS, r.Go, r.Redis),
	}
	var late []float64
	for _, res := range b.Results {
		if v, ok := res.Values["late_p99"]; ok {
			late = append(late, v)
		}
	}
	if len(late) > 0 {
		slices.Sort(late)
		if half := late[len(late)/2]; half > tooLate {
			lines = append(lines, fmt.Sprintf("**The machine was too busy for these times to mean much: in half of the runs one call in a hundred was made %.0f ms late or later. Counts are not affected.**", half))
		}
	}
	if r.Unfinished != "" {
		lines = append(lines, "**Not all was measured: "+r.Unfinished+".**")
	}
	return lines
}

func (r *Run) versions() (list []string) {
	for _, module := range slices.Sorted(maps.Keys(r.Versions)) {
		list = append(list, module+" "+r.Versions[module])
	}
	return list
}
