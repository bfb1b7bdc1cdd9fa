package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/internal/faultproxy"
	"github.com/herdgate/herdgate/internal/redistest"
	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/redisstore"
)

// steps are all methods that ask Redis.
var steps = map[string]func(context.Context, *redisstore.Store, stampede.Key) error{
	"Read": func(ctx context.Context, s *redisstore.Store, k stampede.Key) error {
		_, err := s.Read(ctx, k)
		return err
	},
	"Elect": func(ctx context.Context, s *redisstore.Store, k stampede.Key) error {
		_, err := s.Elect(ctx, k, stampede.Ballot{Token: stampede.NewToken(), Length: time.Second})
		return err
	},
	"Commit": func(ctx context.Context, s *redisstore.Store, k stampede.Key) error {
		_, err := s.Commit(ctx, k, stampede.NewStamp(), value("x"))
		return err
	},
	"Renew": func(ctx context.Context, s *redisstore.Store, k stampede.Key) error {
		_, err := s.Renew(ctx, k, stampede.NewStamp(), time.Second)
		return err
	},
	"Fail": func(ctx context.Context, s *redisstore.Store, k stampede.Key) error {
		_, err := s.Fail(ctx, k, stampede.NewStamp(), stampede.Backoff{First: time.Second})
		return err
	},
	"Release": func(ctx context.Context, s *redisstore.Store, k stampede.Key) error {
		return s.Release(ctx, k, stampede.NewStamp(), stampede.Pass{})
	},
	"Set":    func(ctx context.Context, s *redisstore.Store, k stampede.Key) error { return s.Set(ctx, k, value("x")) },
	"Delete": func(ctx context.Context, s *redisstore.Store, k stampede.Key) error { return s.Delete(ctx, k) },
	"Expire": func(ctx context.Context, s *redisstore.Store, k stampede.Key) error { return s.Expire(ctx, k) },
	"Health": func(ctx context.Context, s *redisstore.Store, _ stampede.Key) error { return s.Health(ctx) },
}

// slack is what a busy machine may add to a deadline.
const slack = 120 * time.Millisecond

// Every method returns by its ctx's deadline, and when that is far, by the Store's own; when its ctx is
// cancelled, at once unless it is a read alone. Reports: redis/go-redis#2145, erpc/erpc#1113.
func TestDeadlinesHoldWhateverRedisDoes(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	for name, setUp := range map[string]func(t *testing.T) (s *redisstore.Store, fault func()){
		"stopped": func(t *testing.T) (*redisstore.Store, func()) {
			srv := redistest.Server(t)
			return newRig(t, srv.Addr(), nil).Store, func() { must(t, srv.Stop()) }
		},
		"black hole": func(t *testing.T) (*redisstore.Store, func()) {
			p := redistest.Proxy(t, shared.Server(t).Addr())
			return newRig(t, p.Addr(), nil).Store, func() { p.BlackHole(true) }
		},
		"refused": func(t *testing.T) (*redisstore.Store, func()) {
			p := redistest.Proxy(t, shared.Server(t).Addr())
			return newRig(t, p.Addr(), nil).Store, func() { must(t, p.RefuseNew(true)); gone(t, p) }
		},
		"dial hangs": func(t *testing.T) (*redisstore.Store, func()) {
			p := redistest.Proxy(t, shared.Server(t).Addr())
			var hangs atomic.Bool
			rdb := redis.NewClient(&redis.Options{
				Addr: p.Addr(),
				Dialer: func(_ context.Context, network, addr string) (net.Conn, error) { // heeds no ctx
					if hangs.Load() {
						<-hang
						return nil, errors.New("hung")
					}
					return net.Dial(network, addr)
				},
			})
			return open(t, rdb, nil), func() { hangs.Store(true); gone(t, p) }
		},
	} {
		for _, warm := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/warm=%v", name, warm), func(t *testing.T) {
				t.Parallel()
				s, fault := setUp(t)
				k := stampede.Key{Space: "deadline", Key: t.Name()}
				if warm {
					redistest.Eventually(t, 5*time.Second, func() bool { _, err := s.Read(t.Context(), k); return err == nil })
					must(t, s.Set(t.Context(), k, value("x")))
				}
				fault()
				// A connection may have been on its way.
				redistest.Eventually(t, 5*time.Second, func() bool { return s.Health(t.Context()) != nil })
				for step, do := range steps {
					for _, limit := range []time.Duration{20 * time.Millisecond, 200 * time.Millisecond, time.Minute} {
						ctx, cancel := context.WithTimeout(t.Context(), limit)
						began := time.Now()
						err := do(ctx, s, k)
						took := time.Since(began)
						cancel()
						if want := min(limit, redisstore.DefaultTimeout) + slack; took > want {
							t.Errorf("%s with %v took %v", step, limit, took)
						}
						if err == nil {
							t.Errorf("%s succeeded", step)
						}
					}
				}
			})
		}
	}
}

