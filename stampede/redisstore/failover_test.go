package redisstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/internal/redistest"
	"github.com/herdgate/herdgate/stampede"
)

// recovers waits until key can be loaded, committed and read.
func (r *rig) recovers(key stampede.Key) {
	r.T.Helper()
	redistest.Eventually(r.T, 15*time.Second, func() bool {
		el, err := r.Elect(r.ctx(), key, stampede.Ballot{Token: stampede.NewToken(), Length: time.Second})
		if err != nil {
			return false
		}
		if el.Role == stampede.RoleFresh {
			return string(el.Entry.Data) == "after"
		}
		if el.Role == stampede.RoleLeader {
			_, _ = r.Commit(r.ctx(), key, el.Lease, value("after"))
		}
		return false
	})
	if e := r.read(key); string(e.Data) != "after" {
		r.T.Errorf("read %+v", e)
	}
}

func TestStoreFollowsAFailoverBySentinel(t *testing.T) {
	t.Parallel()
	sen := redistest.Sentinel(t)
	s := open(t, redis.NewFailoverClient(&redis.FailoverOptions{MasterName: sen.MasterName(), SentinelAddrs: sen.Addrs()}), nil)
	r := &rig{T: t, Store: s}
	key := r.key()
	r.lead(key)
	w := r.watch(key)

	// The old master lives on as a replica; nobody may go on reading from it.
	_, err := sen.Failover(t.Context())
	must(t, err)
	r.told(w)
	r.recovers(r.key())
	must(t, sen.WaitUntilReady(t.Context()))
	_, err = sen.KillMaster(t.Context())
	must(t, err)
	r.recovers(r.key())
	r.stands(w)
}

func TestStoreFollowsAFailoverInACluster(t *testing.T) {
	t.Parallel()
	c := redistest.Cluster(t)
	s := open(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()}), nil)
	r := &rig{T: t, Store: s}
	key := r.key()
	r.lead(key)
	name := names(t, key).Entry
	_, err := c.Failover(t.Context(), name)
	must(t, err)
	r.recovers(r.sameSlot(key))
	must(t, c.WaitUntilReady(t.Context()))
	_, err = c.KillMaster(t.Context(), name)
	must(t, err)
	r.recovers(r.sameSlot(key))
}

// sameSlot returns another key whose names have the slot of key's.
func (r *rig) sameSlot(key stampede.Key) stampede.Key {
	want := slot(names(r.T, key).Entry)
	for {
		if k := r.key(); slot(names(r.T, k).Entry) == want {
			return k
		}
	}
}

// A node that does not answer takes nobody with it: keys of other nodes are served meanwhile.
func TestDeadNodeOfAClusterConcernsItsKeysOnly(t *testing.T) {
	t.Parallel()
	c := redistest.Cluster(t)
	s := open(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()}), nil)
	r := &rig{T: t, Store: s}
	down := r.key()
	master, err := c.Master(t.Context(), names(t, down).Entry)
	must(t, err)
	up := r.key()
	for {
		m, err := c.Master(t.Context(), names(t, up).Entry)
		must(t, err)
		if m.Addr() != master.Addr() {
			break
		}
		up = r.key()
	}
	r.read(down)
	r.ok(s.Set(t.Context(), up, value("x")))
	must(t, master.Stop())
	defer func() { _ = master.Cont() }()
	ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
	defer cancel()
	failing := make(chan struct{})
	go func() {
		defer close(failing)
		for ctx.Err() == nil {
			_, _ = s.Read(ctx, down)
		}
	}()
	slow, refused, n := 0, 0, 0
	for ; ctx.Err() == nil; n++ {
		began := time.Now()
		_, err := s.Read(context.Background(), up)
		if errors.Is(err, stampede.ErrUnavailable) {
			refused++
		}
		if time.Since(began) > 50*time.Millisecond {
			slow++
		}
	}
	<-failing
	t.Logf("%d reads, %d slow, %d refused", n, slow, refused)
	if slow > n/100+2 || refused > 0 {
		t.Errorf("of %d reads of another node's key %d were slow and %d refused", n, slow, refused)
	}
}
