package reports_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// docs/reports.md names tests that exist, and every test here.
func TestTheListOfReportsNamesTheTestsThatThereAre(t *testing.T) {
	const root = "../.."
	doc, err := os.ReadFile(filepath.Join(root, "docs", "reports.md"))
	must(t, err)
	named := map[string]bool{}
	for _, name := range regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(string(doc), -1) {
		named[name] = true
	}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	must(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		own := filepath.Base(filepath.Dir(path)) == "reports"
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			if own && !named[m[1]] && m[1] != "TestMain" && m[1] != t.Name() {
				t.Errorf("docs/reports.md does not name %s", m[1])
			}
			delete(named, m[1])
		}
		return nil
	}))
	for name := range named {
		t.Errorf("docs/reports.md names %s, which does not exist", name)
	}
}
