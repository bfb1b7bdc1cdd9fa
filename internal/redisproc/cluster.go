package redisproc

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// ClusterOptions say how to start a cluster. The zero value is a good default.
type ClusterOptions struct {
	// Options hold for every node. StartTimeout bounds the wait for the cluster to form as well.
	Options
	// NodeTimeout is cluster-node-timeout: how long a node must be silent to count as down. Defaults to 1 s.
	NodeTimeout time.Duration
}

const (
	masterCount = 3
	nodeCount   = 2 * masterCount
	slotCount   = 16384
)

// Cluster is a Redis Cluster of three masters with one replica each. Where its methods speak of running nodes, a stopped one is
// none.
type Cluster struct {
	nodes []*Server
}

// StartCluster starts six nodes and forms a cluster. It returns once every node finds the cluster in order and every replica is
// in sync, so that a failover would work.
func StartCluster(o ClusterOptions) (*Cluster, error) {
	if o.StartTimeout <= 0 {
		o.StartTimeout = defaultStartTimeout
	}
	if o.NodeTimeout <= 0 {
		o.NodeTimeout = time.Second
	}
	node := spec{Options: o.Options, bus: true}
	node.Args = append([]string{
		"--cluster-enabled", "yes",
		"--cluster-config-file", "nodes.conf",
		"--cluster-node-timeout", strconv.FormatInt(o.NodeTimeout.Milliseconds(), 10),
		"--cluster-replica-validity-factor", "0",
		"--cluster-announce-ip", "127.0.0.1",
	}, append(replicationArgs[:len(replicationArgs):len(replicationArgs)], o.Args...)...)
	nodes, err := startAll(nodeCount, func(int) spec { return node })
	if err != nil {
		return nil, err
	}
	c := &Cluster{nodes: nodes}
	ctx, cancel := context.WithTimeout(context.Background(), o.StartTimeout)
	defer cancel()
	if err := c.form(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// form makes one cluster of separate nodes: the first three become masters, the others their replicas.
func (c *Cluster) form(ctx context.Context) error {
	masters, replicas := c.nodes[:masterCount], c.nodes[masterCount:]
	for i, m := range masters {
		first, last := i*slotCount/masterCount, (i+1)*slotCount/masterCount-1
		if _, err := m.Do(ctx, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last)); err != nil {
			return err
		}
	}
	for i, n := range c.nodes {
		if _, err := n.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1)); err != nil {
			return err
		}
		// Gossip would introduce everybody to everybody, but slowly.
		for _, other := range c.nodes[:i] {
			if _, err := n.Do(ctx, "CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(other.port)); err != nil {
				return err
			}
		}
	}
	for i, r := range replicas {
		id, err := doString(ctx, masters[i].Addr(), "CLUSTER", "MYID")
		if err != nil {
			return err
		}
		// Refused as long as the replica has not met its master.
		if err := poll(ctx, "cluster replica", func(ctx context.Context) error {
			_, err := r.Do(ctx, "CLUSTER", "REPLICATE", id)
			return err
		}); err != nil {
			return err
		}
	}
	return c.WaitUntilReady(ctx)
}

// Nodes returns all nodes.
func (c *Cluster) Nodes() []*Server {
	return c.nodes
}

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() []string {
	return addrsOf(c.nodes)
}

// Slot returns the hash slot of key.
func (c *Cluster) Slot(ctx context.Context, key string) (int, error) {
	for _, n := range running(c.nodes) {
		reply, err := n.Do(ctx, "CLUSTER", "KEYSLOT", key)
		slot, _ := reply.(int64)
		return int(slot), err
	}
	return 0, errNoNode
}

var errNoNode = errors.New("redisproc: no cluster node runs")

