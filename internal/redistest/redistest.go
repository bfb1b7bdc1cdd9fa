// Package redistest gives tests real Redis servers that end with the test.
//
// Without a redis-server binary a test is skipped, except when the environment variable CI is "true": there it fails.
package redistest

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/herdgate/herdgate/internal/redisproc"
)

// Server starts a redis-server for t, with further arguments if any are given.
func Server(t testing.TB, args ...string) *redisproc.Server {
	t.Helper()
	s, err := redisproc.Start(redisproc.Options{Args: args})
	return use(t, s, err)
}

// Sentinel starts a master with two replicas and three sentinels for t.
func Sentinel(t testing.TB) *redisproc.Sentinel {
	t.Helper()
	s, err := redisproc.StartSentinel(redisproc.SentinelOptions{})
	return use(t, s, err)
}

// Cluster starts a cluster of three masters with one replica each for t.
func Cluster(t testing.TB) *redisproc.Cluster {
	t.Helper()
	c, err := redisproc.StartCluster(redisproc.ClusterOptions{})
	return use(t, c, err)
}

// closer is what Server, Sentinel and Cluster have in common.
type closer interface{ Close() error }

// use hands over what was started, to be closed when t ends, or ends t.
func use[C closer](t testing.TB, c C, err error) C {
	t.Helper()
	demand(t, err)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// demand ends t when err is not nil.
func demand(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case errors.Is(err, redisproc.ErrNotInstalled) && os.Getenv("CI") != "true":
		t.Skip(err)
	default:
		t.Fatal(err)
	}
}

// Eventually polls cond until it is true and fails t when that takes longer than timeout.
func Eventually(t testing.TB, timeout time.Duration, cond func() bool) {
	t.Helper()
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !cond() {
		select {
		case <-deadline.C:
			t.Fatalf("condition not true after %v", timeout)
		case <-ticker.C:
		}
	}
}
