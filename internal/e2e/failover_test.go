package e2e_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/internal/redisproc"
	"github.com/herdgate/herdgate/internal/redistest"
)

func TestFailoverBySentinelReachesNoCaller(t *testing.T) {
	t.Parallel()
	tr := trouble{name: "sentinel", start: sentinelFailover}
	tr.run(t)
}

func TestFailoverInAClusterReachesNoCaller(t *testing.T) {
	t.Parallel()
	tr := trouble{name: "cluster", start: clusterFailover}
	tr.run(t)
}

func sentinelFailover(t *testing.T) *rig {
	s := redistest.Sentinel(t)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	master, err := s.Master(ctx)
	must(t, err)
	r := &rig{
		connect: func(name string) redis.UniversalClient {
			return redis.NewFailoverClient(&redis.FailoverOptions{
				MasterName: s.MasterName(), SentinelAddrs: s.Addrs(), ClientName: name,
			})
		},
		masters: func() []*redisproc.Server { return []*redisproc.Server{master} },
	}
	r.begin = master.Kill
	r.heal = func() (err error) {
		master, err = s.WaitForNewMaster(ctx, master)
		return err
	}
	return r
}

// clusterFailover kills one of three masters: the keys of the others must not feel it.
func clusterFailover(t *testing.T) *rig {
	c := redistest.Cluster(t)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	const key = hot + "0" // its slot is that of its hash, wherever that is: some master
	masters := func() (all []*redisproc.Server) {
		for _, n := range c.Nodes() {
			if !n.Running() {
				continue
			}
			if role, _ := do(t, n, "ROLE").([]any); len(role) > 0 && role[0] == "master" {
				all = append(all, n)
			}
		}
		return all
	}
	var dead *redisproc.Server
	r := &rig{
		connect: func(name string) redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), ClientName: name})
		},
		masters: masters,
	}
	r.begin = func() (err error) {
		dead, err = c.KillMaster(ctx, key)
		return err
	}
	r.heal = func() error {
		_, err := c.WaitForNewMaster(ctx, key, dead)
		return err
	}
	return r
}