// gone closes the connections of p, and those that were just being accepted.
func gone(t testing.TB, p *faultproxy.Proxy) {
	t.Helper()
	calm := 0
	redistest.Eventually(t, 5*time.Second, func() bool {
		p.CloseConns()
		if p.Stats().Open > 0 {
			calm = 0
		}
		calm++
		return calm > 3
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestDeadlineWithoutDoneHolds(t *testing.T) {
	t.Parallel()
	p := redistest.Proxy(t, shared.Server(t).Addr())
	r := newRigVia(t, shared.Server(t).Addr(), p.Addr(), nil)
	p.BlackHole(true)
	for step, do := range steps {
		began := time.Now()
		if err := do(onlyDeadline{context.Background(), began.Add(20 * time.Millisecond)}, r.Store, r.key()); err == nil {
			t.Errorf("%s succeeded", step)
		}
		if took := time.Since(began); took > 20*time.Millisecond+slack {
			t.Errorf("%s took %v", step, took)
		}
	}
}

type onlyDeadline struct {
	context.Context
	at time.Time
}

func (c onlyDeadline) Deadline() (time.Time, bool) { return c.at, true }

func TestCancelledCallerLeavesAtOnce(t *testing.T) {
	t.Parallel()
	p := redistest.Proxy(t, shared.Server(t).Addr())
	r := newRigVia(t, shared.Server(t).Addr(), p.Addr(), &redisstore.Options{Timeout: 10 * time.Second})
	r.read(r.key())
	p.BlackHole(true)
	for step, do := range steps {
		if step == "Read" {
			continue // alone, it reads inline
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		began := time.Now()
		if err := do(ctx, r.Store, r.key()); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", step, err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("%s took %v", step, took)
		}
	}
}

func TestTooManyRequestsWaitNoLongerThanTheirTime(t *testing.T) {
	t.Parallel()
	p := redistest.Proxy(t, shared.Server(t).Addr())
	r := newRigVia(t, shared.Server(t).Addr(), p.Addr(), &redisstore.Options{Timeout: 5 * time.Second, MaxConns: 1})
	p.BlackHole(true)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 2 { // one has the connection, one waits for it
		wg.Go(func() { _ = r.Delete(ctx, r.key()) })
	}
	busy, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	began := time.Now()
	if err := r.Delete(busy, r.key()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("took %v", took)
	}
	cancel()
	wg.Wait()
}

// An elect whose answer is lost has taken the lease for nobody.
func TestUnansweredElectIsFollowedUp(t *testing.T) {
	t.Parallel()
	p := redistest.Proxy(t, shared.Server(t).Addr())
	r := newRigVia(t, shared.Server(t).Addr(), p.Addr(), nil)
	r.lead(r.key()) // the script is loaded
	key := r.key()
	p.DropReplies(faultproxy.Drop{N: 1, Match: faultproxy.Containing(key.Key)})
	if _, err := r.Elect(t.Context(), key, stampede.Ballot{Token: stampede.NewToken(), Length: time.Hour}); err == nil {
		t.Fatal("elected without an answer")
	}
	redistest.Eventually(t, 5*time.Second, func() bool { return r.rdb.Exists(t.Context(), names(t, key).Lease).Val() == 0 })
	redistest.Eventually(t, 5*time.Second, func() bool { return r.Stats().Ghosts == 1 })
	r.lead(key)
}

// A caller that leaves before it is told that it leads will not use the lease.
func TestAbandonedElectIsFollowedUp(t *testing.T) {
	t.Parallel()
	p := redistest.Proxy(t, shared.Server(t).Addr())
	r := newRigVia(t, shared.Server(t).Addr(), p.Addr(), nil)
	r.lead(r.key())
	key := r.key()
	p.SetDelay(0, 80*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := r.Elect(ctx, key, stampede.Ballot{Token: stampede.NewToken(), Length: time.Hour}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	redistest.Eventually(t, 5*time.Second, func() bool { return r.Stats().Ghosts == 1 })
	p.SetDelay(0, 0)
	r.lead(key)
}

// A server that was stopped runs, when it goes on, what it was sent meanwhile.
func TestElectThatAStoppedServerRunsLaterIsFollowedUp(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t)
	r := newRig(t, srv.Addr(), nil)
	r.lead(r.key())
	key := r.key()
	must(t, srv.Stop())
	if _, err := r.Elect(t.Context(), key, stampede.Ballot{Token: stampede.NewToken(), Length: time.Hour}); err == nil {
		t.Fatal("elected without an answer")
	}
	must(t, srv.Cont())
	redistest.Eventually(t, 5*time.Second, func() bool { return r.Stats().Ghosts == 1 })
	if r.do("EXISTS", names(t, key).Lease) != int64(0) {
		t.Error("the lease is still there")
	}
}

// redis/go-redis#2985: a command that is sent again because the connection broke must not be told that
// somebody else has what its first copy took.
func TestResentElectLeads(t *testing.T) {
	t.Parallel()
	p := redistest.Proxy(t, shared.Server(t).Addr())
	r := newRigVia(t, shared.Server(t).Addr(), p.Addr(), patient)
	r.lead(r.key())
	for range 5 {
		key := r.key()
		lease := names(t, key).Lease
		dropped := p.Stats().DroppedReplies
		p.DropReplies(faultproxy.Drop{N: 1, Match: faultproxy.Containing(key.Key)})
		done := make(chan stampede.Election)
		go func() {
			el, err := r.Elect(t.Context(), key, stampede.Ballot{Token: stampede.NewToken(), Length: time.Minute})
			if err != nil {
				t.Error(err)
			}
			done <- el
		}()
		redistest.Eventually(t, 5*time.Second, func() bool { return p.Stats().DroppedReplies > dropped })
		first := r.rdb.Get(t.Context(), lease).Val()
		p.CloseConns()
		el := <-done
		r.role(el, stampede.RoleLeader)
		if got := "L" + string(el.Lease[:]); got != first || r.rdb.Get(t.Context(), lease).Val() != first {
			t.Errorf("lease %q, first granted %q", got, first)
		}
	}
}

// A copy of an elect that arrives after a Delete must not bring the old load's right to commit back.
func TestLateCopyOfElectRevivesNothing(t *testing.T) {
	t.Parallel()
	p := redistest.Proxy(t, shared.Server(t).Addr())
	r := newRigVia(t, shared.Server(t).Addr(), p.Addr(), patient)
	r.lead(r.key())
	for end, f := range map[string]func(stampede.Key) error{
		"Delete": func(k stampede.Key) error { return r.Delete(t.Context(), k) },
		"Expire": func(k stampede.Key) error { return r.Expire(t.Context(), k) },
		"Set": func(k stampede.Key) error {
			return r.Set(t.Context(), k, stampede.Entry{TTL: time.Millisecond, StaleFor: time.Hour})
		},
	} {
		key := r.key()
		copied := p.Capture(faultproxy.Containing(key.Key))
		el, err := r.Elect(t.Context(), key, stampede.Ballot{Token: stampede.NewToken(), Length: time.Minute})
		must(t, err)
		<-copied.Captured()
		must(t, f(key))
		redistest.Eventually(t, time.Second, func() bool { e := r.read(key); return e.Freshness() != stampede.Fresh })
		_, err = copied.Replay(t.Context())
		must(t, err)
		if held := r.rdb.Get(t.Context(), names(t, key).Lease).Val(); !strings.HasPrefix(held, "L"+string(el.Lease[:16])) {
			t.Fatalf("after %s the copy took no lease: %q", end, held)
		}
		r.commit(key, el.Lease, "loaded before", stampede.Refused)
	}
}

func TestSetIsSentOnceAndSaysThatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t)
	p := redistest.Proxy(t, srv.Addr())
	r := newRigVia(t, srv.Addr(), p.Addr(), nil)
	r.ok(r.Set(t.Context(), r.key(), value("x")))
	for name, breaks := range map[string]bool{"no answer": false, "connection breaks": true} {
		key := r.key()
		r.do("CONFIG", "RESETSTAT")
		p.DropReplies(faultproxy.Drop{N: 1, Match: faultproxy.Containing(key.Key)})
		done := make(chan error)
		go func() { done <- r.Set(t.Context(), key, value("x")) }()
		redistest.Eventually(t, 5*time.Second, func() bool { return r.rdb.Exists(t.Context(), names(t, key).Entry).Val() == 1 })
		if breaks {
			p.CloseConns()
		}
		if err := <-done; !errors.Is(err, stampede.ErrOutcomeUnknown) {
			t.Errorf("%s: %v", name, err)
		}
		stats := r.rdb.Info(t.Context(), "commandstats").Val()
		if !strings.Contains(stats, "cmdstat_evalsha:calls=1,") {
			t.Errorf("%s: sent more than once:\n%s", name, stats)
		}
	}
	p.CloseConns()
	must(t, p.RefuseNew(true))
	if err := r.Set(t.Context(), r.key(), value("x")); err == nil || errors.Is(err, stampede.ErrOutcomeUnknown) {
		t.Errorf("not sent: %v", err)
	}
}

func TestCommitThatIsNotAnsweredIsUnknown(t *testing.T) {
	t.Parallel()
	p := redistest.Proxy(t, shared.Server(t).Addr())
	r := newRigVia(t, shared.Server(t).Addr(), p.Addr(), nil)
	key := r.key()
	lease := r.lead(key)
	p.SwallowReplies(true)
	r.commit(key, lease, "new", stampede.Unknown)
	p.SwallowReplies(false)
	p.CloseConns()
	redistest.Eventually(t, 5*time.Second, func() bool {
		v, err := r.Commit(t.Context(), key, lease, value("new"))
		return v == stampede.Accepted && err == nil
	})
}

// redis-py's cancelled requests left replies on pooled connections, and others got them (OpenAI,
// 2023-03-20).
func TestCancelledReadsLeaveConnectionsInOrder(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t)
	p := redistest.Proxy(t, srv.Addr())
	r := newRigVia(t, srv.Addr(), p.Addr(), patient)
	keys := make([]stampede.Key, 20)
	for i := range keys {
		keys[i] = r.key()
		r.ok(r.Set(t.Context(), keys[i], value(keys[i].Key)))
	}
	p.SetDelay(0, 2*time.Millisecond)
	before := p.Stats().Accepted
	var wg sync.WaitGroup
	var cancelled, served atomic.Int64
	for i := range 1000 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			time.AfterFunc(time.Duration(i%7)*time.Millisecond, cancel)
			e, err := r.Read(ctx, keys[i%len(keys)])
			switch {
			case err != nil:
				cancelled.Add(1)
			case string(e.Data) != keys[i%len(keys)].Key:
				t.Errorf("%s: got %q", keys[i%len(keys)].Key, e.Data)
			default:
				served.Add(1)
			}
		})
	}
	wg.Wait()
	p.SetDelay(0, 0)
	for _, key := range keys {
		if e := r.read(key); string(e.Data) != key.Key {
			t.Errorf("%s: got %q", key.Key, e.Data)
		}
	}
	if n := p.Stats().Accepted - before; n > 10 {
		t.Errorf("%d new connections for %d cancelled and %d served reads", n, cancelled.Load(), served.Load())
	}
	if n := r.Stats().Outages; n != 0 {
		t.Errorf("%d outages", n)
	}
}

