package reports_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/internal/faultproxy"
	"github.com/herdgate/herdgate/internal/redistest"
	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/redisstore"
)

// redis/go-redis#2985, redis/go-redis#2124: the connection broke after SET NX had been executed, the client tried again and was told
// that the key was taken: nobody believed to hold the lock.
func TestAnAnswerThatIsLostOnceCostsNoLease(t *testing.T) {
	for _, step := range []string{"elect", "commit", "renew"} {
		t.Run(step, func(t *testing.T) {
			proxy := redistest.Proxy(t, shared.Server(t).Addr())
			g := open[int](t, onRedis(t, proxy.Addr(), nil), stampede.Options{Policy: cold})
			wants(t, g, "warm", numbered(0).Loader("warm"), 1) // the scripts are there
			eval := faultproxy.Containing("evalsha")
			drop := faultproxy.Drop{N: 1, Close: true, Match: func(request []byte) bool {
				return eval(request) && faultproxy.Containing("cold")(request)
			}}
			loads := 0
			load := func(context.Context) (int, error) {
				loads++
				if step != "elect" {
					proxy.DropReplies(drop)
				}
				if step == "renew" {
					<-time.After(450 * time.Millisecond)
				}
				return 1, nil
			}
			if step == "elect" {
				proxy.DropReplies(drop)
			}
			begun := time.Now()
			wants(t, g, "cold", load, 1)
			atMost(t, begun, 900*time.Millisecond) // less than a lease
			wants(t, g, "cold", forbidden(t), 1)
			if s := g.Stats(); loads != 1 || s.Committed != 2 {
				t.Errorf("%d loads, %d commits", loads, s.Committed-1)
			}
			if n := proxy.Stats().DroppedReplies; n == 0 {
				t.Error("no answer was lost")
			}
		})
	}
}

// redis/rueidis#1010: the caller was cancelled while its lock was being acquired; that came later, and left an orphan.
func TestAnElectionThatComesTooLateLeavesNoLease(t *testing.T) {
	server := redistest.Server(t)
	proxy := redistest.Proxy(t, server.Addr())
	g := open[int](t, onRedis(t, proxy.Addr(), nil), stampede.Options{Name: "late", Lease: time.Minute, Policy: cold})
	wants(t, g, "warm", numbered(0).Loader("warm"), 1)
	proxy.SetDelay(100*time.Millisecond, 100*time.Millisecond)
	crowd(10, func(i int) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond+time.Duration(i)*30*time.Millisecond)
		defer cancel()
		if _, err := g.Get(ctx, "k"+string(rune('a'+i)), numbered(0).Loader("k")); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Get = %v", err)
		}
	})
	proxy.SetDelay(0, 0)
	redistest.Eventually(t, 5*time.Second, func() bool { return len(names(t, server, "late:*:l:*")) == 0 })
}

