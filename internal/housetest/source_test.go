package housetest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"strconv"
	"strings"
	"testing"
)

// A file that imports testing and does not end in _test.go is linked into users'
// programs, whatever its author called it.
func TestTestCodeLivesInTestFilesAndTestPackages(t *testing.T) {
	for _, name := range goFiles(t) {
		if strings.HasSuffix(name, "_test.go") || testPackage(path.Dir(name)) {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, contents(t, name), parser.ImportsOnly)
		if err != nil {
			t.Error(err)
			continue
		}
		for imported := range imports(file) {
			// The examples run without a Redis on a stand-in, and nobody links them.
			if strings.HasPrefix(name, "example/") && strings.HasPrefix(imported, "github.com/alicebob/miniredis/") {
				continue
			}
			if why := testOnly(imported); why != "" {
				t.Errorf("%s imports %s: %s", name, imported, why)
			}
		}
	}
}

// In a bubble time.Sleep moves the clock and costs nothing. Elsewhere it makes a
// test slow and, one day, flaky: wait for an event, or poll with a deadline. Where
// nothing but real time will do, the line ends in "// real time: " and the reason.
func TestTestsSleepOnlyInBubbles(t *testing.T) {
	for _, name := range goFiles(t) {
		if !strings.HasSuffix(name, "_test.go") {
			continue
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, contents(t, name), parser.ParseComments)
		if err != nil {
			t.Error(err)
			continue
		}
		if _, bubble := imports(file)["testing/synctest"]; bubble {
			continue
		}
		for _, line := range sleeps(fset, file) {
			t.Errorf("%s:%d: time.Sleep outside a synctest bubble", name, line)
		}
	}
}

// imports returns the paths that a file imports and the names it gives them.
func imports(file *ast.File) map[string]string {
	m := make(map[string]string)
	for _, spec := range file.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		m[p] = path.Base(p)
		if spec.Name != nil {
			m[p] = spec.Name.Name
		}
	}
	return m
}

// sleeps returns the lines that call time.Sleep and give no reason for it.
func sleeps(fset *token.FileSet, file *ast.File) []int {
	reasons := make(map[int]bool)
	for _, group := range file.Comments {
		for _, c := range group.List {
			if why, ok := strings.CutPrefix(c.Text, "// real time: "); ok && strings.TrimSpace(why) != "" {
				reasons[fset.Position(c.Pos()).Line] = true
			}
		}
	}
	var lines []int
	pkg := imports(file)["time"]
	ast.Inspect(file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok || sel.Sel.Name != "Sleep" {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == pkg {
			if line := fset.Position(sel.Pos()).Line; !reasons[line] {
				lines = append(lines, line)
			}
		}
		return true
	})
	return lines
}
