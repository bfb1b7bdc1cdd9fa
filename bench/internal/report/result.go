// Package report is the benchmark's results and how they are shown: JSON lines, Markdown, HTML.
package report

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Run says where, when and with what results came to be. It is the first line of a file of results.
type Run struct {
	Time       time.Time         `json:"time"`
	Command    string            `json:"command"`
	CPU        string            `json:"cpu"`
	Cores      int               `json:"cores"`
	OS         string            `json:"os"`
	Go         string            `json:"go"`
	Redis      string            `json:"redis"`
	Versions   map[string]string `json:"versions"`   // of modules
	Contenders map[string]string `json:"contenders"` // what each is
	Order      []string          `json:"order"`      // of contenders
	Workloads  []Workload        `json:"workloads"`
	Quick      bool              `json:"quick,omitempty"`      // it was to see that all works, not to compare
	Unfinished string            `json:"unfinished,omitempty"` // why it ended before its time
}

// Workload describes a workload and the columns of its table.
type Workload struct {
	Name    string   `json:"name"`
	Title   string   `json:"title"`
	About   string   `json:"about"`
	Columns []Column `json:"columns"`
	// OverTime shows the run of each contender over time.
	OverTime bool `json:"over_time,omitempty"`
}

// Column is a number that a workload measures.
type Column struct {
	Key    string `json:"key"`
	Title  string `json:"title"`
	Unit   string `json:"unit,omitempty"` // "ms", "µs", "ns", "%", "/s"
	Limit  string `json:"limit,omitempty"`
	Digits int    `json:"digits"`
	// Chart is the caption of the bars that show the column; "": no bars.
	Chart string `json:"chart,omitempty"`
	// Curve is the caption of the curves that show the column along a series; "": none.
	Curve string `json:"curve,omitempty"`
}

// Result is what one contender measured in one repeat of one variant of a workload.
type Result struct {
	Workload  string             `json:"workload"`
	Variant   string             `json:"variant"`
	Contender string             `json:"contender"`
	Repeat    int                `json:"repeat"`
	Series    string             `json:"series,omitempty"` // of variants that differ in one number, named after it
	X         float64            `json:"x,omitempty"`      // that number
	Values    map[string]float64 `json:"values,omitempty"`
	Latency   string             `json:"latency,omitempty"` // HdrHistogram, compressed, base64
	Timeline  []Point            `json:"timeline,omitempty"`
	Errors    map[string]int     `json:"errors,omitempty"`
	Commands  map[string]int64   `json:"commands,omitempty"` // that the pods sent to Redis, by name
	Fault     string             `json:"fault,omitempty"`    // why there is nothing
}

// Point is a stretch of a run.
type Point struct {
	At    float64 `json:"at"` // seconds from the beginning, of its start
	Calls int     `json:"calls"`
	Fails int     `json:"fails,omitempty"`
	Loads int     `json:"loads,omitempty"`
	P50   float64 `json:"p50"` // ms
	Max   float64 `json:"max"` // ms
}

// WriteLine writes v as a line of JSON.
func WriteLine(w io.Writer, v any) error {
	return json.NewEncoder(w).Encode(v)
}

// Read reads a file of results: a Run and any number of Results.
func Read(r io.Reader) (Run, []Result, error) {
	var run Run
	var results []Result
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for n := 1; lines.Scan(); n++ {
		var err error
		if n == 1 {
			err = json.Unmarshal(lines.Bytes(), &run)
		} else {
			var res Result
			err = json.Unmarshal(lines.Bytes(), &res)
			results = append(results, res)
		}
		if err != nil {
			return run, results, fmt.Errorf("report: line %d: %w", n, err)
		}
	}
	return run, results, lines.Err()
}
