package report_test

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/herdgate/herdgate/bench/internal/measure"
	"github.com/herdgate/herdgate/bench/internal/report"
)

func book(t *testing.T) *report.Book {
	l := measure.NewLatency()
	for i := range 1000 {
		l.Record(time.Duration(i) * time.Millisecond)
	}
	encoded, err := l.Encode()
	if err != nil {
		t.Fatal(err)
	}
	b := &report.Book{Run: report.Run{
		Time: time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC), Command: "bench", CPU: "a CPU", Cores: 2, Go: "go1", Redis: "7",
		Order:      []string{"floor", "other<s>", "herdgate"},
		Contenders: map[string]string{"herdgate": "this one"},
		Versions:   map[string]string{"example.com/m": "v1"},
		Workloads: []report.Workload{
			{Name: "w", Title: "Work", About: "It works.", OverTime: true, Columns: []report.Column{
				{Key: "rate", Title: "calls", Unit: "/s", Limit: "all", Chart: "Calls."},
				{Key: "vs", Title: "of floor", Digits: 2},
			}},
			{Name: "idle", Title: "Not run", About: "Nothing.", Columns: []report.Column{{Key: "rate", Title: "calls"}}},
		},
	}}
	add := func(name string, repeat int, rate, vs float64) {
		b.Results = append(b.Results, report.Result{
			Workload: "w", Variant: "v", Contender: name, Repeat: repeat, Latency: encoded,
			Values:   map[string]float64{"rate": rate, "vs": vs},
			Timeline: []report.Point{{At: 0, Calls: 10, Loads: 1, P50: 1, Max: 20}, {At: 0.1, Calls: 10, Fails: 3, P50: 1, Max: 2000}},
		})
	}
	for repeat, floor := range []float64{10, 20, 400} { // the machine's speed changes from one repeat to the next
		add("herdgate", repeat, floor/2, 0.5)
		add("other<s>", repeat, floor*2, 2)
		add("floor", repeat, floor, 1)
	}
	b.Results = append(b.Results, report.Result{Workload: "w", Variant: "v", Contender: "other<s>", Repeat: 3, Fault: "it broke", Errors: map[string]int{"bad": 7}})
	return b
}

func TestValuesAreMediansOverRepeats(t *testing.T) {
	b := book(t)
	c := b.Run.Workloads[0].Columns[1]
	for name, want := range map[string]float64{"herdgate": 0.5, "other<s>": 2, "floor": 1} {
		s, ok := b.Value("w", "v", name, c)
		if !ok || s != (report.Summary{Median: want, Low: want, High: want, N: 3}) {
			t.Errorf("%s: %+v", name, s)
		}
	}
	if s, _ := b.Value("w", "v", "floor", b.Run.Workloads[0].Columns[0]); s != (report.Summary{Median: 20, Low: 10, High: 400, N: 3}) {
		t.Errorf("the floor's own: %+v", s)
	}
	if _, ok := b.Value("w", "v", "nobody", c); ok {
		t.Error("there is a value of nobody")
	}
}

func TestMarkdownShowsMediansWithTheirSpread(t *testing.T) {
	var out strings.Builder
	if err := book(t).Markdown(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Measured 2026-01-02 03:04 UTC with `bench`",
		"a CPU, 2 cores",
		"| | calls, s | of floor |\n|---|--:|--:|\n| *limit* | all |  |\n| floor | 20 (10–400) | 1.00 |\n| other<s> | 40 (20–800) | 2.00 |\n| **herdgate** | 10 (5–200) | 0.50 |\n",
		"other<s> did not run: it broke.",
		"error of 7 calls: bad.",
		"- **herdgate**: this one",
		"example.com/m v1",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("there is no %q in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "Not run") {
		t.Error("what was not run is shown")
	}
}

func TestPageStandsByItself(t *testing.T) {
	var out bytes.Buffer
	if err := book(t).HTML(&out); err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(out.String(), `xmlns="http://www.w3.org/2000/svg"`, "")
	if m := regexp.MustCompile(`(?i)https?:|//[a-z]|src=|@import|url\(|<link|<script`).FindString(text); m != "" {
		t.Errorf("the page needs %q", m)
	}
	pictures := regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(out.String(), -1)
	if len(pictures) != 1+1+3 { // bars, latencies, each contender over time
		t.Errorf("%d pictures", len(pictures))
	}
	for _, p := range pictures {
		for d := xml.NewDecoder(strings.NewReader(p)); ; {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%v in %s", err, p)
			}
		}
	}
	for _, want := range []string{"other&lt;s&gt;", "20 (10–400)", "it broke"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if strings.Contains(out.String(), "NaN") || strings.Contains(out.String(), "ZgotmplZ") {
		t.Error("something in the page has no value")
	}
}

func TestPageShowsASeriesAsCurves(t *testing.T) {
	b := &report.Book{Run: report.Run{Order: []string{"a", "b"}, Workloads: []report.Workload{
		{Name: "grow", Title: "Growth", Columns: []report.Column{{Key: "n", Title: "requests", Curve: "It grows."}, {Key: "m", Title: "not shown"}}},
	}}}
	for _, pods := range []float64{16, 1, 4} {
		for _, name := range b.Run.Order {
			b.Results = append(b.Results, report.Result{
				Workload: "grow", Variant: fmt.Sprint(pods, " pods"), Contender: name, Series: "pods", X: pods, Values: map[string]float64{"n": 2 * pods, "m": 1},
			})
		}
	}
	var out strings.Builder
	if err := b.HTML(&out); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "<svg"); n != 1 {
		t.Errorf("%d pictures", n)
	}
	for _, want := range []string{"It grows.", ">pods<", "a, 1: 2<", "b, 16: 32<"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("there is no %q", want)
		}
	}
	if strings.Contains(out.String(), "NaN") {
		t.Error("something has no value")
	}
}

func TestReadReadsWhatLinesWrote(t *testing.T) {
	b := book(t)
	var lines, page, again bytes.Buffer
	if err := b.Lines(&lines); err != nil {
		t.Fatal(err)
	}
	run, results, err := report.Read(&lines)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.HTML(&page); err != nil {
		t.Fatal(err)
	}
	if err := (&report.Book{Run: run, Results: results}).HTML(&again); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(page.Bytes(), again.Bytes()) {
		t.Error("what was read is shown in another way")
	}
	if _, _, err := report.Read(strings.NewReader("{}\n{")); err == nil {
		t.Error("half a line was read")
	}
}