// Master returns the master that serves key, on which all running nodes must agree.
func (c *Cluster) Master(ctx context.Context, key string) (*Server, error) {
	slot, err := c.Slot(ctx, key)
	if err != nil {
		return nil, err
	}
	var agreed *Server
	for _, n := range running(c.nodes) {
		table, err := nodeTable(ctx, n)
		if err != nil {
			return nil, err
		}
		master := byAddr(c.nodes, table.masterOf(slot).addr)
		if master == nil {
			return nil, fmt.Errorf("redisproc: %s knows no master of slot %d", n.Addr(), slot)
		}
		if agreed != nil && agreed != master {
			return nil, fmt.Errorf("redisproc: cluster nodes differ on slot %d: %s and %s", slot, agreed.Addr(), master.Addr())
		}
		agreed = master
	}
	return agreed, nil
}

// Replicas returns the running replicas of the master that serves key, as that master sees them.
func (c *Cluster) Replicas(ctx context.Context, key string) ([]*Server, error) {
	master, err := c.Master(ctx, key)
	if err != nil {
		return nil, err
	}
	table, err := nodeTable(ctx, master)
	if err != nil {
		return nil, err
	}
	id := table.self().id
	var replicas []*Server
	for _, n := range table {
		if s := byAddr(c.nodes, n.addr); n.masterID == id && s != nil && s.responsive() {
			replicas = append(replicas, s)
		}
	}
	return replicas, nil
}

// KillMaster kills the master that serves key and returns it. Its replica takes over within some seconds; see WaitForNewMaster.
func (c *Cluster) KillMaster(ctx context.Context, key string) (*Server, error) {
	master, err := c.Master(ctx, key)
	if err != nil {
		return nil, err
	}
	return master, master.Kill()
}

// Failover makes a replica take over from the living master that serves key, and returns that old master; see
// WaitForNewMaster.
func (c *Cluster) Failover(ctx context.Context, key string) (*Server, error) {
	master, err := c.Master(ctx, key)
	if err != nil {
		return nil, err
	}
	replicas, err := c.Replicas(ctx, key)
	if err != nil {
		return nil, err
	}
	if len(replicas) == 0 {
		return nil, fmt.Errorf("redisproc: %s has no running replica", master.Addr())
	}
	_, err = replicas[0].Do(ctx, "CLUSTER", "FAILOVER")
	return master, err
}

// WaitForNewMaster waits until all running nodes agree that key is served by a master other than old and find the cluster in
// order. It returns the new master.
func (c *Cluster) WaitForNewMaster(ctx context.Context, key string, old *Server) (*Server, error) {
	var master *Server
	err := poll(ctx, "new cluster master", func(ctx context.Context) error {
		m, err := c.Master(ctx, key)
		if err != nil {
			return err
		}
		if m == old {
			return errors.New("the old one is still known as such")
		}
		master = m
		return errors.Join(isMaster(ctx, m), c.inOrder(ctx))
	})
	if err != nil {
		return nil, err
	}
	return master, nil
}

// WaitUntilReady waits until all nodes run, know one another, find the cluster in order, and every replica is in sync. It is
// true when StartCluster returns; call it after a Restart.
func (c *Cluster) WaitUntilReady(ctx context.Context) error {
	return poll(ctx, "cluster", c.isReady)
}

func (c *Cluster) isReady(ctx context.Context) error {
	if n := len(running(c.nodes)); n != nodeCount {
		return finalError{fmt.Errorf("only %d of %d nodes run", n, nodeCount)}
	}
	if err := c.inOrder(ctx); err != nil {
		return err
	}
	for _, n := range c.nodes {
		table, err := nodeTable(ctx, n)
		if err != nil {
			return err
		}
		if err := table.complete(); err != nil {
			return fmt.Errorf("%s: %w", n.Addr(), err)
		}
		if table.self().masterID != "" {
			if err := inSync(ctx, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// inOrder reports as an error that a running node finds the cluster failed.
func (c *Cluster) inOrder(ctx context.Context) error {
	for _, n := range running(c.nodes) {
		info, err := doString(ctx, n.Addr(), "CLUSTER", "INFO")
		if err != nil {
			return err
		}
		if state := field(info, "cluster_state"); state != "ok" {
			return fmt.Errorf("%s: cluster_state is %q", n.Addr(), state)
		}
	}
	return nil
}

// Close ends all nodes. It may be called more than once.
func (c *Cluster) Close() error {
	return closeAll(c.nodes)
}
