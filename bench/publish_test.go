package main

import (
	"encoding/xml"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/herdgate/herdgate/bench/internal/report"
)

// someResults are few, but of what README.md shows.
func someResults() *report.Book {
	b := &report.Book{Run: report.Run{Go: "go1", Redis: "7", Cores: 2, Order: []string{"raw GET", "none", "herdgate"}, Workloads: []report.Workload{
		{Name: "storm", Columns: []report.Column{{Key: "per_expiry", Digits: 2}, {Key: "p99", Unit: "ms", Digits: 1}}},
		{Name: "cold", Columns: []report.Column{{Key: "per_round", Digits: 2}}},
	}}}
	for name, loads := range map[string]float64{"none": 200, "herdgate": 1} {
		for repeat := range 2 {
			b.Results = append(b.Results,
				report.Result{Workload: "storm", Variant: "8 pods x 32", Contender: name, Repeat: repeat, Values: map[string]float64{"per_expiry": loads, "p99": loads + float64(2*repeat)}},
				report.Result{Workload: "cold", Variant: "8 pods x 64", Contender: name, Repeat: repeat, Values: map[string]float64{"per_round": loads}})
		}
	}
	return b
}

func TestPublishPutsNumbersIntoTheirPlacesAndLeavesTheRest(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "docs"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range documents {
		text := "before\n<!-- bench: speed -->\noutdated\n<!-- /bench -->\nbetween\n<!-- bench: http -->\nkept\n<!-- /bench -->\nafter\n"
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second time changes nothing
		if err := publish(root, someResults()); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range documents {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"before\n", "| none | 200.00 | 201.0 ms |", "| **herdgate** | 1.00 | 2.0 ms |", "2 cores", "\nbetween\n", "\nkept\n", "\nafter\n"} {
			if strings.Count(string(text), want) != 1 {
				t.Errorf("%q is not there once in %s:\n%s", want, name, text)
			}
		}
		if strings.Contains(string(text), "outdated") || strings.Contains(string(text), "raw GET |") {
			t.Errorf("%s shows what it should not:\n%s", name, text)
		}
	}
	picture, err := os.ReadFile(filepath.Join(root, "docs", "storm.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(strings.NewReader(string(picture))); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if text := string(picture); !strings.Contains(text, "200") || strings.Contains(text, "NaN") || strings.Contains(strings.ReplaceAll(text, "http://www.w3.org/2000/svg", ""), "http") {
		t.Errorf("the picture does not stand by itself, or shows no numbers:\n%s", text)
	}
}

func TestPublishRefusesARunThatIsNothingToShow(t *testing.T) {
	for _, run := range []report.Run{{Quick: true}, {Unfinished: "it was interrupted"}} {
		if err := publish(t.TempDir(), &report.Book{Run: run}); err == nil || !strings.Contains(err.Error(), "nothing to show") {
			t.Errorf("%+v: %v", run, err)
		}
	}
}

func TestPublishRefusesADocumentWithoutAPlace(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "README.md"), []byte("nothing\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := publish(root, someResults()); err == nil {
		t.Error("numbers went nowhere without a word")
	}
}

// What is committed in results is what the documents show.
func TestDocumentsShowTheCommittedResults(t *testing.T) {
	f, err := os.Open(filepath.Join("results", "results.jsonl"))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("no results are committed")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	run, results, err := report.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	book := &report.Book{Run: run, Results: results}
	for _, name := range documents {
		text, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		if filled, _ := insert(string(text), book.Extracts()); filled != string(text) {
			t.Errorf("%s shows other numbers than bench/results: run make bench-publish", name)
		}
	}
}
