package report

import (
	_ "embed"
	"html/template"
	"io"
	"strings"
)

//go:embed page.html
var pageText string

// page is what page.html shows.
type page struct {
	About      []string
	Reading    string
	Sections   []section
	Contenders []contenderPart
	Versions   string
}

type section struct {
	Title, About string
	Curves       []chart
	Variants     []variantPart
}

type variantPart struct {
	Name        string
	Charts      []chart
	ManyCaption string
	Many        []template.HTML
	Heads       []string
	Rows        []rowPart
	Notes       []string
}

type chart struct {
	Caption string
	SVG     template.HTML
}

type rowPart struct {
	Name, Class string
	Cells       []string
}

type contenderPart struct{ Name, About string }

// HTML writes all results as one page with pictures, which needs nothing from elsewhere.
func (b *Book) HTML(w io.Writer) error {
	t, err := template.New("page").Parse(pageText)
	if err != nil {
		return err
	}
	p := page{Reading: reading, Versions: strings.Join(b.Run.versions(), ", ")}
	for _, line := range b.about() {
		p.About = append(p.About, strings.NewReplacer("`", "", "**", "").Replace(line))
	}
	for _, wl := range b.Run.Workloads {
		s := section{Title: wl.Title, About: wl.About}
		for _, v := range b.Variants(wl.Name) {
			s.Variants = append(s.Variants, b.variantPart(wl, v))
		}
		for _, series := range b.Series(wl.Name) {
			for _, c := range wl.Columns {
				if svg := b.curves(wl.Name, series, c); svg != "" && c.Curve != "" {
					s.Curves = append(s.Curves, chart{c.Curve, template.HTML(svg)}) // made here, its texts escaped
				}
			}
		}
		if len(s.Variants) > 0 {
			p.Sections = append(p.Sections, s)
		}
	}
	for _, name := range b.Run.Order {
		p.Contenders = append(p.Contenders, contenderPart{name, b.Run.Contenders[name]})
	}
	return t.Execute(w, p)
}

func (b *Book) variantPart(wl Workload, variant string) variantPart {
	t := b.table(wl, variant)
	p := variantPart{Name: variant, Heads: t.heads, Notes: b.notes(wl, variant)}
	if t.limits != nil {
		p.Rows = append(p.Rows, rowPart{Name: "limit", Class: "limit", Cells: t.limits})
	}
	latencies := false
	for i, name := range t.names {
		row := rowPart{Name: name, Cells: t.cells[i]}
		if ours(name) {
			row.Class = "own"
		}
		p.Rows = append(p.Rows, row)
		if svg := b.overTime(wl.Name, variant, name); svg != "" && wl.OverTime {
			p.Many = append(p.Many, template.HTML(svg)) // made here, its texts escaped
		}
		latencies = latencies || b.Latency(wl.Name, variant, name) != nil
	}
	for _, c := range wl.Columns {
		if c.Chart != "" {
			p.Charts = append(p.Charts, chart{c.Chart, template.HTML(b.bars(wl.Name, variant, c))})
		}
	}
	if latencies {
		p.Charts = append(p.Charts, chart{"Latency: how long calls took at most, by the share of them that did.", template.HTML(b.distribution(wl.Name, variant))})
	}
	if len(p.Many) > 0 {
		p.ManyCaption = "The first run of each over time, in steps of a tenth of a second. Above: the slowest call and, dotted, the median; red where calls failed. Below: loads."
	}
	return p
}