func TestShortDeadlinesAreNoFaultOfRedis(t *testing.T) {
	t.Parallel()
	p := redistest.Proxy(t, shared.Server(t).Addr())
	r := newRigVia(t, shared.Server(t).Addr(), p.Addr(), patient)
	key := r.key()
	r.read(key)
	const delay = 15 * time.Millisecond
	p.SetDelay(0, delay) // a new connection waits for it three times
	for range 10 {
		for step, do := range steps {
			begun := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Millisecond)
			if err := do(ctx, r.Store, key); err == nil {
				if took := time.Since(begun); took < delay { // else both its end and the answer were there when it woke up
					t.Errorf("%s succeeded after %v", step, took)
				}
			} else if errors.Is(err, stampede.ErrUnavailable) {
				t.Fatalf("%s: %v", step, err)
			}
			cancel()
		}
	}
	p.SetDelay(0, 0)
	if n := r.Stats().Outages; n != 0 {
		t.Errorf("%d outages", n)
	}
}

// traffic reads and elects from several goroutines until the returned function is called, which returns
// how many calls there were and the errors.
func traffic(r *rig) (stop func() (int, []error)) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	calls := 0
	for i := range 8 {
		key := r.key()
		wg.Go(func() {
			for ctx.Err() == nil {
				var err error
				if i%2 == 0 {
					_, err = r.Read(context.Background(), key)
				} else {
					var el stampede.Election
					el, err = r.Elect(context.Background(), key, stampede.Ballot{Token: stampede.NewToken(), Length: time.Minute})
					if err == nil {
						err = r.Release(context.Background(), key, el.Lease, stampede.Pass{})
					}
				}
				mu.Lock()
				calls++
				if err != nil {
					errs = append(errs, err)
				}
				mu.Unlock()
			}
		})
	}
	return func() (int, []error) {
		cancel()
		wg.Wait()
		return calls, errs
	}
}

