package report

import (
	"strings"
)

// pictureStyle makes a picture stand by itself, on light and on dark pages.
const pictureStyle = `<style>
text { font: 13px system-ui, sans-serif; fill: #1c1e21; } .tick { fill: #6b7280; font-size: 11px; } .head, .own.name { font-weight: 600; }
.grid { stroke: #d8dce2; } .bar { fill: #8a94a3; } .own.bar, .own.name { fill: #0b7a4b; }
@media (prefers-color-scheme: dark) {
text { fill: #e7e9ec; } .tick { fill: #9aa1ab; } .grid { stroke: #3a3f46; } .bar { fill: #7b8594; } .own.bar, .own.name { fill: #3ddc97; }
}
</style>`

// Picture returns the storm as one picture, for README.md: loads per expiry and the 99th percentile of latency. It
// is empty when there was no storm.
func (b *Book) Picture() string {
	const storm, variant = "storm", "8 pods x 32"
	names := b.names(func(name string) bool {
		return b.shared(name) && b.cell(pick{"", storm, variant, "per_expiry", ""}, name) != ""
	})
	if len(names) == 0 {
		return ""
	}
	const width, left, row, top = 860.0, 170.0, 24.0, 34.0
	bottom := top + row*float64(len(names))
	d := newDrawing(width, bottom+28, "An expiry storm: loads per expiry, and the 99th percentile of latency")
	d.WriteString(pictureStyle)
	for _, half := range []struct {
		title, key, unit string
		from, to         float64 // places
		least            float64 // where the scale begins: what would be ideal
	}{
		{"loads per expiry", "per_expiry", "", left, 460, 0.5},
		{"p99 latency", "p99", " ms", 550, 780, 0.5},
	} {
		most := half.least * 10
		values := make(map[string]Summary)
		for _, name := range names {
			s, ok := b.Value(storm, variant, name, Column{Key: half.key})
			if ok {
				values[name], most = s, max(most, s.Median)
			}
		}
		x := scale{from: half.least, to: most, start: half.from, end: half.to, log: true}
		d.text(half.from, 18, "start", "head", half.title)
		for _, v := range x.decades() {
			d.line(x.at(v), top-4, x.at(v), bottom, "grid")
			d.text(x.at(v), bottom+16, "middle", "tick", short(v)+half.unit)
		}
		for i, name := range names {
			s, ok := values[name]
			if !ok {
				continue
			}
			y, end := top+row*float64(i), x.at(s.Median)
			class := "other"
			if ours(name) {
				class = "own"
			}
			if half.from == left {
				d.text(left-10, y+16, "end", "name "+class, name)
			}
			text := short(s.Median) + half.unit
			d.rect(half.from, y+4, max(2, end-half.from), row-8, "bar "+class, name+": "+text)
			d.text(max(end, half.from+2)+6, y+16, "start", "value", text)
		}
	}
	return strings.TrimSpace(d.end()) + "\n"
}
