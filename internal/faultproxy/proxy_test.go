package faultproxy_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/herdgate/herdgate/internal/faultproxy"
	"github.com/herdgate/herdgate/internal/redistest"
)

var shared redistest.Shared

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(shared.Around(m))
}

const (
	soon  = 5 * time.Second
	brief = 50 * time.Millisecond // how long nothing must come where nothing may come
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// peer is a connection that speaks inline commands.
type peer struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, addr string) *peer {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	return &peer{t, conn, bufio.NewReader(conn)}
}

func (p *peer) send(command string) {
	p.t.Helper()
	_, err := io.WriteString(p, command+"\r\n")
	must(p.t, err)
}

// line reads one line of a reply.
func (p *peer) line(timeout time.Duration) (string, error) {
	_ = p.SetReadDeadline(time.Now().Add(timeout))
	line, err := p.r.ReadString('\n')
	return strings.TrimSpace(line), err
}

func (p *peer) want(line string) {
	p.t.Helper()
	if got, err := p.line(soon); err != nil || got != line {
		p.t.Fatalf("got %q, %v; want %q", got, err, line)
	}
}

func (p *peer) wantSilence() {
	p.t.Helper()
	if got, err := p.line(brief); !errors.Is(err, os.ErrDeadlineExceeded) {
		p.t.Fatalf("got %q, %v; want no answer", got, err)
	}
}

func (p *peer) wantClosed() {
	p.t.Helper()
	if got, err := p.line(soon); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		p.t.Fatalf("got %q, %v; want a closed connection", got, err)
	}
}

// setup returns a proxy, a client that goes through it and one that does not, on an empty server.
func setup(t *testing.T) (proxy *faultproxy.Proxy, through, direct *peer) {
	t.Helper()
	s := shared.Server(t)
	proxy = redistest.Proxy(t, s.Addr())
	through, direct = dial(t, proxy.Addr()), dial(t, s.Addr())
	direct.send("FLUSHALL")
	direct.want("+OK")
	through.send("PING")
	through.want("+PONG")
	return proxy, through, direct
}

// eventuallyGets waits until the server has value n at key k.
func eventuallyGets(t *testing.T, direct *peer, n string) {
	t.Helper()
	redistest.Eventually(t, soon, func() bool {
		direct.send("STRLEN k")
		got, err := direct.line(soon)
		return err == nil && got == ":"+n
	})
}

func TestProxyIsTransparentToAClient(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("resp%d", protocol), func(t *testing.T) {
			proxy := redistest.Proxy(t, shared.Server(t).Addr())
			client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), Protocol: protocol})
			defer client.Close()
			ctx := t.Context()

			big := strings.Repeat("x\r\n", 100_000)
			must(t, client.HSet(ctx, "h", "a", big, "b", "").Err())
			if got, err := client.HGetAll(ctx, "h").Result(); err != nil || got["a"] != big || len(got) != 2 {
				t.Errorf("%d fields, %v", len(got), err)
			}
			if _, err := client.Get(ctx, "none").Result(); !errors.Is(err, redis.Nil) {
				t.Errorf("got %v", err)
			}
			sub := client.Subscribe(ctx, "c")
			defer sub.Close()
			_, err := sub.Receive(ctx)
			must(t, err)
			must(t, client.Publish(ctx, "c", "hello").Err())
			if m, err := sub.ReceiveMessage(ctx); err != nil || m.Payload != "hello" {
				t.Errorf("%v, %v", m, err)
			}
		})
	}
}

