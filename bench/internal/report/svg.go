package report

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// drawing is a picture as SVG. Colours are classes, so that the page decides.
type drawing struct {
	strings.Builder
}

func newDrawing(width, height float64, title string) *drawing {
	d := new(drawing)
	fmt.Fprintf(d, `<svg viewBox="0 0 %g %g" role="img" xmlns="http://www.w3.org/2000/svg"><title>%s</title>`, width, height, html.EscapeString(title))
	return d
}

func (d *drawing) end() string { return d.String() + "</svg>" }

func (d *drawing) rect(x, y, w, h float64, class, tip string) {
	fmt.Fprintf(d, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" class="%s"><title>%s</title></rect>`, x, y, max(0, w), max(0, h), class, html.EscapeString(tip))
}

func (d *drawing) line(x1, y1, x2, y2 float64, class string) {
	fmt.Fprintf(d, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="%s"/>`, x1, y1, x2, y2, class)
}

// text is anchored at its "start", "middle" or "end".
func (d *drawing) text(x, y float64, anchor, class, text string) {
	fmt.Fprintf(d, `<text x="%.1f" y="%.1f" text-anchor="%s" class="%s">%s</text>`, x, y, anchor, class, html.EscapeString(text))
}

func (d *drawing) path(points [][2]float64, class, tip string) {
	var b strings.Builder
	for i, p := range points {
		op := "L"
		if i == 0 {
			op = "M"
		}
		fmt.Fprintf(&b, "%s%.1f %.1f", op, p[0], p[1])
	}
	fmt.Fprintf(d, `<path d="%s" class="%s"><title>%s</title></path>`, b.String(), class, html.EscapeString(tip))
}

// scale maps values to places.
type scale struct {
	from, to   float64 // values
	start, end float64 // places
	log        bool
}

func (s scale) at(v float64) float64 {
	f, t := s.from, s.to
	if s.log {
		f, t, v = math.Log10(f), math.Log10(t), math.Log10(max(v, s.from))
	}
	if t == f {
		return s.start
	}
	return s.start + min(max((v-f)/(t-f), 0), 1)*(s.end-s.start)
}

// decades are the powers of ten within a logarithmic scale.
func (s scale) decades() (list []float64) {
	for e := math.Ceil(math.Log10(s.from)); math.Pow(10, e) <= s.to; e++ {
		list = append(list, math.Pow(10, e))
	}
	return list
}

// steps are 1, 2 and 5 times the powers of ten within a logarithmic scale, or the powers alone where those are many.
func (s scale) steps() (list []float64) {
	if s.to > 200*s.from {
		return s.decades()
	}
	for e := math.Floor(math.Log10(s.from)); math.Pow(10, e) <= s.to; e++ {
		for _, m := range []float64{1, 2, 5} {
			if v := m * math.Pow(10, e); v >= s.from && v <= s.to {
				list = append(list, v)
			}
		}
	}
	return list
}

// short is a number with as few digits as do.
func short(v float64) string {
	switch {
	case v >= 999_500:
		return fmt.Sprintf("%.3gM", v/1e6)
	case v >= 999.5:
		return fmt.Sprintf("%.3gk", v/1000)
	}
	return fmt.Sprintf("%.3g", v)
}

// millis is a duration in ms as people say it.
func millis(v float64) string {
	switch {
	case v >= 1000:
		return short(v/1000) + " s"
	case v < 1:
		return short(v*1000) + " µs"
	}
	return short(v) + " ms"
}
