package redistest_test

import (
	"context"
	"testing"
	"time"

	"github.com/herdgate/herdgate/internal/redistest"
)

// failover bounds the wait for one failover. It takes some seconds, twice as many when the voters do not agree at once.
const failover = 15 * time.Second

func TestSentinelsReplaceALivingThenAStoppedThenADeadMaster(t *testing.T) {
	t.Parallel()
	s := redistest.Sentinel(t)
	if len(s.Addrs()) != 3 || s.MasterName() == "" {
		t.Fatalf("sentinels %v of master %q", s.Addrs(), s.MasterName())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*failover)
	defer cancel()

	first, err := s.Failover(ctx)
	must(t, err)
	second, err := s.WaitForNewMaster(ctx, first)
	must(t, err)
	if second == first {
		t.Fatal("no new master")
	}
	do(t, second, "SET", "k", "v")
	if n := do(t, second, "WAIT", "1", "1000"); n == int64(0) {
		t.Fatal("no replica follows the new master")
	}

	must(t, second.Stop())
	third, err := s.WaitForNewMaster(ctx, second)
	must(t, err)
	must(t, second.Cont())
	must(t, s.WaitUntilReady(ctx)) // the old master follows the new one

	dead, err := s.KillMaster(ctx)
	must(t, err)
	if dead != third || dead.Running() {
		t.Fatal("killed another server than the master, or none")
	}
	fourth, err := s.WaitForNewMaster(ctx, dead)
	must(t, err)
	do(t, fourth, "SET", "k", "w")
}
