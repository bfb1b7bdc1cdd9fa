package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/herdgate/herdgate/bench/internal/report"
)

// documents are those that show results, from the root of the repository on. Where each extract stands in them is
// marked: <!-- bench: name --> before it, <!-- /bench --> behind.
var documents = []string{"README.md", filepath.Join("docs", "performance.md")}

var extract = regexp.MustCompile(`(?s)<!-- bench: (\w+) -->\n(.*?)<!-- /bench -->`)

// publish puts the results into the documents, and makes the picture that README.md shows. Extracts that there are
// no results of stay as they are.
func publish(root string, book *report.Book) error {
	if book.Run.Quick || book.Run.Unfinished != "" {
		return errors.New("publish: a quick or an unfinished run is nothing to show")
	}
	extracts := book.Extracts()
	for _, name := range documents {
		file := filepath.Join(root, name)
		old, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("publish: %w", err)
		}
		text, n := insert(string(old), extracts)
		if n == 0 {
			return fmt.Errorf("publish: %s has no place for any of the results", file)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
	}
	if picture := book.Picture(); picture != "" {
		return os.WriteFile(filepath.Join(root, "docs", "storm.svg"), []byte(picture), 0o644)
	}
	return nil
}

// insert puts extracts into their places, and counts the places.
func insert(text string, extracts map[string]string) (filled string, places int) {
	filled = extract.ReplaceAllStringFunc(text, func(old string) string {
		places++
		name := extract.FindStringSubmatch(old)[1]
		if extracts[name] == "" {
			return old
		}
		return fmt.Sprintf("<!-- bench: %s -->\n%s\n<!-- /bench -->", name, strings.TrimSpace(extracts[name]))
	})
	return filled, places
}
