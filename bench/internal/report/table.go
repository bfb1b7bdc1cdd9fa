package report

import (
	"fmt"
	"maps"
	"slices"
)

// table is the numbers of a variant as text.
type table struct {
	heads  []string
	limits []string // nil when no column has one
	names  []string // of contenders
	cells  [][]string
}

func (b *Book) table(wl Workload, variant string) (t table) {
	var limits []string
	limited := false
	for _, c := range wl.Columns {
		t.heads, limits = append(t.heads, c.Head()), append(limits, c.Limit)
		limited = limited || c.Limit != ""
	}
	if limited {
		t.limits = limits
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
		t.names, t.cells = append(t.names, name), append(t.cells, cells)
	}
	return t
}

// notes says what did not run, and which errors callers got most.
func (b *Book) notes(wl Workload, variant string) (lines []string) {
	for _, name := range b.Contenders(wl.Name, variant) {
		for _, text := range b.Faults(wl.Name, variant, name) {
			lines = append(lines, fmt.Sprintf("%s did not run: %s.", name, text))
		}
		texts := make(map[string]int)
		for _, r := range b.Of(wl.Name, variant, name) {
			for t, n := range r.Errors {
				texts[t] += n
			}
		}
		most := slices.SortedFunc(maps.Keys(texts), func(x, y string) int { return texts[y] - texts[x] })
		for _, t := range most[:min(2, len(most))] {
			lines = append(lines, fmt.Sprintf("%s, error of %d calls: %s.", name, texts[t], t))
		}
	}
	return lines
}
