package housetest

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A promise is kept by tests that there are: each name in docs/guarantees.md is the beginning of a test's,
// and each mutant stands there.
func TestGuaranteesNameTestsAndMutantsThatThereAre(t *testing.T) {
	var code strings.Builder
	for _, name := range goFiles(t) {
		if strings.HasSuffix(name, "_test.go") {
			code.Write(contents(t, name))
		}
	}
	text := string(contents(t, "docs/guarantees.md"))
	names := regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)…?`").FindAllStringSubmatch(text, -1)
	if len(names) < 50 {
		t.Errorf("only %d tests are named", len(names))
	}
	for _, m := range names {
		if !strings.Contains(code.String(), "\nfunc "+m[1]) {
			t.Errorf("there is no test %s", m[1])
		}
	}
	mutants, err := filepath.Glob(filepath.Join(root, "internal", "mutants", "list", "*.mutant"))
	if err != nil || len(mutants) == 0 {
		t.Fatal(len(mutants), "mutants", err)
	}
	for _, m := range mutants {
		if name := strings.TrimSuffix(path.Base(filepath.ToSlash(m)), ".mutant"); !strings.Contains(text, "| "+name+": ") {
			t.Errorf("the mutant %s is not listed", name)
		}
	}
}

// A mutant whose text is not there any more, or stands twice, breaks nothing.
func TestMutantsFitTheCode(t *testing.T) {
	mutants, err := filepath.Glob(filepath.Join(root, "internal", "mutants", "list", "*.mutant"))
	if err != nil || len(mutants) == 0 {
		t.Fatal(len(mutants), "mutants", err)
	}
	for _, m := range mutants {
		text, err := os.ReadFile(m)
		if err != nil {
			t.Fatal(err)
		}
		head, edits, _ := strings.Cut(string(text), "--- old\n")
		_, file, _ := strings.Cut(head, "\nfile: ")
		file, _, _ = strings.Cut(file, "\n")
		code, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(strings.TrimSpace(file))))
		if err != nil {
			t.Error(err)
			continue
		}
		for edit := range strings.SplitSeq(edits, "--- old\n") {
			old, _, _ := strings.Cut(edit, "--- new\n")
			if n := strings.Count(string(code), old); n != 1 {
				t.Errorf("%s: its text occurs %d times in %s", filepath.Base(m), n, file)
			}
		}
	}
}
