package redistest_test

import (
	"context"
	"testing"

	"github.com/herdgate/herdgate/internal/redistest"
)

func TestClusterReplicaTakesOverALivingAndThenADeadMaster(t *testing.T) {
	t.Parallel()
	c := redistest.Cluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*failover)
	defer cancel()
	const key = "{tag}k"
	if slot, err := c.Slot(ctx, "foo"); err != nil || slot != 12182 {
		t.Errorf("slot %d, %v", slot, err)
	}

	first, err := c.Failover(ctx, key)
	must(t, err)
	second, err := c.WaitForNewMaster(ctx, key, first)
	must(t, err)
	do(t, second, "SET", key, "v")
	if n := do(t, second, "WAIT", "1", "2000"); n != int64(1) {
		t.Fatalf("%v replicas have the value", n)
	}

	dead, err := c.KillMaster(ctx, key)
	must(t, err)
	if dead != second || dead.Running() {
		t.Fatal("killed another node than the master, or none")
	}
	third, err := c.WaitForNewMaster(ctx, key, dead)
	must(t, err)
	if third != first {
		t.Errorf("%s took over, not the replica %s", third.Addr(), first.Addr())
	}
	if got := do(t, third, "GET", key); got != "v" {
		t.Errorf("got %v", got)
	}

	must(t, dead.Restart())
	must(t, c.WaitUntilReady(ctx))
	replicas, err := c.Replicas(ctx, key)
	must(t, err)
	if len(replicas) != 1 || replicas[0] != dead {
		t.Errorf("replicas %v", replicas)
	}
}