func TestStatsCountConnectionsFramesAndBytes(t *testing.T) {
	proxy, through, _ := setup(t)
	want := faultproxy.Stats{Accepted: 1, Open: 1, Requests: 1, Replies: 1, BytesToServer: 6, BytesToClient: 7}
	if got := proxy.Stats(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	must(t, through.Close())
	redistest.Eventually(t, soon, func() bool { return proxy.Stats().Open == 0 })
}

func TestDelayHoldsRequestsAndRepliesOfAPipelineSideBySide(t *testing.T) {
	proxy, through, _ := setup(t)
	for _, d := range [][2]time.Duration{{brief, 0}, {0, brief}} {
		proxy.SetDelay(d[0], d[1])
		start := time.Now()
		through.send(strings.Repeat("PING\r\n", 99) + "PING")
		for range 100 {
			through.want("+PONG")
		}
		if took := time.Since(start); took < brief || took > 50*brief {
			t.Errorf("delays %v: took %v", d, took)
		}
	}
	proxy.SetDelay(0, 0)
	through.send("PING")
	through.want("+PONG")
}

func TestDelayedRequestArrivesThoughItsClientHasLeft(t *testing.T) {
	proxy, through, direct := setup(t)
	proxy.SetDelay(brief, 0)
	through.send("SET k v")
	must(t, through.Close())
	eventuallyGets(t, direct, "1")
}

func TestBlackHoleForwardsAndAnswersNothing(t *testing.T) {
	proxy, through, direct := setup(t)
	proxy.BlackHole(true)
	through.send("SET k v")
	through.wantSilence()
	late := dial(t, proxy.Addr())
	late.send("SET k v")
	late.wantSilence()

	proxy.BlackHole(false)
	through.send("SET k v")
	through.wantSilence() // what came before is lost, so this cannot arrive
	late.send("SET k v")
	late.wantSilence()
	direct.send("EXISTS k")
	direct.want(":0")
	fresh := dial(t, proxy.Addr())
	fresh.send("PING")
	fresh.want("+PONG")
}

func TestBlackHoleHidesTheEndOfTheServer(t *testing.T) {
	s := redistest.Server(t)
	proxy := redistest.Proxy(t, s.Addr())
	through := dial(t, proxy.Addr())
	through.send("PING")
	through.want("+PONG")
	proxy.BlackHole(true)
	must(t, s.Kill())
	through.wantSilence()
	must(t, through.Close())
	redistest.Eventually(t, soon, func() bool { return proxy.Stats().Open == 0 })
}

func TestSwallowedRepliesBelongToRequestsThatWereDone(t *testing.T) {
	proxy, through, direct := setup(t)
	proxy.SwallowReplies(true)
	through.send("SET k v")
	through.wantSilence()
	eventuallyGets(t, direct, "1")

	proxy.SwallowReplies(false)
	through.send("APPEND k w")
	through.wantSilence() // what came before is lost, so this cannot arrive
	eventuallyGets(t, direct, "2")
	if n := proxy.Stats().DroppedReplies; n != 2 {
		t.Errorf("%d replies dropped", n)
	}
	fresh := dial(t, proxy.Addr())
	fresh.send("GET k")
	fresh.want("$2")
}

func TestDroppedReplyLeavesTheClientWaiting(t *testing.T) {
	proxy, through, direct := setup(t)
	proxy.DropReplies(faultproxy.Drop{N: 1})
	through.send("SET k v")
	through.wantSilence()
	eventuallyGets(t, direct, "1")
	fresh := dial(t, proxy.Addr())
	fresh.send("PING")
	fresh.want("+PONG")
}

func TestDroppedReplyMayCloseTheConnection(t *testing.T) {
	proxy, through, direct := setup(t)
	proxy.DropReplies(faultproxy.Drop{N: 2, Close: true})
	through.send("APPEND k v")
	through.wantClosed()
	again := dial(t, proxy.Addr())
	again.send("APPEND k v")
	again.wantClosed()
	third := dial(t, proxy.Addr())
	third.send("APPEND k v")
	third.want(":3")
	eventuallyGets(t, direct, "3")
}

func TestDropIsLimitedToMatchingRequests(t *testing.T) {
	proxy, through, _ := setup(t)
	proxy.DropReplies(faultproxy.Drop{N: 1, Match: faultproxy.Containing("APPEND"), Close: true})
	through.send("SET k v\r\nGET k\r\nappend k v")
	through.want("+OK")
	through.want("$1")
	through.want("v")
	through.wantClosed()
}

func TestDropCanBeRevoked(t *testing.T) {
	proxy, through, _ := setup(t)
	proxy.DropReplies(faultproxy.Drop{N: 5})
	proxy.DropReplies(faultproxy.Drop{})
	through.send("PING")
	through.want("+PONG")
}

func TestCloseConnsClosesThemAllAndAcceptsNewOnes(t *testing.T) {
	proxy, through, _ := setup(t)
	proxy.CloseConns()
	through.wantClosed()
	fresh := dial(t, proxy.Addr())
	fresh.send("PING")
	fresh.want("+PONG")
}

func TestRefusedConnectionsDoNotDisturbOldOnes(t *testing.T) {
	proxy, through, _ := setup(t)
	must(t, proxy.RefuseNew(true))
	must(t, proxy.RefuseNew(true))
	if _, err := net.Dial("tcp", proxy.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v", err)
	}
	through.send("PING")
	through.want("+PONG")
	must(t, proxy.RefuseNew(false))
	must(t, proxy.RefuseNew(false))
	fresh := dial(t, proxy.Addr())
	fresh.send("PING")
	fresh.want("+PONG")
}

func TestClientIsHungUpOnWhenTheServerIsGone(t *testing.T) {
	s := redistest.Server(t)
	proxy := redistest.Proxy(t, s.Addr())
	must(t, s.Kill())
	dial(t, proxy.Addr()).wantClosed()
}

func TestCapturedRequestIsDoneAgainLate(t *testing.T) {
	proxy, through, direct := setup(t)
	c := proxy.Capture(faultproxy.Containing("append"))
	if _, err := c.Replay(t.Context()); err == nil || c.Request() != nil {
		t.Error("something was captured before anything was sent")
	}
	through.send("SET k v")
	through.want("+OK")
	through.send("APPEND k v")
	through.want(":2")
	through.send("APPEND k vvv")
	through.want(":5")
	<-c.Captured()
	if got := string(c.Request()); got != "APPEND k v\r\n" {
		t.Errorf("captured %q", got)
	}
	must(t, through.Close())
	reply, err := c.Replay(t.Context())
	if err != nil || string(reply) != ":6\r\n" {
		t.Errorf("reply %q, %v", reply, err)
	}
	eventuallyGets(t, direct, "6")
}

func TestInterceptedRequestIsDoneOnlyLate(t *testing.T) {
	proxy, through, direct := setup(t)
	c := proxy.Intercept(faultproxy.Containing("SET"))
	through.send("SET k v")
	<-c.Captured()
	through.wantSilence()
	direct.send("EXISTS k")
	direct.want(":0")
	reply, err := c.Replay(t.Context())
	if err != nil || string(reply) != "+OK\r\n" {
		t.Errorf("reply %q, %v", reply, err)
	}
	eventuallyGets(t, direct, "1")
}

func TestReplayEndsWithItsContext(t *testing.T) {
	s := redistest.Server(t)
	proxy := redistest.Proxy(t, s.Addr())
	c := proxy.Capture(faultproxy.Containing("PING"))
	through := dial(t, proxy.Addr())
	through.send("PING")
	through.want("+PONG")
	must(t, s.Stop())
	ctx, cancel := context.WithTimeout(t.Context(), brief)
	defer cancel()
	if _, err := c.Replay(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestCloseEndsEverything(t *testing.T) {
	proxy, through, _ := setup(t)
	before := goleak.IgnoreCurrent()
	other, err := faultproxy.New(shared.Server(t).Addr())
	must(t, err)
	proxy.SetDelay(time.Hour, 0)
	through.send("PING")
	p := dial(t, other.Addr())
	p.send("PING")
	p.want("+PONG")
	other.BlackHole(true)
	dial(t, other.Addr())
	redistest.Eventually(t, soon, func() bool { return other.Stats().Accepted == 2 })
	must(t, other.Close())
	must(t, other.Close())
	if err := other.RefuseNew(false); err == nil {
		t.Error("a closed proxy listens again")
	}
	p.wantClosed()
	goleak.VerifyNone(t, before)
}
