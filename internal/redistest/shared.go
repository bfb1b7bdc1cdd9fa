package redistest

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/herdgate/herdgate/internal/redisproc"
)

// Shared holds servers that all tests of a package share, each started when first asked for. The zero value is ready. Tests
// keep out of each other's way by key prefixes of their own or, if they do not run in parallel, by FLUSHALL.
//
//	var shared redistest.Shared
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(shared.Around(m)) }
//
// Without goleak: os.Exit(shared.Around(m).Run()).
type Shared struct {
	server   lazy[*redisproc.Server]
	sentinel lazy[*redisproc.Sentinel]
	cluster  lazy[*redisproc.Cluster]
}

// Server returns the shared redis-server.
func (s *Shared) Server(t testing.TB) *redisproc.Server {
	t.Helper()
	server, err := s.server.get(func() (*redisproc.Server, error) { return redisproc.Start(redisproc.Options{}) })
	demand(t, err)
	return server
}

// Sentinel returns the shared master with replicas and sentinels.
func (s *Shared) Sentinel(t testing.TB) *redisproc.Sentinel {
	t.Helper()
	sentinel, err := s.sentinel.get(func() (*redisproc.Sentinel, error) {
		return redisproc.StartSentinel(redisproc.SentinelOptions{})
	})
	demand(t, err)
	return sentinel
}

// Cluster returns the shared cluster.
func (s *Shared) Cluster(t testing.TB) *redisproc.Cluster {
	t.Helper()
	cluster, err := s.cluster.get(func() (*redisproc.Cluster, error) {
		return redisproc.StartCluster(redisproc.ClusterOptions{})
	})
	demand(t, err)
	return cluster
}

// Close ends the servers. Around calls it.
func (s *Shared) Close() error {
	return errors.Join(s.server.close(), s.sentinel.close(), s.cluster.close())
}

// Runner runs tests; *testing.M is one.
type Runner interface{ Run() int }

// Around returns a Runner that runs m and then closes the shared servers.
func (s *Shared) Around(m Runner) Runner {
	return around{s, m}
}

type around struct {
	shared *Shared
	inner  Runner
}

// Run returns what the inner Run does; a server that does not end turns success into failure.
func (a around) Run() int {
	code := a.inner.Run()
	if err := a.shared.Close(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// lazy is something that starts when first asked for.
type lazy[C closer] struct {
	once    sync.Once
	started bool
	value   C
	err     error
}

func (l *lazy[C]) get(start func() (C, error)) (C, error) {
	l.once.Do(func() {
		l.value, l.err = start()
		l.started = l.err == nil
	})
	return l.value, l.err
}

func (l *lazy[C]) close() error {
	l.once.Do(func() {}) // whoever asks after this gets nothing
	if !l.started {
		return nil
	}
	return l.value.Close()
}
