package redistest_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/herdgate/herdgate/internal/redisproc"
	"github.com/herdgate/herdgate/internal/redistest"
)

const soon = 5 * time.Second

func do(t *testing.T, s *redisproc.Server, args ...string) any {
	t.Helper()
	reply, err := s.Do(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// answers reports whether s answers a PING within a moment.
func answers(s *redisproc.Server) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	reply, err := s.Do(ctx, "PING")
	return err == nil && reply == "PONG"
}

func TestServerAnswersOnLoopbackWithoutPersistence(t *testing.T) {
	s := redistest.Server(t)
	host, _, err := net.SplitHostPort(s.Addr())
	must(t, err)
	if host != "127.0.0.1" {
		t.Errorf("host %s", host)
	}
	do(t, s, "SET", "k", "v")
	if got := do(t, s, "GET", "k"); got != "v" {
		t.Errorf("got %v", got)
	}
	save := do(t, s, "CONFIG", "GET", "save").([]any)
	if save[1] != "" {
		t.Errorf("save %q", save[1])
	}
}

func TestServerTakesFurtherArguments(t *testing.T) {
	s := redistest.Server(t, "--maxmemory", "12345678")
	if got := do(t, s, "CONFIG", "GET", "maxmemory").([]any)[1]; got != "12345678" {
		t.Errorf("maxmemory %v", got)
	}
}

func TestStoppedServerIsSilentUntilItGoesOn(t *testing.T) {
	s := redistest.Server(t)
	must(t, s.Stop())
	redistest.Eventually(t, soon, func() bool { return !answers(s) })
	if !s.Running() {
		t.Error("a stopped server should count as running")
	}
	must(t, s.Cont())
	redistest.Eventually(t, soon, func() bool { return answers(s) })
}

func TestKilledServerComesBackEmptyOnTheSamePort(t *testing.T) {
	s := redistest.Server(t)
	addr, pid := s.Addr(), s.Pid()
	do(t, s, "SET", "k", "v")
	must(t, s.Kill())
	if s.Running() || answers(s) {
		t.Fatal("server still lives")
	}
	must(t, s.Restart())
	if s.Addr() != addr || s.Pid() == pid {
		t.Errorf("addr %s, was %s; pid %d, was %d", s.Addr(), addr, s.Pid(), pid)
	}
	if got := do(t, s, "GET", "k"); got != nil {
		t.Errorf("got %v after the restart", got)
	}
}

func TestRestartOfARunningServerShutsItDownFirst(t *testing.T) {
	s := redistest.Server(t)
	pid := s.Pid()
	must(t, s.Restart())
	if s.Pid() == pid || !answers(s) {
		t.Error("no new server")
	}
}

func TestCloseEndsAStoppedServerAndMayBeRepeated(t *testing.T) {
	s := redistest.Server(t)
	must(t, s.Stop())
	must(t, s.Close())
	must(t, s.Close())
	if s.Running() {
		t.Error("server still runs")
	}
}