// every calls f n times, one pause apart.
func every(pause time.Duration, n int, f func()) {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for range n {
		<-ticker.C
		f()
	}
}

// redis/go-redis#3228, CSenshi/nestjs-redis#15.
func TestForgottenScriptsAreSentAgain(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t)
	r := newRig(t, srv.Addr(), patient)
	stop := traffic(r)
	every(5*time.Millisecond, 50, func() { r.do("SCRIPT", "FLUSH") })
	if calls, errs := stop(); len(errs) > 0 {
		t.Errorf("%d of %d calls failed, the first: %v", len(errs), calls, errs[0])
	}
	r.do("SCRIPT", "FLUSH")
	r.ok(r.Set(t.Context(), r.key(), value("x")))
	r.ok(r.Expire(t.Context(), r.key()))
}

func TestKilledConnectionsAreReplaced(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t)
	r := newRig(t, srv.Addr(), patient)
	stop := traffic(r)
	every(60*time.Millisecond, 6, func() { r.do("CLIENT", "KILL", "TYPE", "normal") })
	if calls, errs := stop(); len(errs) > 0 {
		t.Errorf("%d of %d calls failed, the first: %v", len(errs), calls, errs[0])
	}
	if n := r.Stats().Outages; n != 0 {
		t.Errorf("%d outages", n)
	}
}

