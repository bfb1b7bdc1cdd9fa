package housetest

import (
	"path"
	"slices"
	"strings"
	"testing"
)

// The packages that each public package may link, directly or not. A new name
// here is a decision: it reaches every user's go.sum and binary.
var (
	guardDeps = []string{
		"github.com/hashicorp/golang-lru/v2/internal",
		"github.com/hashicorp/golang-lru/v2/simplelru",
		"github.com/maypok86/otter/v2",
		"github.com/maypok86/otter/v2/...",
		"github.com/vmihailenco/msgpack/v5",
		"github.com/vmihailenco/msgpack/v5/msgpcode",
		"github.com/vmihailenco/tagparser/v2",
		"github.com/vmihailenco/tagparser/v2/internal",
		"github.com/vmihailenco/tagparser/v2/internal/parser",
		"golang.org/x/sync/semaphore",
		"golang.org/x/sync/singleflight",
	}
	s2Deps = []string{
		"github.com/klauspost/compress/internal/le",
		"github.com/klauspost/compress/internal/race",
		"github.com/klauspost/compress/s2",
	}
	redisDeps = []string{
		"github.com/cespare/xxhash/v2",
		"github.com/redis/go-redis/v9",
		"github.com/redis/go-redis/v9/...",
		"github.com/sony/gobreaker/v2",
		"go.uber.org/atomic",
		"golang.org/x/sys/cpu",
	}
)

var allowed = []struct {
	pkg   string   // from the module's root
	deps  []string // foreign packages
	house []string // own packages, from the module's root
}{
	{"stampede", guardDeps, []string{"internal/..."}},
	{"stampede/redisstore", slices.Concat(guardDeps, redisDeps), []string{"stampede", "internal/..."}},
	{"stampede/s2codec", slices.Concat(guardDeps, s2Deps), []string{"stampede", "internal/..."}},
	{"middleware", append([]string{"github.com/go-chi/chi/v5"}, guardDeps...), []string{"stampede", "internal/..."}},
	{"stampede/lock", slices.Concat(guardDeps, redisDeps), []string{"stampede", "internal/..."}},
}

func TestPackagesLinkOnlyWhatTheirListAllows(t *testing.T) {
	existing := strings.Fields(command(t, root, "go", "list", "./..."))
	for _, rule := range allowed {
		pkg := modulePath() + "/" + rule.pkg
		if !slices.Contains(existing, pkg) {
			continue
		}
		t.Run(rule.pkg, func(t *testing.T) {
			t.Parallel()
			out := command(t, root, "go", "list", "-deps", "-f", "{{.Standard}} {{.ImportPath}}", pkg)
			for line := range strings.Lines(out) {
				standard, dep, _ := strings.Cut(strings.TrimSpace(line), " ")
				own, isOwn := strings.CutPrefix(dep, modulePath()+"/")
				switch {
				case dep == pkg:
				case testOnly(dep) != "":
					t.Errorf("links %s: %s", dep, testOnly(dep))
				case standard == "true":
				case isOwn && (testPackage(own) || harness(own) || !matches(own, rule.house)):
					t.Errorf("links %s, which is not for it", dep)
				case !isOwn && !matches(dep, rule.deps):
					t.Errorf("links %s, which is not on its list", dep)
				}
			}
		})
	}
}

// Nothing in the module points back up: each of these may be imported only from
// the places named with it.
func TestDependenciesPointOneWay(t *testing.T) {
	importers := map[string][]string{
		"example":             {"example/..."},
		"middleware":          {"middleware/...", "internal/conformance", "example/..."},
		"stampede/redisstore": {"stampede/redisstore/...", "internal/conformance", "example/..."},
		"stampede/lock":       {"stampede/lock/...", "example/..."},
		"stampede/s2codec":    {"stampede/s2codec/...", "example/..."},
	}
	out := command(t, root, "go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...")
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		pkg := strings.TrimPrefix(fields[0], modulePath()+"/")
		if testPackage(pkg) {
			continue
		}
		for _, imported := range fields[1:] {
			own, ok := strings.CutPrefix(imported, modulePath()+"/")
			if !ok {
				continue
			}
			if from, ok := importers[own]; ok && !matches(pkg, from) {
				t.Errorf("%s imports %s: dependencies point the other way", pkg, own)
			}
		}
	}
}

// testOnly says why a package may not be linked outside tests; "" if it may.
func testOnly(pkg string) string {
	for _, p := range []string{
		"testing/...",
		"go.uber.org/goleak/...",
		"github.com/alicebob/miniredis/v2/...",
		"github.com/anishathalye/porcupine/...",
		"github.com/stretchr/testify/...",
	} {
		if matches(pkg, []string{p}) {
			return "it belongs into tests"
		}
	}
	return ""
}

// testPackage reports whether a package of ours exists to be imported by tests.
func testPackage(pkg string) bool {
	if matches(pkg, []string{"stampede/stampedetest/...", "middleware/middlewaretest/..."}) {
		return true
	}
	rest, ok := strings.CutPrefix(pkg, "internal/")
	first, _, _ := strings.Cut(rest, "/")
	return ok && strings.HasSuffix(first, "test")
}

// harness reports whether a package of ours runs servers or breaks networks: for
// tests, the example and the benchmarks, never for a user's program.
func harness(pkg string) bool {
	return matches(pkg, []string{
		"internal/faultproxy/...",
		"internal/loopback/...",
		"internal/redisproc/...",
	})
}

// matches reports whether pkg is on the list, where "a/..." is a and all below it.
func matches(pkg string, list []string) bool {
	return slices.ContainsFunc(list, func(pattern string) bool {
		tree, ok := strings.CutSuffix(pattern, "/...")
		return pkg == pattern || ok && (pkg == tree || strings.HasPrefix(pkg, path.Clean(tree)+"/"))
	})
}
