package e2e_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/internal/faultproxy"
	"github.com/herdgate/herdgate/internal/redisproc"
	"github.com/herdgate/herdgate/internal/redistest"
)

// Whatever happens to Redis: no caller of Get or Fetch sees an error of it or waits for it beyond the budget, the source is
// protected, and when Redis is back so are the pods.
func TestTroubleWithRedisReachesNoCaller(t *testing.T) {
	for _, tr := range []trouble{
		{name: "connections are refused", start: refused, changes: allFail},
		{name: "the network is cut", start: blackHoled, changes: allFail},
		{name: "dials hang", start: hangingDials, changes: allFail},
		{name: "the server is stopped", start: stopped, changes: allFail},
		{name: "the server is slower than any budget", start: slower(600 * time.Millisecond), changes: allFail},
		{name: "the server is slower than a copy is worth", start: slower(100 * time.Millisecond), changes: allEither},
		{name: "the server is slow but within budget", start: slower(8 * time.Millisecond), changes: allWork},
		{name: "the server is read-only", start: readOnly, changes: wants{fails, fails, fails, works}},
		{name: "the memory is full", start: fullMemory, changes: wants{fails, works, works, works}},
		{name: "the server cannot persist", start: cannotPersist, changes: wants{fails, fails, fails, works}},
		{name: "scripts are flushed", start: scriptFlush, changes: allWork},
		{name: "connections are killed", start: killed("normal"), changes: allEither},
		{name: "subscriptions are killed", start: killed("pubsub"), changes: allWork},
		{name: "the user's pool is exhausted", start: exhaustedPool, changes: allWork},
		{name: "the store's own connections are in use", start: fewConns, changes: allEither},
		{name: "the server takes no more clients", start: tooManyClients, changes: allFail},
		{name: "the server restarts empty", start: restart, changes: allFail, losesData: true},
	} {
		t.Run(strings.ReplaceAll(tr.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			tr.run(t)
		})
	}
}

// single is a rig of one server; addr is where clients connect to.
func single(s *redisproc.Server, addr string) *rig {
	return &rig{
		connect: func(name string) redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: addr, ClientName: name})
		},
		masters: func() []*redisproc.Server { return []*redisproc.Server{s} },
	}
}

// proxied is a rig of one server behind a proxy.
func proxied(t *testing.T) (*rig, *faultproxy.Proxy) {
	s := redistest.Server(t)
	p := redistest.Proxy(t, s.Addr())
	return single(s, p.Addr()), p
}

func refused(t *testing.T) *rig {
	r, p := proxied(t)
	r.begin = func() error {
		err := p.RefuseNew(true)
		p.CloseConns()
		return err
	}
	r.heal = func() error { return p.RefuseNew(false) }
	return r
}

func blackHoled(t *testing.T) *rig {
	r, p := proxied(t)
	r.begin = func() error {
		p.BlackHole(true)
		return nil
	}
	r.heal = func() error {
		p.BlackHole(false)
		p.CloseConns() // what was lost on them is lost: as after a cut, a reset tells the ends
		return nil
	}
	return r
}

// hangingDials is a network that swallows the first packet of each connection. The user's dialer does not even look at its ctx.
func hangingDials(t *testing.T) *rig {
	r, p := proxied(t)
	var hole atomic.Pointer[chan struct{}]
	r.connect = func(name string) redis.UniversalClient {
		return redis.NewClient(&redis.Options{
			ClientName: name,
			Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
				if c := hole.Load(); c != nil {
					<-*c
					return nil, errors.New("no route to host")
				}
				var d net.Dialer
				return d.DialContext(ctx, "tcp", p.Addr())
			},
		})
	}
	r.begin = func() error {
		c := make(chan struct{})
		hole.Store(&c)
		return nil
	}
	r.again = p.CloseConns // of dials, too, that had just passed
	r.heal = func() error {
		close(*hole.Swap(nil))
		return nil
	}
	return r
}

func stopped(t *testing.T) *rig {
	s := redistest.Server(t)
	r := single(s, s.Addr())
	r.begin, r.heal = s.Stop, s.Cont
	return r
}

// slower delays what is sent to the server and what it answers, by d in all.
func slower(d time.Duration) func(t *testing.T) *rig {
	return func(t *testing.T) *rig {
		r, p := proxied(t)
		delay := func(d time.Duration) func() error {
			return func() error {
				p.SetDelay(d/2, d/2)
				return nil
			}
		}
		r.begin, r.heal = delay(d), delay(0)
		return r
	}
}

// commands returns a func that sends commands, one a line, to a server.
func commands(t *testing.T, s *redisproc.Server, lines ...string) func() error {
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		for _, line := range lines {
			if _, err := s.Do(ctx, strings.Split(line, " ")...); err != nil {
				return err
			}
		}
		return nil
	}
}