// states records what the Observer is told.
type states struct {
	mu  sync.Mutex
	all []bool
}

func (s *states) Observe(e stampede.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, e.Kind == stampede.EventStoreUp && e.Err == nil)
}

func (s *states) seen() []bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

func TestBreakerTakesTheCostAwayAndComesBack(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(t *testing.T) (addr, via string, on, off func()){
		"stopped": func(t *testing.T) (string, string, func(), func()) {
			srv := redistest.Server(t)
			return srv.Addr(), srv.Addr(), func() { must(t, srv.Stop()) }, func() { must(t, srv.Cont()) }
		},
		"killed": func(t *testing.T) (string, string, func(), func()) {
			srv := redistest.Server(t)
			return srv.Addr(), srv.Addr(), func() { must(t, srv.Kill()) }, func() { must(t, srv.Restart()) }
		},
		"black hole": func(t *testing.T) (string, string, func(), func()) {
			srv := redistest.Server(t)
			p := redistest.Proxy(t, srv.Addr())
			return srv.Addr(), p.Addr(), func() { p.BlackHole(true) }, func() { p.BlackHole(false) }
		},
		"refused": func(t *testing.T) (string, string, func(), func()) {
			srv := redistest.Server(t)
			p := redistest.Proxy(t, srv.Addr())
			return srv.Addr(), p.Addr(), func() { must(t, p.RefuseNew(true)); gone(t, p) }, func() { must(t, p.RefuseNew(false)) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr, via, on, off := fault(t)
			var told states
			r := newRigVia(t, addr, via, &redisstore.Options{Observer: &told})
			key := r.key()
			redistest.Eventually(t, 5*time.Second, func() bool { _, err := r.Read(t.Context(), key); return err == nil })
			on()
			redistest.Eventually(t, 5*time.Second, func() bool {
				_, err := r.Read(t.Context(), key)
				return errors.Is(err, stampede.ErrUnavailable)
			})
			if r.Health(t.Context()) == nil {
				t.Error("healthy while Redis is gone")
			}
			for step, do := range steps {
				if step == "Health" {
					continue
				}
				began := time.Now()
				if err := do(t.Context(), r.Store, key); !errors.Is(err, stampede.ErrUnavailable) {
					t.Errorf("%s: %v", step, err)
				}
				if took := time.Since(began); took > slack/2 {
					t.Errorf("%s took %v", step, took)
				}
			}
			off()
			back := time.Now()
			redistest.Eventually(t, 5*time.Second, func() bool { _, err := r.Read(t.Context(), key); return err == nil })
			took := time.Since(back)
			t.Logf("back after %v", took)
			if took > time.Second {
				t.Errorf("back after %v", took)
			}
			must(t, r.Health(t.Context()))
			redistest.Eventually(t, 5*time.Second, func() bool { return len(told.seen()) == 2 })
			if got := told.seen(); !slices.Equal(got, []bool{false, true}) {
				t.Errorf("told %v", got)
			}
			if n := r.Stats().Outages; n != 1 {
				t.Errorf("%d outages", n)
			}
		})
	}
}