// redis/rueidis#630, redis/rueidis#653: the client's own short timeouts looked like the caller's deadline.
func TestATimeoutOfTheStoreIsNoErrorOfTheCaller(t *testing.T) {
	proxy := redistest.Proxy(t, shared.Server(t).Addr())
	store := onRedis(t, proxy.Addr(), &redisstore.Options{Timeout: 20 * time.Millisecond})
	g := open[int](t, store, stampede.Options{StoreBudget: 20 * time.Millisecond})
	proxy.SetDelay(15*time.Millisecond, 15*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for range 20 {
		if v, err := g.Get(ctx, "k", numbered(time.Millisecond).Loader("k")); v != 1 || err != nil {
			t.Errorf("Get = %d, %v", v, err)
		}
	}
	if s := g.Stats(); s.Trouble == 0 {
		t.Error("the trouble was not counted")
	}
}

// redis/rueidis#301: to release a lock hung. mike-marcacci/node-redlock#309: it took seconds.
func TestNobodyWaitsForALeaseToBeGivenBack(t *testing.T) {
	server := redistest.Server(t)
	store := onRedis(t, server.Addr(), nil)
	for _, c := range []struct {
		name  string
		say   func(l *stampede.Load[int])
		err   error
		bound time.Duration
	}{
		{"the load fails", func(*stampede.Load[int]) {}, errSource, 100 * time.Millisecond},
		{"nothing is stored", (*stampede.Load[int]).DoNotStore, nil, 100 * time.Millisecond},
		{"nothing is shared", (*stampede.Load[int]).DoNotShare, nil, 100 * time.Millisecond},
		{"a value is stored", func(*stampede.Load[int]) {}, nil, 350 * time.Millisecond}, // the budget of the call
	} {
		t.Run(c.name, func(t *testing.T) {
			redistest.Eventually(t, 5*time.Second, func() bool { return store.Health(t.Context()) == nil })
			g := open[int](t, store, stampede.Options{})
			wants(t, g, "warm", numbered(0).Loader("warm"), 1)
			var ended time.Time
			r, err := g.Fetch(t.Context(), "k", func(_ context.Context, l *stampede.Load[int]) (int, error) {
				c.say(l)
				if err := server.Stop(); err != nil {
					t.Error(err)
				}
				ended = time.Now()
				return 1, c.err
			})
			atMost(t, ended, c.bound)
			if err := server.Cont(); err != nil {
				t.Fatal(err)
			}
			if r.Value != 1 && c.err == nil || !errors.Is(err, c.err) {
				t.Errorf("Fetch = %+v, %v", r, err)
			}
		})
	}
}

// redis/go-redis#2556: without ContextTimeoutEnabled the client does not look at deadlines. erpc/erpc#1113, redis/go-redis#2145: deadlines
// did nothing once a command was under way. ZiggyCreatures/FusionCache#534: a stale value was at hand, and the timeout was ignored.
func TestARedisThatIsSilentCostsNoMoreThanItsBudget(t *testing.T) {
	for _, c := range []struct {
		name  string
		copy  bool
		ends  time.Duration // of the caller; 0: never
		bound time.Duration
	}{
		{"nothing at hand, caller in a hurry", false, 50 * time.Millisecond, 60 * time.Millisecond},
		{"nothing at hand, caller with time", false, 0, 300 * time.Millisecond},
		{"a copy at hand, caller in a hurry", true, 100 * time.Millisecond, 60 * time.Millisecond},
		{"a copy at hand, caller with time", true, 0, 60 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var all []time.Duration
			for range 3 { // the machine may be busy: the best one counts
				proxy := redistest.Proxy(t, shared.Server(t).Addr())
				g := open[int](t, onRedis(t, proxy.Addr(), nil), stampede.Options{Policy: exactly(time.Millisecond, time.Hour)})
				wants(t, g, "k", func(context.Context) (int, error) { return 5, nil }, 5)
				proxy.BlackHole(true)
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if c.ends > 0 {
					ctx, cancel = context.WithTimeout(ctx, c.ends)
				}
				key, want := "cold", 1
				if c.copy {
					key, want = "k", 5
				}
				begun := time.Now()
				v, err := g.Get(ctx, key, numbered(0).Loader(key))
				all = append(all, time.Since(begun))
				if !c.copy && c.ends > 0 {
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("Get = %d, %v", v, err)
					}
				} else if v != want || err != nil {
					t.Errorf("Get = %d, %v", v, err)
				}
				cancel()
			}
			if best := slices.Min(all); best > c.bound {
				t.Errorf("Get took %v, want at most %v", all, c.bound)
			}
		})
	}
}

// redis/go-redis#3190: a ctx that was cancelled marked nodes of a cluster as failed, and reads moved elsewhere.
func TestCancelledCallersAreNoFaultOfACluster(t *testing.T) {
	cluster := redistest.Cluster(t)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	defer rdb.Close()
	const patience = 5 * time.Second // a busy machine is no outage
	store, err := redisstore.New(rdb, &redisstore.Options{Timeout: patience})
	must(t, err)
	defer store.Close()
	g := open[int](t, store, stampede.Options{Policy: cold, StoreBudget: patience, CopyBudget: patience})
	key := func(i int) string { return "k" + string(rune('a'+i%20)) }
	for i := range 20 {
		wants(t, g, key(i), numbered(0).Loader(key(i)), 1)
	}
	crowd(1000, func(i int) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		time.AfterFunc(time.Duration(i%50)*20*time.Microsecond, cancel)
		if v, err := g.Get(ctx, key(i), forbidden(t)); err != nil && !errors.Is(err, context.Canceled) || err == nil && v != 1 {
			t.Errorf("Get = %d, %v", v, err)
		}
	})
	for i := range 20 {
		wants(t, g, key(i), forbidden(t), 1)
	}
	if s := g.Stats(); store.Stats().Outages != 0 || s.Trouble != 0 {
		t.Errorf("%d outages, %d troubles", store.Stats().Outages, s.Trouble)
	}
}
