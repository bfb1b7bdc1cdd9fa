package redisproc_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/herdgate/herdgate/internal/redisproc"
	"github.com/herdgate/herdgate/internal/redistest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tempDirs makes the test's temporary files go to a directory of their own and returns what is left in it.
func tempDirs(t *testing.T) (left func() int) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	return func() int {
		entries, err := os.ReadDir(dir)
		must(t, err)
		return len(entries)
	}
}

func TestStartWithoutABinarySaysHowToInstallOne(t *testing.T) {
	t.Setenv(redisproc.BinaryEnv, "no-such-redis-server")
	_, err := redisproc.Start(redisproc.Options{})
	if !errors.Is(err, redisproc.ErrNotInstalled) || !strings.Contains(err.Error(), "apt-get install redis-server") {
		t.Errorf("got %v", err)
	}
	if _, err := redisproc.StartSentinel(redisproc.SentinelOptions{}); !errors.Is(err, redisproc.ErrNotInstalled) {
		t.Errorf("got %v", err)
	}
	if _, err := redisproc.StartCluster(redisproc.ClusterOptions{}); !errors.Is(err, redisproc.ErrNotInstalled) {
		t.Errorf("got %v", err)
	}
}

func TestStartErrorHoldsTheLogAndLeavesNothingBehind(t *testing.T) {
	redistest.Server(t) // skip where there is none
	left := tempDirs(t)
	_, err := redisproc.Start(redisproc.Options{Args: []string{"--maxmemory-policy", "nonsense"}})
	if err == nil || !strings.Contains(err.Error(), "process ended") || !strings.Contains(err.Error(), "maxmemory-policy") {
		t.Errorf("got %v", err)
	}
	if n := left(); n != 0 {
		t.Errorf("%d directories left", n)
	}
}

func TestStartGivesUpOnAServerThatNeverAnswers(t *testing.T) {
	redistest.Server(t) // skip where there is none
	left := tempDirs(t)
	_, err := redisproc.Start(redisproc.Options{Args: []string{"--requirepass", "x"}, StartTimeout: 100 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("got %v", err)
	}
	if n := left(); n != 0 {
		t.Errorf("%d directories left", n)
	}
}

func TestCloseRemovesTheFiles(t *testing.T) {
	redistest.Server(t) // skip where there is none
	left := tempDirs(t)
	s, err := redisproc.Start(redisproc.Options{})
	must(t, err)
	if n := left(); n != 1 {
		t.Errorf("%d directories", n)
	}
	if !strings.Contains(s.Log(), "Ready to accept connections") {
		t.Errorf("log %q", s.Log())
	}
	must(t, s.Close())
	if n := left(); n != 0 {
		t.Errorf("%d directories left", n)
	}
}

func TestServerWhosePortIsTakenDoesNotStart(t *testing.T) {
	first := redistest.Server(t)
	_, port, _ := strings.Cut(first.Addr(), ":")
	// A server told to use the port of another one must not take the other's answers for its own.
	s, err := redisproc.Start(redisproc.Options{Args: []string{"--port", port}, StartTimeout: 2 * time.Second})
	if err == nil {
		must(t, s.Close())
		t.Fatal("started on a port that was taken")
	}
	if !strings.Contains(err.Error(), "Address already in use") {
		t.Errorf("got %v", err)
	}
}
