package report

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Markdown writes all results as tables.
func (b *Book) Markdown(to io.Writer) error {
	w := bufio.NewWriter(to)
	fmt.Fprintf(w, "# herdgate load benchmark\n\n")
	for _, line := range b.Run.about() {
		fmt.Fprintf(w, "%s  \n", line)
	}
	fmt.Fprintf(w, "\nMedians over the repeats, with the lowest and the highest where they differ. Latency counts from when a call was due, not from when it was made.\n")
	for _, wl := range b.Run.Workloads {
		variants := b.Variants(wl.Name)
		if len(variants) == 0 {
			continue
		}
		fmt.Fprintf(w, "\n## %s\n\n%s\n", wl.Title, wl.About)
		for _, v := range variants {
			fmt.Fprintf(w, "\n**%s**\n\n", v)
			b.table(w, wl, v)
			b.notes(w, wl, v)
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

func (b *Book) table(w io.Writer, wl Workload, variant string) {
	var heads, rules, limits []string
	limited := false
	for _, c := range wl.Columns {
		heads, rules, limits = append(heads, c.Head()), append(rules, "--:"), append(limits, c.Limit)
		limited = limited || c.Limit != ""
	}
	fmt.Fprintf(w, "| | %s |\n|---|%s|\n", strings.Join(heads, " | "), strings.Join(rules, "|"))
	if limited {
		fmt.Fprintf(w, "| *limit* | %s |\n", strings.Join(limits, " | "))
	}
	for _, name := range b.Contenders(wl.Name, variant) {
		var cells []string
		for _, c := range wl.Columns {
			cell := ""
			if s, ok := b.Value(wl.Name, variant, name, c); ok {
				cell = c.Cell(s)
			}
			cells = append(cells, cell)
		}
		if strings.HasPrefix(name, "herdgate") {
			name = "**" + name + "**"
		}
		fmt.Fprintf(w, "| %s | %s |\n", name, strings.Join(cells, " | "))
	}
}

// notes says what went wrong, and which errors callers got.
func (b *Book) notes(w io.Writer, wl Workload, variant string) {
	var lines []string
	for _, name := range b.Contenders(wl.Name, variant) {
		for _, text := range b.Faults(wl.Name, variant, name) {
			lines = append(lines, fmt.Sprintf("%s did not run: %s", name, text))
		}
		texts := make(map[string]int)
		for _, r := range b.Of(wl.Name, variant, name) {
			for t, n := range r.Errors {
				texts[t] += n
			}
		}
		most := slices.SortedFunc(maps.Keys(texts), func(x, y string) int { return texts[y] - texts[x] })
		for _, t := range most[:min(2, len(most))] {
			lines = append(lines, fmt.Sprintf("%s: %d times `%s`", name, texts[t], t))
		}
	}
	if len(lines) > 0 {
		fmt.Fprintf(w, "\nErrors: %s.\n", strings.Join(lines, "; "))
	}
}

func (r *Run) about() []string {
	lines := []string{
		fmt.Sprintf("Measured %s with `%s`", r.Time.Format("2006-01-02 15:04 MST"), r.Command),
		fmt.Sprintf("%s, %d cores, %s, %s, Redis %s on loopback", r.CPU, r.Cores, r.OS, r.Go, r.Redis),
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