func readOnly(t *testing.T) *rig {
	s := redistest.Server(t)
	r := single(s, s.Addr())
	r.begin = commands(t, s, "REPLICAOF 127.0.0.1 1") // a master that is not there
	r.heal = commands(t, s, "REPLICAOF NO ONE")
	return r
}

func fullMemory(t *testing.T) *rig {
	s := redistest.Server(t, "--maxmemory-policy", "noeviction")
	r := single(s, s.Addr())
	r.begin = commands(t, s, "CONFIG SET maxmemory 1")
	r.heal = commands(t, s, "CONFIG SET maxmemory 0")
	return r
}

// cannotPersist puts a directory where the snapshot should go.
func cannotPersist(t *testing.T) *rig {
	s := redistest.Server(t)
	r := single(s, s.Addr())
	dir, _ := do(t, s, "CONFIG", "GET", "dir").([]any)
	file := filepath.Join(dir[1].(string), "dump.rdb")
	snapshot := func(want string) {
		do(t, s, "CONFIG", "SET", "save", "3600 1000000") // else nobody would mind
		do(t, s, "BGSAVE")
		redistest.Eventually(t, 5*time.Second, func() bool {
			info, _ := do(t, s, "INFO", "persistence").(string)
			return strings.Contains(info, "rdb_last_bgsave_status:"+want)
		})
	}
	r.begin = func() error {
		if err := os.Mkdir(file, 0o700); err != nil {
			return err
		}
		snapshot("err")
		return nil
	}
	r.heal = func() error {
		if err := os.Remove(file); err != nil {
			return err
		}
		snapshot("ok")
		return nil
	}
	return r
}

func nop() error { return nil }

func scriptFlush(t *testing.T) *rig {
	s := redistest.Server(t)
	r := single(s, s.Addr())
	r.begin, r.heal = nop, nop
	r.again = func() { do(t, s, "SCRIPT", "FLUSH") }
	return r
}

func killed(kind string) func(*testing.T) *rig {
	return func(t *testing.T) *rig {
		s := redistest.Server(t)
		r := single(s, s.Addr())
		r.begin, r.heal = nop, nop
		r.again = func() { do(t, s, "CLIENT", "KILL", "TYPE", kind) }
		return r
	}
}

// exhaustedPool is a user whose own commands take all connections that the user's client may open.
func exhaustedPool(t *testing.T) *rig {
	s := redistest.Server(t)
	r := single(s, s.Addr())
	ctx, cancel := context.WithCancel(context.Background())
	var all []*redis.Client
	r.connect = func(name string) redis.UniversalClient {
		c := redis.NewClient(&redis.Options{Addr: s.Addr(), ClientName: name, PoolSize: 2, MaxActiveConns: 2, ContextTimeoutEnabled: true})
		all = append(all, c)
		return c
	}
	done := make(chan struct{})
	users := 0
	r.begin = func() error {
		for _, c := range all {
			for range 4 {
				users++
				go func() {
					defer func() { done <- struct{}{} }()
					for ctx.Err() == nil {
						c.BLPop(ctx, time.Second, "queue")
					}
				}()
			}
		}
		return nil
	}
	r.heal = func() error {
		cancel()
		for range users {
			<-done
		}
		return nil
	}
	return r
}

// fewConns is a store that may have one request under way besides reads, each of which takes long.
func fewConns(t *testing.T) *rig {
	r, p := proxied(t)
	r.store.MaxConns = 1
	r.begin = func() error {
		p.SetDelay(20*time.Millisecond, 20*time.Millisecond)
		return nil
	}
	r.heal = func() error {
		p.SetDelay(0, 0)
		return nil
	}
	return r
}

// tooManyClients lets a server close all connections and take none.
func tooManyClients(t *testing.T) *rig {
	s := redistest.Server(t)
	r := single(s, s.Addr())
	admin := redis.NewClient(&redis.Options{Addr: s.Addr(), MinIdleConns: 1, PoolSize: 1})
	t.Cleanup(func() { admin.Close() })
	limit := func(n string) error { return admin.ConfigSet(context.Background(), "maxclients", n).Err() }
	must(t, limit("10000"))
	r.begin = func() error {
		err := limit("1")
		return errors.Join(err, admin.Do(context.Background(), "CLIENT", "KILL", "TYPE", "normal").Err(),
			admin.Do(context.Background(), "CLIENT", "KILL", "TYPE", "pubsub").Err())
	}
	r.heal = func() error { return limit("10000") }
	return r
}

func restart(t *testing.T) *rig {
	s := redistest.Server(t)
	r := single(s, s.Addr())
	r.begin, r.heal = s.Kill, s.Restart
	return r
}
