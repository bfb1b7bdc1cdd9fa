package housetest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSnippetsOfTheDocsAreCompiledSomewhere wants each Go snippet of the README and of docs/ to stand, but
// for its indentation, in a Go file, which the tests compile: so no snippet shows what does not exist.
func TestSnippetsOfTheDocsAreCompiledSomewhere(t *testing.T) {
	var code strings.Builder
	for _, dir := range []string{"stampede", "middleware", "example"} {
		_ = filepath.WalkDir(filepath.Join(root, dir), func(path string, _ os.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") {
				code.WriteString(flat(read(t, path)))
			}
			return nil
		})
	}
	docs, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	snippets := 0
	for _, doc := range append(docs, filepath.Join(root, "README.md")) {
		for _, m := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(t, doc), -1) {
			snippets++
			for part := range strings.SplitSeq(m[1], "\n\t...\n") {
				if !strings.Contains(code.String(), flat(part)) {
					t.Errorf("%s: this stands in no Go file:\n%s", filepath.Base(doc), part)
				}
			}
		}
	}
	if snippets == 0 {
		t.Error("no snippets found")
	}
}

// flat takes indentation, empty lines and trailing comments away.
func flat(text string) string {
	var b strings.Builder
	b.WriteString("\n")
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), " // ")
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
