package redisproc_test

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/herdgate/herdgate/internal/loopback"
	"github.com/herdgate/herdgate/internal/redisproc"
	"github.com/herdgate/herdgate/internal/redistest"
)

func TestPortOfAServerThatDoesNotRunIsKeptForIt(t *testing.T) {
	for name, end := range map[string]func(*redisproc.Server) error{
		"killed": (*redisproc.Server).Kill, "shut down": (*redisproc.Server).Shutdown,
	} {
		s := redistest.Server(t)
		// The server's side is closed first, and lingers.
		conn, err := net.Dial("tcp", s.Addr())
		must(t, err)
		must(t, end(s))
		must(t, conn.Close())
		must(t, end(s)) // a second time

		if conn, err := net.Dial("tcp", s.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: dialling: %v, %v", name, conn, err)
		}
		if err := listen(s.Addr()); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("%s: another may listen: %v", name, err)
		}
		must(t, s.Restart())
		if _, err := s.Do(t.Context(), "PING"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		must(t, end(s))
		must(t, s.Close())
		if err := listen(s.Addr()); err != nil {
			t.Errorf("%s: not given back: %v", name, err)
		}
	}
}

func TestBusPortOfAClusterNodeThatDoesNotRunIsKeptForIt(t *testing.T) {
	c := redistest.Cluster(t)
	master, err := c.KillMaster(t.Context(), "k")
	must(t, err)
	_, port, _ := strings.Cut(master.Addr(), ":")
	n, err := strconv.Atoi(port)
	must(t, err)
	if err := listen(loopback.Addr(n + loopback.BusOffset)); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("another may listen: %v", err)
	}
	must(t, master.Restart())
	redistest.Eventually(t, 5*time.Second, func() bool {
		_, err := master.Do(t.Context(), "PING")
		return err == nil
	})
}

// listen reports whether one can listen on addr.
func listen(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	return l.Close()
}
