package redisproc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// SentinelOptions say how to start a master with replicas and sentinels. The zero value is a good default.
type SentinelOptions struct {
	// Options hold for the master and the replicas; Binary and StartTimeout for the sentinels too. StartTimeout bounds the wait
	// for everybody to know one another as well.
	Options
	// MasterName defaults to "herdgate".
	MasterName string
	// DownAfter is how long a server must be silent to count as down. Defaults to 500 ms. One sentinel takes 300 ms longer.
	DownAfter time.Duration
	// FailoverTimeout is what the sentinels are told as failover-timeout. Defaults to 2 s.
	FailoverTimeout time.Duration
}

func (o SentinelOptions) withDefaults() SentinelOptions {
	if o.StartTimeout <= 0 {
		o.StartTimeout = defaultStartTimeout
	}
	if o.MasterName == "" {
		o.MasterName = "herdgate"
	}
	if o.DownAfter <= 0 {
		o.DownAfter = 500 * time.Millisecond
	}
	if o.FailoverTimeout <= 0 {
		o.FailoverTimeout = 2 * time.Second
	}
	return o
}

const (
	replicaCount  = 2
	sentinelCount = 3
	quorum        = 2
)

// Sentinel is a master with two replicas, watched by three sentinels of which two must agree. Where its methods
// speak of running sentinels, a stopped one is none.
type Sentinel struct {
	opts      SentinelOptions
	nodes     []*Server
	sentinels []*Server
}

// StartSentinel starts a master, two replicas and three sentinels. It returns once the replicas are in sync and every sentinel
// knows the master, both replicas and the other sentinels, so that a failover would work.
func StartSentinel(o SentinelOptions) (*Sentinel, error) {
	s := &Sentinel{opts: o.withDefaults()}
	if err := s.start(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Sentinel) start() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.StartTimeout)
	defer cancel()
	node := spec{Options: s.opts.Options}
	node.Args = append(replicationArgs[:len(replicationArgs):len(replicationArgs)], node.Args...)
	var err error
	if s.nodes, err = startAll(1+replicaCount, func(int) spec { return node }); err != nil {
		return err
	}
	master, replicas := s.nodes[0], s.nodes[1:]
	for _, r := range replicas {
		if _, err := r.Do(ctx, "REPLICAOF", "127.0.0.1", strconv.Itoa(master.port)); err != nil {
			return err
		}
	}
	// Sentinels that find the replicas in place need not discover them later.
	if err := poll(ctx, "replicas", func(ctx context.Context) error { return s.followed(ctx, master) }); err != nil {
		return err
	}
	if s.sentinels, err = startAll(sentinelCount, s.sentinelSpec); err != nil {
		return err
	}
	for _, w := range s.sentinels {
		hurry(ctx, w)
	}
	return s.WaitUntilReady(ctx)
}

// sentinelSpec returns how to start sentinel i.
func (s *Sentinel) sentinelSpec(i int) spec {
	downAfter := s.opts.DownAfter
	if i == 0 {
		// Were three sentinels to notice at once, each might vote for itself, and they would have to wait before they vote again.
		downAfter += 300 * time.Millisecond
	}
	sp := spec{
		Options: s.opts.Options,
		mode:    []string{"--sentinel"},
		config:  func(port int) string { return s.config(port, downAfter) },
	}
	sp.Args = nil
	return sp
}

// config returns a sentinel's configuration file.
func (s *Sentinel) config(port int, downAfter time.Duration) string {
	name := s.opts.MasterName
	return strings.Join([]string{
		"sentinel announce-ip 127.0.0.1",
		fmt.Sprintf("sentinel announce-port %d", port),
		fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d %d", name, s.nodes[0].port, quorum),
		fmt.Sprintf("sentinel down-after-milliseconds %s %d", name, downAfter.Milliseconds()),
		fmt.Sprintf("sentinel failover-timeout %s %d", name, s.opts.FailoverTimeout.Milliseconds()),
		fmt.Sprintf("sentinel parallel-syncs %s %d", name, replicaCount),
		"",
	}, "\n")
}

// hurry makes a sentinel gossip more often. Servers before 7.0 refuse, and then everything takes some seconds longer.
//
// PING-PERIOD is left alone: a replica is promoted only if its INFO, had every second, is younger than five such periods.
func hurry(ctx context.Context, sentinel *Server) {
	_, _ = sentinel.Do(ctx, "SENTINEL", "DEBUG", "INFO-PERIOD", "500", "PUBLISH-PERIOD", "200", "ASK-PERIOD", "100")
}

// MasterName returns the name under which the sentinels know the master.
func (s *Sentinel) MasterName() string {
	return s.opts.MasterName
}

// Addrs returns the addresses of the sentinels.
func (s *Sentinel) Addrs() []string {
	return addrsOf(s.sentinels)
}

// Nodes returns the master and the replicas, in no particular order once a failover has happened.
func (s *Sentinel) Nodes() []*Server {
	return s.nodes
}

// Sentinels returns the sentinels.
func (s *Sentinel) Sentinels() []*Server {
	return s.sentinels
}