// A caller's own time says nothing about Redis; the Store's own does. CopyBudget is as short as that.
func TestShortTimeOfACallerThatRunsOutDoesNotOpenTheBreaker(t *testing.T) {
	t.Parallel()
	srv := shared.Server(t)
	p := redistest.Proxy(t, srv.Addr())
	r := newRigVia(t, srv.Addr(), p.Addr(), &redisstore.Options{Timeout: time.Second})
	key := r.key()
	redistest.Eventually(t, 5*time.Second, func() bool { // until it is read alone
		before := r.Stats().BatchedKeys
		_, err := r.Read(t.Context(), key)
		return err == nil && r.Stats().BatchedKeys == before
	})
	p.BlackHole(true)
	fails := func() {
		t.Helper()
		if _, err := r.Renew(t.Context(), key, stampede.NewStamp(), time.Second); err == nil {
			t.Error("answered")
		}
	}
	fails()
	fails()
	before := r.Stats().ReadRequests
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := r.Read(ctx, key); err == nil {
		t.Error("answered")
	}
	if r.Stats().ReadRequests == before {
		t.Log("it was not read alone: the machine is slow")
	}
	if n := r.Stats().Outages; n != 0 {
		t.Errorf("%d outages after two failures", n)
	}
	fails()
	redistest.Eventually(t, 5*time.Second, func() bool { return r.Stats().Outages == 1 })
}

func TestRestartedServerIsEmpty(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t)
	r := newRig(t, srv.Addr(), nil)
	key := r.key()
	lease := r.lead(key)
	other := r.key()
	r.ok(r.Set(t.Context(), other, value("x")))
	must(t, srv.Kill())
	must(t, srv.Restart())
	redistest.Eventually(t, 5*time.Second, func() bool { _, err := r.Read(t.Context(), other); return err == nil })
	if e := r.read(other); e.Stamp != (stampede.Stamp{}) {
		t.Errorf("%+v", e)
	}
	r.commit(key, lease, "x", stampede.Refused)
	r.commit(key, r.lead(key), "x", stampede.Accepted)
}
