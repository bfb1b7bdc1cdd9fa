package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/herdgate/herdgate/bench/internal/measure"
)

// Summary is a number over the repeats.
type Summary struct {
	Median, Low, High float64
	N                 int
}

// Book holds results and answers questions about them.
type Book struct {
	Run     Run
	Results []Result
}

// Variants returns the variants of a workload that there are results of, in the order of the first.
func (b *Book) Variants(workload string) (names []string) {
	for _, r := range b.Results {
		if r.Workload == workload && !slices.Contains(names, r.Variant) {
			names = append(names, r.Variant)
		}
	}
	return names
}

// Contenders returns those that there are results of, in the order of the run.
func (b *Book) Contenders(workload, variant string) (names []string) {
	order := b.Run.Order
	for _, r := range b.Results {
		if r.Workload == workload && r.Variant == variant && !slices.Contains(names, r.Contender) {
			names = append(names, r.Contender)
		}
	}
	slices.SortStableFunc(names, func(x, y string) int { return slices.Index(order, x) - slices.Index(order, y) })
	return names
}

// Of returns the results of a contender, one for each repeat.
func (b *Book) Of(workload, variant, contender string) (list []Result) {
	for _, r := range b.Results {
		if r.Workload == workload && r.Variant == variant && r.Contender == contender {
			list = append(list, r)
		}
	}
	return list
}

// Value summarises a column. ok is false when there is nothing to.
func (b *Book) Value(workload, variant, contender string, c Column) (s Summary, ok bool) {
	var values []float64
	for _, r := range b.Of(workload, variant, contender) {
		if v, has := r.Values[c.Key]; has && !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return s, false
	}
	slices.Sort(values)
	n := len(values)
	return Summary{(values[(n-1)/2] + values[n/2]) / 2, values[0], values[n-1], n}, true
}

// Latency merges the latencies of all repeats; nil when there are none.
func (b *Book) Latency(workload, variant, contender string) *measure.Latency {
	var all *measure.Latency
	for _, r := range b.Of(workload, variant, contender) {
		l, err := measure.DecodeLatency(r.Latency)
		if r.Latency == "" || err != nil {
			continue
		}
		if all == nil {
			all = measure.NewLatency()
		}
		all.Merge(l)
	}
	return all
}

// Faults returns why there are no numbers, each reason once.
func (b *Book) Faults(workload, variant, contender string) (texts []string) {
	for _, r := range b.Of(workload, variant, contender) {
		if r.Fault != "" && !slices.Contains(texts, r.Fault) {
			texts = append(texts, r.Fault)
		}
	}
	return texts
}

// Cell is a summary as text: the median and, over several repeats, how far apart they were.
func (c Column) Cell(s Summary) string {
	text := c.number(s.Median)
	if s.N > 1 && c.number(s.Low) != c.number(s.High) {
		text += fmt.Sprintf(" (%s–%s)", c.number(s.Low), c.number(s.High))
	}
	return text
}

func (c Column) number(v float64) string {
	switch {
	case c.Unit == "/s" && v >= 1000:
		return fmt.Sprintf("%.1fk", v/1000)
	case math.Abs(v) >= 1000 && c.Digits > 0:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.*f", c.Digits, v)
}

// Head is the column's title with its unit.
func (c Column) Head() string {
	if c.Unit == "" {
		return c.Title
	}
	return c.Title + ", " + strings.TrimPrefix(c.Unit, "/")
}
