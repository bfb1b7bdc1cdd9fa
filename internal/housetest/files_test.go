package housetest

import (
	"bytes"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// root is the top of the repository, seen from this package.
const root = "../.."

// command runs a program in dir and returns what it printed.
func command(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

// modulePath is the path in go.mod.
var modulePath = sync.OnceValue(func() string {
	b, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		panic(err)
	}
	for line := range strings.Lines(string(b)) {
		if p, ok := strings.CutPrefix(line, "module "); ok {
			return strings.TrimSpace(p)
		}
	}
	panic("go.mod names no module")
})

// files lists what git tracks and what it would track next, as slash-separated
// paths from the root: a fault shows before it is committed. Outside a git work
// tree (the module's zip, say) there is nothing to guard.
func files(t *testing.T) []string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		t.Skip("not a git work tree")
	}
	// The tree may belong to another user than the one who tests it.
	out := command(t, root, "git", "-c", "safe.directory=*", "-c", "core.quotePath=false",
		"ls-files", "-z", "--cached", "--others", "--exclude-standard")
	var list []string
	for name := range strings.SplitSeq(out, "\x00") {
		if name == "" {
			continue
		}
		// Tracked, but deleted in the work tree; or a link or a submodule.
		if info, err := os.Lstat(onDisk(name)); err != nil || !info.Mode().IsRegular() {
			continue
		}
		list = append(list, name)
	}
	return list
}

// goFiles lists the Go files of every module, except those that the go command ignores.
func goFiles(t *testing.T) []string {
	t.Helper()
	var list []string
	for _, name := range files(t) {
		if path.Ext(name) == ".go" && !strings.Contains("/"+name, "/testdata/") {
			list = append(list, name)
		}
	}
	return list
}

func onDisk(name string) string { return filepath.Join(root, filepath.FromSlash(name)) }

func contents(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(onDisk(name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
