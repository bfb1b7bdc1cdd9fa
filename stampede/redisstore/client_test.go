package redisstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/internal/redistest"
	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/redisstore"
)

func TestNewRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rdb  redis.UniversalClient
		opt  *redisstore.Options
		want []string
	}{
		"nil":                {nil, nil, []string{"is nil"}},
		"nil client":         {(*redis.Client)(nil), nil, []string{"is nil"}},
		"nil cluster client": {(*redis.ClusterClient)(nil), nil, []string{"is nil"}},
		"ring":               {redis.NewRing(&redis.RingOptions{}), nil, []string{"Ring"}},
		"client-side cache": {
			redis.NewClient(&redis.Options{ClientSideCacheConfig: &redis.ClientSideCacheConfig{MaxEntries: 1}}), nil,
			[]string{"client side"},
		},
		"other": {struct{ redis.UniversalClient }{}, nil, []string{"struct"}},
		"all faults": {
			nil, &redisstore.Options{Timeout: -1, MaxConns: -1}, []string{"Timeout", "MaxConns", "is nil"},
		},
	} {
		s, err := redisstore.New(c.rdb, c.opt)
		if err == nil {
			_ = s.Close()
			t.Errorf("%s: accepted", name)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not mention %q", name, err, want)
			}
		}
		switch rdb := c.rdb.(type) {
		case *redis.Ring:
			_ = rdb.Close()
		case *redis.Client:
			if rdb != nil {
				_ = rdb.Close()
			}
		}
	}
}

// The given client keeps its settings and its connections, and is as open after Close as before. That its
// pool is full is no matter.
func TestGivenClientIsLeftAlone(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), PoolSize: 1, PipelinePoolSize: -1})
	defer rdb.Close()
	before := *rdb.Options()
	s, err := redisstore.New(rdb, patient)
	must(t, err)
	var wg sync.WaitGroup
	wg.Go(func() { rdb.BLPop(t.Context(), 10*time.Second, "list") })
	redistest.Eventually(t, 5*time.Second, func() bool { return rdb.PoolStats().TotalConns == 1 })
	for step, do := range steps {
		if err := do(t.Context(), s, stampede.Key{Space: "test", Key: "k"}); err != nil {
			t.Errorf("%s: %v", step, err)
		}
	}
	must(t, s.Close())
	must(t, s.Close())
	for step, do := range steps {
		if err := do(t.Context(), s, stampede.Key{Space: "test", Key: "k"}); !errors.Is(err, redisstore.ErrClosed) {
			t.Errorf("%s after Close: %v", step, err)
		}
	}
	_, err = srv.Do(t.Context(), "RPUSH", "list", "x")
	must(t, err)
	wg.Wait()
	must(t, rdb.Ping(t.Context()).Err())
	after := *rdb.Options()
	if before.ReadTimeout != after.ReadTimeout || before.MaxRetries != after.MaxRetries || before.PoolSize != after.PoolSize ||
		before.ContextTimeoutEnabled != after.ContextTimeoutEnabled {
		t.Error("the client's options were changed")
	}
}

func TestReplicaRoutingIsNotTakenOver(t *testing.T) {
	t.Parallel()
	c := shared.Cluster(t)
	s := open(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), ReadOnly: true, RouteRandomly: true}), patient)
	for i := range 50 {
		key := stampede.Key{Space: "routing", Key: strings.Repeat("k", i+1)}
		must(t, s.Set(t.Context(), key, value("x")))
		if e, err := s.Read(t.Context(), key); err != nil || string(e.Data) != "x" {
			t.Fatalf("read after set: %+v, %v", e, err)
		}
	}
}

func TestBoundedDialerReturnsInTimeAndClosesLateConnections(t *testing.T) {
	t.Parallel()
	late := make(chan struct{})
	client, server := net.Pipe()
	defer server.Close()
	dial := redisstore.BoundedDialer(func(context.Context, string, string) (net.Conn, error) {
		<-late
		return client, nil
	}, 20*time.Millisecond)
	began := time.Now()
	conn, err := dial(t.Context(), "tcp", "x")
	var op *net.OpError
	if conn != nil || !errors.As(err, &op) || op.Op != "dial" {
		t.Errorf("%v, %v", conn, err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("took %v", took)
	}
	close(late)
	_ = server.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := server.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the late connection was not closed: %v", err)
	}
}