// Master returns the server that all running sentinels take for the master. It fails while they differ.
func (s *Sentinel) Master(ctx context.Context) (*Server, error) {
	var agreed string
	for _, w := range running(s.sentinels) {
		reply, err := w.Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.opts.MasterName)
		if err != nil {
			return nil, err
		}
		pair, _ := reply.([]any)
		if len(pair) != 2 {
			return nil, fmt.Errorf("redisproc: sentinel %s knows no master", w.Addr())
		}
		addr := net.JoinHostPort(fmt.Sprint(pair[0]), fmt.Sprint(pair[1]))
		if agreed != "" && agreed != addr {
			return nil, fmt.Errorf("redisproc: sentinels differ: %s and %s", agreed, addr)
		}
		agreed = addr
	}
	master := byAddr(s.nodes, agreed)
	if master == nil {
		return nil, fmt.Errorf("redisproc: no server at the master's address %q", agreed)
	}
	return master, nil
}

// KillMaster kills the master and returns it. The sentinels promote a replica within some seconds; see WaitForNewMaster.
func (s *Sentinel) KillMaster(ctx context.Context) (*Server, error) {
	master, err := s.Master(ctx)
	if err != nil {
		return nil, err
	}
	return master, master.Kill()
}

// Failover makes the sentinels promote a replica while the master lives, and returns that old master; see WaitForNewMaster.
func (s *Sentinel) Failover(ctx context.Context) (*Server, error) {
	master, err := s.Master(ctx)
	if err != nil {
		return nil, err
	}
	for _, w := range running(s.sentinels) {
		_, err := w.Do(ctx, "SENTINEL", "FAILOVER", s.opts.MasterName)
		return master, err
	}
	return nil, errors.New("redisproc: no sentinel runs")
}

// WaitForNewMaster waits until all running sentinels agree on a master other than old, all other running servers follow it, and
// the failover is over for everybody. It returns the new master.
func (s *Sentinel) WaitForNewMaster(ctx context.Context, old *Server) (*Server, error) {
	var master *Server
	err := poll(ctx, "new master", func(ctx context.Context) error {
		m, err := s.Master(ctx)
		if err != nil {
			return err
		}
		if m == old {
			return errors.New("the sentinels still name the old one")
		}
		master = m
		return s.settled(ctx, m)
	})
	if err != nil {
		return nil, err
	}
	return master, nil
}

// WaitUntilReady waits until everything runs, the replicas are in sync and every sentinel knows them and the other sentinels. It
// is true when StartSentinel returns; call it after a Restart or Cont.
func (s *Sentinel) WaitUntilReady(ctx context.Context) error {
	return poll(ctx, "sentinels", func(ctx context.Context) error {
		if len(running(s.nodes)) != len(s.nodes) || len(running(s.sentinels)) != len(s.sentinels) {
			return finalError{errors.New("not all servers run")}
		}
		master, err := s.Master(ctx)
		if err != nil {
			return err
		}
		if err := s.settled(ctx, master); err != nil {
			return err
		}
		for _, w := range s.sentinels {
			if err := s.knowsAll(ctx, w, master); err != nil {
				return err
			}
		}
		return nil
	})
}

// settled reports as an error that a failover to master is not over yet.
func (s *Sentinel) settled(ctx context.Context, master *Server) error {
	for _, w := range running(s.sentinels) {
		reply, err := w.Do(ctx, "SENTINEL", "MASTER", s.opts.MasterName)
		if err != nil {
			return err
		}
		if flags := pairs(reply)["flags"]; flags != "master" {
			return fmt.Errorf("sentinel %s: the master's flags are %q", w.Addr(), flags)
		}
	}
	return s.followed(ctx, master)
}

// followed reports as an error that not all other running servers follow master, or none.
func (s *Sentinel) followed(ctx context.Context, master *Server) error {
	if err := isMaster(ctx, master); err != nil {
		return err
	}
	followers := 0
	for _, n := range running(s.nodes) {
		if n == master {
			continue
		}
		if err := errors.Join(inSync(ctx, n), hasReplication(ctx, n, "master_port", strconv.Itoa(master.port))); err != nil {
			return err
		}
		followers++
	}
	if followers == 0 {
		return errors.New("no replica runs")
	}
	return nil
}

// knowsAll reports as an error what sentinel w does not know yet.
func (s *Sentinel) knowsAll(ctx context.Context, w, master *Server) error {
	// A line such as: master0:name=herdgate,status=ok,address=127.0.0.1:6379,slaves=2,sentinels=3
	info, err := doString(ctx, w.Addr(), "INFO", "sentinel")
	if err != nil {
		return err
	}
	got := field(info, "master0")
	want := fmt.Sprintf("status=ok,address=%s,slaves=%d,sentinels=%d", master.Addr(), replicaCount, sentinelCount)
	if !strings.HasSuffix(got, want) {
		return fmt.Errorf("sentinel %s knows %q, not %q", w.Addr(), got, want)
	}
	// A replica can be promoted only once its INFO has been seen.
	reply, err := w.Do(ctx, "SENTINEL", "REPLICAS", s.opts.MasterName)
	if err != nil {
		return err
	}
	replicas, _ := reply.([]any)
	for _, r := range replicas {
		r := pairs(r)
		if r["flags"] != "slave" || r["master-link-status"] != "ok" {
			return fmt.Errorf("sentinel %s: replica %s has flags %q and link %q", w.Addr(), r["name"], r["flags"], r["master-link-status"])
		}
	}
	return nil
}

// Close ends everything. It may be called more than once.
func (s *Sentinel) Close() error {
	return errors.Join(closeAll(s.sentinels), closeAll(s.nodes))
}
