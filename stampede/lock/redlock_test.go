package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/internal/faultproxy"
	"github.com/herdgate/herdgate/internal/redisproc"
	"github.com/herdgate/herdgate/internal/redistest"
	"github.com/herdgate/herdgate/stampede/lock"
)

// masters are five independent servers, each behind a proxy.
type masters struct {
	servers []*redisproc.Server
	proxies []*faultproxy.Proxy
	direct  []*redis.Client
	opt     *lock.Options
}

func five(t *testing.T, args ...string) *masters {
	t.Helper()
	m := &masters{opt: slowMachine()}
	m.opt.NodeTimeout = 2 * time.Second
	m.servers = make([]*redisproc.Server, 5)
	var wg sync.WaitGroup
	for i := range m.servers {
		wg.Go(func() { m.servers[i], _ = redisproc.Start(redisproc.Options{Args: args}) })
	}
	wg.Wait()
	for i, s := range m.servers {
		if s == nil {
			m.servers[i] = redistest.Server(t, args...) // says why, or does better
			continue
		}
		t.Cleanup(func() { _ = s.Close() })
	}
	for _, s := range m.servers {
		m.proxies = append(m.proxies, redistest.Proxy(t, s.Addr()))
		m.direct = append(m.direct, newClient(t, s.Addr()))
	}
	return m
}

func (m *masters) locker(t *testing.T) *lock.Locker {
	t.Helper()
	var clients []redis.UniversalClient
	for _, p := range m.proxies {
		clients = append(clients, newClient(t, p.Addr()))
	}
	return newLocker(t, m.opt, clients...)
}

// shares returns on how many of the servers that answer somebody holds a lock.
func (m *masters) shares(t *testing.T) (n int) {
	t.Helper()
	for i, rdb := range m.direct {
		if m.servers[i].Running() && len(rdb.Keys(t.Context(), m.opt.Name+":{*}:k:*").Val()) > 0 {
			n++
		}
	}
	return n
}

