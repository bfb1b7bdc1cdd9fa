package lock_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// docs/locks.md names tests that exist.
func TestDocumentationNamesTestsThatExist(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "locks.md"))
	must(t, err)
	files, err := filepath.Glob("*_test.go")
	must(t, err)
	var code strings.Builder
	for _, file := range files {
		b, err := os.ReadFile(file)
		must(t, err)
		code.Write(b)
	}
	named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(doc), -1)
	if len(named) < 20 {
		t.Errorf("only %d tests are named", len(named))
	}
	for _, m := range named {
		if !strings.Contains(code.String(), "func "+m[1]+"(t *testing.T)") {
			t.Errorf("%s does not exist", m[1])
		}
	}
}
