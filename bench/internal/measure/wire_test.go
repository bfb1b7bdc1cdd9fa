package measure_test

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/bench/internal/measure"
)

func TestWireUnderstandsCommandsHoweverTheyAreCutIntoWrites(t *testing.T) {
	stream := "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n" + "*2\r\n$4\r\nPTTL\r\n$1\r\nk\r\n" + // one request
		"*4\r\n$8\r\ngetrange\r\n$1\r\nk\r\n$1\r\n0\r\n$1\r\n9\r\n" + "*2\r\n$4\r\npttl\r\n$1\r\nk\r\n" + // one request
		"*2\r\n$4\r\npttl\r\n$1\r\nk\r\n" + // one on its own
		"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$13\r\n*1\r\n$3\r\nGET\r\n\r\n" + // a value that looks like a command
		"*1\r\n$4\r\nPING\r\n" // none
	for _, size := range []int{1, 2, 3, 7, len(stream)} {
		w, conn := new(measure.Wire), listen(t)
		c, err := w.Dial(context.Background(), "tcp", conn)
		if err != nil {
			t.Fatal(err)
		}
		for rest := stream; rest != ""; rest = rest[min(size, len(rest)):] {
			if _, err := io.WriteString(c, rest[:min(size, len(rest))]); err != nil {
				t.Fatal(err)
			}
		}
		s := w.Sent()
		if s.Requests != 4 || s.Commands["get"] != 1 || s.Commands["getrange"] != 1 || s.Commands["pttl"] != 3 || s.Commands["set"] != 1 || s.Commands["ping"] != 1 {
			t.Errorf("in pieces of %d: %+v", size, s)
		}
		if size == len(stream) && s.Writes != 1 {
			t.Errorf("%d writes", s.Writes)
		}
		_ = c.Close()
		if after := w.Sent(); after.Requests != 4 {
			t.Errorf("after the connection was closed: %+v", after)
		}
	}
}

// listen returns an address that takes what it is sent.
func listen(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, c) }()
		}
	}()
	return l.Addr().String()
}

func TestConnectionsAndRedisCountTheSame(t *testing.T) {
	ctx := context.Background()
	s := shared.Server(t)
	var w measure.Wire
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), Dialer: w.Dial})
	defer rdb.Close()
	own := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer own.Close()
	script := redis.NewScript(`for i = 1, 3 do redis.call("GET", KEYS[1]) end return 1`)
	do := func() {
		if err := rdb.Set(ctx, "k", "v", time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		if err := script.Run(ctx, rdb, []string{"k"}).Err(); err != nil {
			t.Fatal(err)
		}
		pipe := rdb.Pipeline()
		pipe.Get(ctx, "k")
		pipe.PTTL(ctx, "k")
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := own.Ping(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	do() // connects, and sends the script
	sent := w.Sent()
	before, err := measure.ReadServer(ctx, own)
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		do()
	}
	after, err := measure.ReadServer(ctx, own)
	if err != nil {
		t.Fatal(err)
	}
	d, server := w.Sent().Minus(sent), after.Minus(before)
	if d.Requests != 30 || d.Writes != 30 {
		t.Errorf("%d requests in %d writes, want 30 in 30: %v", d.Requests, d.Writes, d.Commands)
	}
	if n := server.Scripted(d); n != 30 {
		t.Errorf("scripts ran %d commands, want 30: Redis says %v", n, server.Commands)
	}
	for name, n := range map[string]int64{"set": 10, "evalsha": 10, "pttl": 10, "get": 10} {
		if d.Commands[name] != n {
			t.Errorf("%d times %s were sent, want %d", d.Commands[name], name, n)
		}
	}
	if server.Commands["get"] != 40 {
		t.Errorf("Redis ran GET %d times, want 40", server.Commands["get"])
	}
	if server.CPU <= 0 || server.Version == "" {
		t.Errorf("Redis used %v and is %q", server.CPU, server.Version)
	}
}

func TestCPUGrowsWithWork(t *testing.T) {
	before := measure.CPU()
	for begun := time.Now(); time.Since(begun) < time.Second && measure.CPU() == before; {
	}
	if measure.CPU() <= before {
		t.Error("a second of work used no processor time")
	}
}