func TestRedlockNeedsIndependentMastersOddInNumber(t *testing.T) {
	t.Parallel()
	clients := func(addrs ...string) (all []redis.UniversalClient) {
		for _, addr := range addrs {
			all = append(all, newClient(t, addr))
		}
		return all
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer cluster.Close()
	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close()
	for name, c := range map[string]struct {
		clients []redis.UniversalClient
		opt     *lock.Options
		faults  int
	}{
		"none":       {nil, nil, 1},
		"two":        {clients("127.0.0.1:1", "127.0.0.2:1"), nil, 1},
		"four":       {clients("127.0.0.1:1", "127.0.0.2:1", "127.0.0.3:1", "127.0.0.4:1"), nil, 1},
		"one twice":  {clients("127.0.0.1:1", "127.0.0.2:1", "127.0.0.1:1"), nil, 1},
		"a cluster":  {append(clients("127.0.0.1:1", "127.0.0.2:1"), cluster), nil, 1},
		"a ring":     {[]redis.UniversalClient{ring}, nil, 1},
		"nil":        {[]redis.UniversalClient{nil}, nil, 1},
		"all faults": {nil, &lock.Options{Name: "{", Timeout: -1, NodeTimeout: -1, Poll: -1, Tries: -1}, 6},
	} {
		lk, err := lock.New(c.opt, c.clients...)
		if err == nil {
			_ = lk.Close()
			t.Errorf("%s: accepted", name)
			continue
		}
		wantErr(t, err, lock.ErrMisuse)
		if n := strings.Count(err.Error(), "\n") + 1; n != c.faults {
			t.Errorf("%s: %d faults, want %d: %v", name, n, c.faults, err)
		}
	}
	lk := newLocker(t, nil, clients("127.0.0.1:1", "127.0.0.2:1", "127.0.0.3:1")...)
	_, err := lk.TryAcquire(t.Context(), "job", 20*time.Second)
	only(t, err, lock.ErrTooFewNodes)
}

// One and two of five masters may die at any moment; without three there is no lock, and no wrong one.
func TestRedlockOutlivesAMinority(t *testing.T) {
	t.Parallel()
	m := five(t)
	a, b := m.locker(t), m.locker(t)
	ctx := t.Context()
	for dead := range 4 {
		if dead > 0 {
			must(t, m.servers[dead].Kill())
		}
		var l *lock.Lock
		var err error
		redistest.Eventually(t, patient, func() bool { // what the other one was granted late is being given back
			l, err = a.TryAcquire(ctx, "job", time.Minute)
			return !errors.Is(err, lock.ErrNotAcquired)
		})
		if dead == 3 {
			only(t, err, lock.ErrTooFewNodes)
			break
		}
		must(t, err)
		if v := l.Validity(); v > time.Minute-602*time.Millisecond || v < 50*time.Second {
			t.Errorf("validity %v", v)
		}
		_, err = b.TryAcquire(ctx, "job", time.Minute)
		only(t, err, lock.ErrNotAcquired)
		must(t, l.Extend(ctx, time.Minute))
		must(t, l.Release(ctx))
		redistest.Eventually(t, patient, func() bool { return m.shares(t) == 0 })
	}
	// What was granted by the two that live is given back.
	redistest.Eventually(t, patient, func() bool { return m.shares(t) == 0 })
	must(t, m.servers[1].Restart())
	redistest.Eventually(t, patient, func() bool {
		l, err := b.TryAcquire(ctx, "job", time.Minute)
		return err == nil && l.Release(ctx) == nil
	})
}

// Servers that are stopped do not hold up a majority, though what they were sent they do later: that is given
// back.
func TestRedlockGivesBackWhatStoppedServersGrantLate(t *testing.T) {
	t.Parallel()
	m := five(t)
	m.opt.NodeTimeout = 500 * time.Millisecond
	lk := m.locker(t)
	warm(t, lk)
	ctx := t.Context()
	must(t, errors.Join(m.servers[0].Stop(), m.servers[1].Stop()))
	within(t, 5*time.Second, "acquiring with two of five stopped", func() {
		l, err := lk.TryAcquire(ctx, "job", time.Minute)
		must(t, err)
		must(t, l.Release(ctx))
	})
	must(t, m.servers[2].Stop())
	within(t, 5*time.Second, "failing with three of five stopped", func() {
		_, err := lk.TryAcquire(ctx, "job", time.Minute)
		only(t, err, lock.ErrTooFewNodes)
	})
	must(t, errors.Join(m.servers[0].Cont(), m.servers[1].Cont(), m.servers[2].Cont()))
	redistest.Eventually(t, patient, func() bool { return m.shares(t) == 0 })
	l, err := lk.Acquire(ctx, "job", time.Minute)
	must(t, err)
	must(t, l.Release(ctx))
}

// redisson#1445, redsync#186: a lock that hangs on a bare majority is lost with one restart. So the rest is
// asked, too, and asked again when it has lost its share.
func TestRedlockDoesNotHangOnABareMajority(t *testing.T) {
	t.Parallel()
	m := five(t)
	a, b := m.locker(t), m.locker(t)
	ctx := t.Context()
	l, err := a.TryAcquire(ctx, "job", time.Minute)
	must(t, err)
	for i := range m.servers { // each of them in turn: a majority was restarted in the end
		redistest.Eventually(t, patient, func() bool { return l.Extend(ctx, time.Minute) == nil && m.shares(t) == 5 })
		must(t, m.servers[i].Kill())
		must(t, m.servers[i].Restart())
		_, err := b.TryAcquire(ctx, "job", time.Minute)
		wantErr(t, err, lock.ErrNotAcquired)
	}
	must(t, l.Release(ctx))
	redistest.Eventually(t, patient, func() bool { return m.shares(t) == 0 })
}

// When a majority has forgotten, two may hold it: that is found by the next renewal, not before.
func TestRedlockThatAMajorityForgotIsLost(t *testing.T) {
	t.Parallel()
	m := five(t)
	a, b := m.locker(t), m.locker(t)
	ctx := t.Context()
	l, err := a.TryAcquire(ctx, "job", time.Minute)
	must(t, err)
	redistest.Eventually(t, patient, func() bool { return m.shares(t) == 5 })
	for _, s := range m.servers[:3] {
		must(t, s.Kill())
		must(t, s.Restart())
	}
	var second *lock.Lock
	redistest.Eventually(t, patient, func() bool {
		second, err = b.TryAcquire(ctx, "job", time.Minute)
		return err == nil
	})
	redistest.Eventually(t, patient, func() bool {
		err = l.Extend(ctx, time.Minute)
		return errors.Is(err, lock.ErrLost)
	})
	var lost *lock.LostError
	if !errors.As(err, &lost) || lost.Reason != lock.Taken {
		t.Errorf("%v", err)
	}
	wantErr(t, l.Release(ctx), lock.ErrLost)
	must(t, second.Extend(ctx, time.Minute))
	must(t, second.Release(ctx))
}

// go-redsync/redsync#151: a partial failure to extend released a lock that was still held.
func TestRedlockExtensionWithoutAnswersReleasesNothing(t *testing.T) {
	t.Parallel()
	m := five(t)
	m.opt.NodeTimeout = 500 * time.Millisecond
	lk := m.locker(t)
	ctx := t.Context()
	warm(t, lk)
	l, err := lk.TryAcquire(ctx, "job", time.Minute)
	must(t, err)
	redistest.Eventually(t, patient, func() bool { return m.shares(t) == 5 })
	for _, p := range m.proxies[:3] {
		p.BlackHole(true)
	}
	only(t, l.Extend(ctx, time.Minute), lock.ErrTooFewNodes)
	if n := m.shares(t); n != 5 || l.Validity() <= 0 {
		t.Errorf("%d shares, validity %v", n, l.Validity())
	}
	m.proxies[0].BlackHole(false)
	redistest.Eventually(t, patient, func() bool { return l.Extend(ctx, time.Minute) == nil })
	for _, p := range m.proxies {
		p.BlackHole(false)
	}
	must(t, l.Release(ctx))
	redistest.Eventually(t, patient, func() bool { return m.shares(t) == 0 })
}

// Replies that are delayed, lost with the connection, and requests that come twice, the second time late.
func TestRedlockBearsWhatNetworksDo(t *testing.T) {
	t.Parallel()
	m := five(t)
	lk := m.locker(t)
	ctx := t.Context()
	warm(t, lk)
	is := faultproxy.Containing(":k:job")
	m.proxies[0].SetDelay(0, 300*time.Millisecond)
	for _, p := range m.proxies[1:4] {
		p.DropReplies(faultproxy.Drop{N: 1, Match: is, Close: true})
	}
	late := m.proxies[4].Capture(is)
	l, err := lk.TryAcquire(ctx, "job", time.Minute)
	must(t, err)
	arrived(t, "the request", late.Captured())
	redistest.Eventually(t, patient, func() bool { return m.shares(t) == 5 })
	must(t, l.Release(ctx))
	redistest.Eventually(t, patient, func() bool { return m.shares(t) == 0 })
	if _, err := late.Replay(ctx); err != nil {
		t.Fatal(err)
	}
	if n := m.shares(t); n != 1 {
		t.Errorf("%d shares after a late copy", n)
	}
	next, err := lk.TryAcquire(ctx, "job", time.Minute) // one of five is no matter
	must(t, err)
	must(t, next.Release(ctx))
}

// What a minority granted is given back, so that nobody waits for it.
func TestRedlockThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	m := five(t)
	a, b := m.locker(t), m.locker(t)
	ctx := t.Context()
	l, err := a.TryAcquire(ctx, "job", time.Minute)
	must(t, err)
	redistest.Eventually(t, patient, func() bool { return m.shares(t) == 5 })
	must(t, errors.Join(m.direct[0].FlushAll(ctx).Err(), m.direct[1].FlushAll(ctx).Err()))
	_, err = b.TryAcquire(ctx, "job", time.Minute)
	only(t, err, lock.ErrNotAcquired)
	redistest.Eventually(t, patient, func() bool { return m.shares(t) == 3 })
	must(t, l.Release(ctx))
}

