package report

import (
	"cmp"
	"slices"
)

// Series returns the names of the series that a workload has results of, in the order of the first.
func (b *Book) Series(workload string) (names []string) {
	for _, r := range b.Results {
		if r.Workload == workload && r.Series != "" && !slices.Contains(names, r.Series) {
			names = append(names, r.Series)
		}
	}
	return names
}

// place is a variant's place in a series.
type place struct {
	x       float64
	variant string
}

// places returns the variants of a series in order of its number.
func (b *Book) places(workload, series string) (list []place) {
	for _, r := range b.Results {
		if p := (place{r.X, r.Variant}); r.Workload == workload && r.Series == series && !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(p, q place) int { return cmp.Compare(p.x, q.x) })
	return list
}

// curves shows a column along a series, a curve for each contender, on logarithmic scales.
func (b *Book) curves(workload, series string, c Column) string {
	const width, height, left, bottom = 560.0, 260.0, 60.0, 210.0
	places := b.places(workload, series)
	type point struct{ x, v float64 }
	all := make(map[string][]point)
	var names []string
	least, most := 0.0, 0.0
	for _, p := range places {
		for _, name := range b.Contenders(workload, p.variant) {
			s, ok := b.Value(workload, p.variant, name, c)
			if !ok || s.Median <= 0 {
				continue
			}
			if all[name] == nil {
				names = append(names, name)
			}
			all[name] = append(all[name], point{p.x, s.Median})
			if least == 0 {
				least = s.Median
			}
			least, most = min(least, s.Median), max(most, s.Median)
		}
	}
	if len(names) == 0 {
		return ""
	}
	d := newDrawing(width, height, c.Title+" by "+series)
	x := scale{from: places[0].x, to: places[len(places)-1].x, start: left + 20, end: width - 150, log: true}
	y := scale{from: least / 1.5, to: most * 1.5, start: bottom, end: 10, log: true}
	for _, v := range y.steps() {
		d.line(left, y.at(v), x.end+10, y.at(v), "grid")
		d.text(left-6, y.at(v)+4, "end", "tick", short(v))
	}
	for _, p := range places {
		d.line(x.at(p.x), 10, x.at(p.x), bottom, "grid")
		d.text(x.at(p.x), bottom+18, "middle", "tick", short(p.x))
	}
	d.text((x.start+x.end)/2, bottom+38, "middle", "tick", series)
	var labels []float64 // heights
	for _, name := range names {
		var line [][2]float64
		for _, p := range all[name] {
			at := [2]float64{x.at(p.x), y.at(p.v)}
			line = append(line, at)
			d.rect(at[0]-2.5, at[1]-2.5, 5, 5, "bar "+b.class(name), name+", "+short(p.x)+": "+c.number(p.v))
		}
		d.path(line, "line "+b.class(name), name)
		end := line[len(line)-1]
		d.text(end[0]+7, free(&labels, end[1]+4), "start", "name "+b.class(name), name)
	}
	return d.end()
}
