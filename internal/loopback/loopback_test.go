package loopback_test

import (
	"net"
	"testing"

	"github.com/herdgate/herdgate/internal/loopback"
)

func TestFreePortCanBeListenedOnAndSoCanItsBusPort(t *testing.T) {
	port, err := loopback.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []int{port, port + loopback.BusOffset} {
		l, err := net.Listen("tcp", loopback.Addr(p))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
	}
	if port+loopback.BusOffset >= 1<<15 {
		t.Errorf("port %d is too high", port)
	}
}

func TestListenGivesDifferentPortsOnLoopback(t *testing.T) {
	seen := map[string]bool{}
	for range 10 {
		l, err := loopback.Listen()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		host, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil || host != "127.0.0.1" || seen[port] {
			t.Fatalf("address %v, %v; seen %v", l.Addr(), err, seen)
		}
		seen[port] = true
	}
}