func TestRedlockContendersExcludeEachOther(t *testing.T) {
	t.Parallel()
	m := five(t)
	m.opt.Poll = 20 * time.Millisecond
	inside := 0
	var wg sync.WaitGroup
	for range 3 {
		lk := m.locker(t)
		for range 3 {
			wg.Go(func() {
				for range 4 {
					if err := lk.Do(t.Context(), "job", time.Minute, func(context.Context) error {
						inside++ // the race detector watches
						return nil
					}); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	if inside != 36 {
		t.Errorf("%d times inside", inside)
	}
}

// bubbleFive are five servers in a bubble, with clocks of their own.
func bubbleFive(t *testing.T, o *lock.Options, offsets ...time.Duration) (*lock.Locker, []*bubbleNode) {
	var nodes []*bubbleNode
	var clients []redis.UniversalClient
	for i := range 5 {
		n := newBubbleNode(t, 0)
		if i < len(offsets) && offsets[i] != 0 {
			n.SetTime(time.Now().Add(offsets[i]))
		}
		nodes = append(nodes, n)
		clients = append(clients, n.client(t, fmt.Sprintf("127.0.0.1:%d", i+1)))
	}
	lk, err := lock.New(o, clients...)
	must(t, err)
	t.Cleanup(func() { must(t, lk.Close()) })
	return lk, nodes
}

// The watchdog works on a majority, and feels the loss of it at the deadline.
func TestRedlockIsKeptByAMajorityAndLostWithoutIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lk, nodes := bubbleFive(t, nil)
		begun := time.Now()
		err := lk.Do(t.Context(), "job", 3*time.Second, func(ctx context.Context) error {
			nodes[0].down.Store(true)
			nodes[1].down.Store(true)
			time.Sleep(20 * time.Second)
			must(t, ctx.Err())
			nodes[2].down.Store(true)
			<-ctx.Done()
			return nil
		})
		var lost *lock.LostError
		if !errors.As(err, &lost) || lost.Reason != lock.Expired {
			t.Fatalf("%v", err)
		}
		if took := time.Since(begun); took < 20*time.Second+2*time.Second-64*time.Millisecond || took > 23*time.Second {
			t.Errorf("lost after %v", took)
		}
		for _, n := range nodes {
			n.down.Store(false)
		}
	})
}
