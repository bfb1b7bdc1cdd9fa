package report

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// class is how a contender is drawn: herdgate stands out, the rest have a colour each.
func (b *Book) class(contender string) string {
	if ours(contender) {
		return "own"
	}
	return fmt.Sprintf("c%d", max(0, slices.Index(b.Run.Order, contender))%12)
}

func ours(contender string) bool { return strings.HasPrefix(contender, "herdgate") }

// bars shows one column of a variant, a bar for each contender, on a logarithmic scale.
func (b *Book) bars(workload, variant string, c Column) string {
	var names []string
	values := make(map[string]Summary)
	least, most := 1.0, 1.0
	for _, name := range b.Contenders(workload, variant) {
		if s, ok := b.Value(workload, variant, name, c); ok {
			names = append(names, name)
			values[name] = s
			most = max(most, s.High)
			if s.Median > 0 {
				least = min(least, s.Median)
			}
		}
	}
	const width, left, row = 760.0, 190.0, 24.0
	d := newDrawing(width, float64(len(names))*row+24, c.Title)
	x := scale{from: least / 2, to: most * 1.2, start: left, end: width - 130, log: true}
	for _, v := range x.decades() {
		d.line(x.at(v), 0, x.at(v), float64(len(names))*row, "grid")
		d.text(x.at(v), float64(len(names))*row+16, "middle", "tick", short(v))
	}
	for i, name := range names {
		y, end := float64(i)*row, x.at(values[name].Median)
		d.text(left-8, y+16, "end", "name "+b.class(name), name)
		d.rect(left, y+4, end-left, row-8, "bar "+b.class(name), name+": "+c.Cell(values[name]))
		d.text(end+6, y+16, "start", "value", c.Cell(values[name]))
	}
	return d.end()
}

// overTime shows the first run of a contender: calls' latency above, loads below. It is empty when there is none.
func (b *Book) overTime(workload, variant, contender string) string {
	results := b.Of(workload, variant, contender)
	if len(results) == 0 || len(results[0].Timeline) == 0 {
		return ""
	}
	points := results[0].Timeline
	const width, height, left, split = 370.0, 150.0, 52.0, 86.0
	d := newDrawing(width, height, contender+" over time")
	d.text(left, 12, "start", "name "+b.class(contender), contender)
	last := points[len(points)-1].At
	step := last / float64(max(1, len(points)-1))
	x := scale{from: 0, to: last + step, start: left, end: width - 8}
	y := scale{from: 0.1, to: 10_000, start: split, end: 24, log: true}
	for _, v := range []float64{1, 100, 10_000} {
		d.line(left, y.at(v), x.end, y.at(v), "grid")
		d.text(left-4, y.at(v)+4, "end", "tick", millis(v))
	}
	most := 1
	for _, p := range points {
		most = max(most, p.Loads)
	}
	loads := scale{from: 0, to: float64(most), start: height - 14, end: split + 14}
	var worst, typical [][2]float64
	for _, p := range points {
		at, middle := x.at(p.At), x.at(p.At+step/2)
		if p.Calls > 0 {
			worst = append(worst, [2]float64{middle, y.at(p.Max)})
			typical = append(typical, [2]float64{middle, y.at(p.P50)})
		}
		if p.Fails > 0 {
			d.rect(at, 17, x.at(p.At+step)-at, 4, "fail", fmt.Sprintf("%.1f s: %d calls failed", p.At, p.Fails))
		}
		if p.Loads > 0 {
			top := loads.at(float64(p.Loads))
			d.rect(at, top, max(1.5, x.at(p.At+step)-at-0.5), loads.start-top, "bar "+b.class(contender),
				fmt.Sprintf("%.1f s: %d loads; the slowest of %d calls took %s", p.At, p.Loads, p.Calls, millis(p.Max)))
		}
	}
	d.path(typical, "line thin "+b.class(contender), "median latency")
	d.path(worst, "line "+b.class(contender), "slowest call")
	d.line(left, loads.start, x.end, loads.start, "axis")
	d.text(left-4, loads.end+6, "end", "tick", fmt.Sprint(most))
	d.text(left-4, loads.start, "end", "tick", "loads 0")
	d.text(x.end, height-2, "end", "tick", fmt.Sprintf("%.1f s", x.to))
	return d.end()
}

// distribution shows how long calls took at most, by the share of them that did.
func (b *Book) distribution(workload, variant string) string {
	const width, height, left, bottom = 760.0, 330.0, 60.0, 286.0
	d := newDrawing(width, height, "Latency")
	shares := scale{from: 1, to: 1e5, start: left, end: width - 160, log: true} // 1/(1-q)
	y := scale{from: 0.02, to: 10_000, start: bottom, end: 10, log: true}
	for _, v := range y.decades() {
		d.line(left, y.at(v), shares.end, y.at(v), "grid")
		d.text(left-6, y.at(v)+4, "end", "tick", millis(v))
	}
	at := 1.0
	for _, label := range []string{"0", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %"} {
		d.line(shares.at(at), 10, shares.at(at), bottom, "grid")
		d.text(shares.at(at), bottom+18, "middle", "tick", label)
		at *= 10
	}
	d.text((left+shares.end)/2, bottom+36, "middle", "tick", "of the calls took no longer than")
	var labels []float64 // heights
	for _, name := range b.Contenders(workload, variant) {
		l := b.Latency(workload, variant, name)
		if l == nil || l.Count() == 0 {
			continue
		}
		var points [][2]float64
		for v := 1.0; v <= min(1e5, float64(l.Count())); v *= 1.15 {
			took := float64(l.Quantile(1-1/v)) / float64(time.Millisecond)
			points = append(points, [2]float64{shares.at(v), y.at(took)})
		}
		d.path(points, "line "+b.class(name), name)
		end := points[len(points)-1]
		d.text(end[0]+5, free(&labels, end[1]+4), "start", "name "+b.class(name), name)
	}
	return d.end()
}

// free finds a height near y at which no label stands yet.
func free(labels *[]float64, y float64) float64 {
	for moved := 0.0; ; moved += 3 {
		for _, at := range []float64{y + moved, y - moved} {
			if !slices.ContainsFunc(*labels, func(l float64) bool { return l-at < 12 && at-l < 12 }) {
				*labels = append(*labels, at)
				return at
			}
		}
	}
}