// log is a slog text log that a test can read.
type log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func TestFaultsOfTheSetUpAreLoggedOnce(t *testing.T) {
	t.Parallel()
	var out log
	opt := &redisstore.Options{Timeout: patient.Timeout, Logger: slog.New(slog.NewTextHandler(&out, nil))}
	logged := func(what string) {
		t.Helper()
		redistest.Eventually(t, 5*time.Second, func() bool { return strings.Contains(out.String(), what) })
	}
	srv := redistest.Server(t, "--maxmemory", "100mb", "--maxmemory-policy", "noeviction")
	r := newRig(t, srv.Addr(), opt)
	logged("evicts nothing")

	r.do("ACL", "SETUSER", "poor", "on", ">secret", "~test:*", "+getrange", "+pttl", "+hello", "+client", "+ping")
	poor := open(t, redis.NewClient(&redis.Options{Addr: srv.Addr(), Username: "poor", Password: "secret"}), opt)
	for range 3 {
		if _, err := poor.Elect(t.Context(), r.key(), stampede.Ballot{Token: stampede.NewToken(), Length: time.Second}); err == nil {
			t.Error("elected without the right to")
		}
	}
	logged("lacks a right")
	if _, err := poor.Read(t.Context(), r.key()); err != nil {
		t.Error(err)
	}

	r.do("REPLICAOF", "127.0.0.1", "1")
	newRig(t, srv.Addr(), opt)
	logged("is a replica")
	for range 3 {
		_ = r.Set(t.Context(), r.key(), value("x"))
	}
	logged("refuses writes")
	for _, what := range []string{"evicts nothing", "lacks a right", "is a replica", "refuses writes"} {
		// The second and third store look at the server as well.
		if n := strings.Count(out.String(), what); n > 3 || n > 1 && what != "evicts nothing" {
			t.Errorf("%q is logged %d times", what, n)
		}
	}
}

// What docs/operations.md says is enough.
func TestMinimalRightsSuffice(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t)
	r := newRig(t, srv.Addr(), patient)
	r.do("ACL", "SETUSER", "app", "on", ">secret", "resetchannels", "~test:*", "~test@*", "&test:*", "&test@*",
		"+get", "+pttl", "+set", "+del", "+unlink", "+pexpire", "+getrange", "+setrange", "+time",
		"+zmscore", "+zadd", "+zrem", "+zcard", "+zrange", "+zremrangebyrank",
		"+eval", "+evalsha", "+publish", "+subscribe", "+unsubscribe", "+ping", "+hello")
	s := open(t, redis.NewClient(&redis.Options{Addr: srv.Addr(), Username: "app", Password: "secret"}), &redisstore.Options{Timeout: patient.Timeout, MaxTags: 2})
	key := r.key()
	a := &rig{t, s, r.rdb}
	w := a.watch(key)
	a.commit(key, a.lead(key), "x", stampede.Accepted)
	a.told(w)
	for step, do := range steps {
		if err := do(t.Context(), s, key); err != nil {
			t.Errorf("%s: %v", step, err)
		}
	}
	a.ok(s.Delete(t.Context(), key))
	a.ok(a.fail(key, a.lead(key), time.Millisecond))
	a.ok(s.Delete(t.Context(), key))
	a.ok(s.Release(t.Context(), key, a.lead(key), stampede.Pass{For: time.Millisecond}))
	lease := a.lead(r.key())
	if h, err := s.Renew(t.Context(), key, lease, time.Second); err != nil {
		t.Error(h, err)
	}
	_ = s.Drops("test", func(string) {})
	_ = s.TagDrops("test", func(string) {})
	for range 3 { // the third pushes out the first
		a.tagTime("test")
		a.expireTag("test", a.key().Key)
	}
	versioned := stampede.Key{Space: "test@v2", Key: key.Key}
	for step, do := range steps {
		if err := do(t.Context(), s, versioned); err != nil {
			t.Errorf("%s, with a version: %v", step, err)
		}
	}
	_ = s.Drops(versioned.Space, func(string) {})
	for _, denied := range r.do("ACL", "LOG").([]any) {
		// Both are only tried: who the client is, and what kind of server this is.
		if text := fmt.Sprint(denied); !strings.Contains(text, "client|") && !strings.Contains(text, "info") {
			t.Errorf("denied: %s", text)
		}
	}
}
