package redisproc

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// replicationArgs make a replica follow its master without the usual pauses.
var replicationArgs = []string{"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", "--replica-announce-ip", "127.0.0.1"}

// startAll starts n servers at once. When one fails, none is left.
func startAll(n int, specOf func(i int) spec) ([]*Server, error) {
	if _, err := findBinary(specOf(0).Binary); err != nil {
		return nil, err // once, not n times
	}
	servers := make([]*Server, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { servers[i], errs[i] = start(specOf(i)) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, closeAll(servers))
	}
	return servers, nil
}

// closeAll closes servers at once; nil ones are left out.
func closeAll(servers []*Server) error {
	errs := make([]error, len(servers))
	var wg sync.WaitGroup
	for i, s := range servers {
		if s != nil {
			wg.Go(func() { errs[i] = s.Close() })
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

// byAddr returns the server that listens on addr, or nil.
func byAddr(servers []*Server, addr string) *Server {
	for _, s := range servers {
		if s.Addr() == addr {
			return s
		}
	}
	return nil
}

func addrsOf(servers []*Server) []string {
	addrs := make([]string, len(servers))
	for i, s := range servers {
		addrs[i] = s.Addr()
	}
	return addrs
}

// running returns the servers that can be asked: those that neither ended nor are stopped.
func running(servers []*Server) []*Server {
	var alive []*Server
	for _, s := range servers {
		if s.responsive() {
			alive = append(alive, s)
		}
	}
	return alive
}

// isMaster reports as an error that s does not take itself for a master.
func isMaster(ctx context.Context, s *Server) error {
	return hasReplication(ctx, s, "role", "master")
}

// inSync reports as an error that s does not follow a master.
func inSync(ctx context.Context, s *Server) error {
	return errors.Join(hasReplication(ctx, s, "role", "slave"), hasReplication(ctx, s, "master_link_status", "up"))
}

func hasReplication(ctx context.Context, s *Server, name, want string) error {
	info, err := doString(ctx, s.Addr(), "INFO", "replication")
	if err != nil {
		return err
	}
	if got := field(info, name); got != want {
		return fmt.Errorf("%s: %s is %q, not %q", s.Addr(), name, got, want)
	}
	return nil
}
