package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/internal/faultproxy"
	"github.com/herdgate/herdgate/internal/redistest"
	"github.com/herdgate/herdgate/stampede/lock"
)

// hold is an acquisition in a history. Times are by one clock. The lock was held for sure from granted to end,
// the earlier of the moment before the release and the end of its validity by its own clock.
type hold struct {
	who                 int
	asked, granted, end time.Duration
	fence               uint64
}

// write is a write to a resource that checks fences.
type write struct {
	fence    uint64
	accepted bool
}

// history is what happened to one lock.
type history struct {
	mu     sync.Mutex // protects what follows
	holds  []hold
	writes []write
	given  uint64 // the highest number that anybody was given
	end    uint64 // the number in the resource at the end
}

// grant notes a number.
func (h *history) grant(fence uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.given = max(h.given, fence)
}

// mend is what an operator does when a majority of servers has forgotten the numbers.
func (h *history) mend(lk *lock.Locker) {
	h.mu.Lock()
	above := h.given + 1000
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = lk.SeedFences(ctx, above)
}

// overlaps says what two held the lock at the same time.
func (h *history) overlaps() (bad []string) {
	holds := slices.Clone(h.holds)
	slices.SortFunc(holds, func(a, b hold) int { return int(a.granted - b.granted) })
	last := -1
	for i, x := range holds {
		if last >= 0 && x.granted < holds[last].end {
			bad = append(bad, fmt.Sprintf("%+v and %+v overlap", holds[last], x))
		}
		if last < 0 || x.end > holds[last].end {
			last = i
		}
	}
	return bad
}

// unordered says which fences did not grow: each must be above that of all who had the lock before it was
// asked for, and none may come twice.
func (h *history) unordered() (bad []string) {
	for i, a := range h.holds {
		for _, b := range h.holds[i+1:] {
			first, second := a, b
			if b.granted < a.granted {
				first, second = b, a
			}
			if a.fence == b.fence || first.granted < second.asked && first.fence >= second.fence {
				bad = append(bad, fmt.Sprintf("fences of %+v and %+v", first, second))
			}
		}
	}
	return bad
}

// wrong says whether the resource ended in the wrong state: with another number than the highest that was
// accepted, or with one of nobody.
func (h *history) wrong() (bad []string) {
	highest := uint64(0)
	for _, w := range h.writes {
		if w.accepted {
			highest = max(highest, w.fence)
		}
	}
	if h.end != highest {
		bad = append(bad, fmt.Sprintf("the resource ended with %d, the highest that it accepted is %d", h.end, highest))
	}
	return bad
}

func TestCheckerTellsGoodHistoriesFromBad(t *testing.T) {
	good := []hold{{1, 0, 1, 5, 10}, {2, 2, 6, 9, 11}, {3, 3, 9, 12, 12}}
	h := history{holds: good, writes: []write{{10, true}, {11, true}, {10, false}}, end: 11}
	if bad := slices.Concat(h.overlaps(), h.unordered(), h.wrong()); len(bad) > 0 {
		t.Errorf("a good history: %q", bad)
	}
	// Overlapping requests may be granted in any order of numbers.
	overlapping := history{holds: []hold{{1, 0, 5, 7, 12}, {2, 1, 8, 9, 11}}}
	if bad := overlapping.unordered(); len(bad) > 0 {
		t.Errorf("a good history: %q", bad)
	}
	for name, c := range map[string]struct {
		h   *history
		bad func(*history) []string
	}{
		"two at once":          {&history{holds: []hold{{1, 0, 1, 5, 10}, {2, 2, 4, 9, 11}}}, (*history).overlaps},
		"one within another":   {&history{holds: []hold{{1, 0, 1, 9, 10}, {2, 2, 3, 4, 11}, {3, 5, 6, 7, 12}}}, (*history).overlaps},
		"the outer one":        {&history{holds: []hold{{1, 0, 1, 9, 10}, {2, 2, 3, 4, 11}, {3, 5, 8, 12, 12}}}, (*history).overlaps},
		"not in order of time": {&history{holds: []hold{{2, 2, 4, 9, 11}, {1, 0, 1, 5, 10}}}, (*history).overlaps},
		"a lower fence":        {&history{holds: []hold{{1, 0, 1, 2, 10}, {2, 3, 4, 5, 9}}}, (*history).unordered},
		"the same fence":       {&history{holds: []hold{{1, 0, 1, 2, 10}, {2, 0, 4, 5, 10}}}, (*history).unordered},
		"lower after many":     {&history{holds: append(slices.Clone(good), hold{4, 13, 14, 15, 11})}, (*history).unordered},
		"an old write won":     {&history{writes: []write{{10, true}, {11, true}}, end: 10}, (*history).wrong},
		"a refused write won":  {&history{writes: []write{{10, true}, {11, false}}, end: 11}, (*history).wrong},
		"a write was lost":     {&history{writes: []write{{10, true}}}, (*history).wrong},
	} {
		if len(c.bad(c.h)) == 0 {
			t.Errorf("%s: not found", name)
		}
	}
}

// contend has contenders fight for one lock, with leases of any length, pauses beyond their end, and writes to a
// resource that checks fences, until stop.
func contend(t *testing.T, seed uint64, lockers []*lock.Locker, each int, resource *redis.Client, stop <-chan struct{}) *history {
	t.Helper()
	h := &history{}
	base := time.Now()
	key := fmt.Sprintf("resource-%d", seed)
	var wg sync.WaitGroup
	for who := range each * len(lockers) {
		rnd := rand.New(rand.NewPCG(seed, uint64(who)))
		lk := lockers[who%len(lockers)]
		wg.Go(func() {
			for !isDone(stop) {
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
				x := hold{who: who, asked: time.Since(base)}
				l, err := lk.Acquire(ctx, "job", time.Duration(100+rnd.IntN(300))*time.Millisecond)
				cancel()
				if errors.Is(err, lock.ErrNoFences) {
					h.mend(lk)
				}
				if err != nil {
					continue
				}
				h.grant(l.Fence())
				x.granted = time.Since(base)
				deadline := x.granted + l.Validity()
				x.fence = l.Fence()
				if rnd.IntN(4) == 0 {
					_ = l.Extend(context.Background(), 400*time.Millisecond)
				}
				pause := time.Duration(rnd.IntN(20)) * time.Millisecond
				if rnd.IntN(8) == 0 {
					pause += 500 * time.Millisecond // beyond the end
				}
				pauseFor(pause)
				err = lock.SetFenced(context.Background(), resource, key, strconv.FormatUint(x.fence, 10), x.fence, 0)
				if err != nil && !errors.Is(err, lock.ErrStale) {
					t.Error(err)
				}
				if v := l.Validity(); v > 0 {
					deadline = max(deadline, time.Since(base)+v)
				}
				x.end = min(time.Since(base), deadline)
				_ = l.Release(context.Background())
				h.mu.Lock()
				h.holds = append(h.holds, x)
				h.writes = append(h.writes, write{x.fence, err == nil})
				h.mu.Unlock()
			}
		})
	}
	wg.Wait()
	h.end, _ = strconv.ParseUint(resource.HGet(context.Background(), key, "value").Val(), 10, 64)
	return h
}

func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// pauseFor takes real time: the work of a holder, or the length of a fault.
func pauseFor(d time.Duration) { <-time.After(d) }

// historySeed is random unless LOCK_SEED says otherwise.
func historySeed(t *testing.T) uint64 {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("LOCK_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		must(t, err)
	}
	t.Logf("LOCK_SEED=%d", seed)
	return seed
}

// netTroubles breaks the way to a server once.
func netTroubles(rnd *rand.Rand, p *faultproxy.Proxy) {
	switch rnd.IntN(5) {
	case 0:
		p.DropReplies(faultproxy.Drop{N: 1 + rnd.IntN(3), Close: rnd.IntN(2) == 0})
	case 1:
		p.SetDelay(time.Duration(rnd.IntN(50))*time.Millisecond, time.Duration(rnd.IntN(50))*time.Millisecond)
		pauseFor(100 * time.Millisecond)
		p.SetDelay(0, 0)
	case 2:
		p.CloseConns()
	case 3:
		c := p.Capture(faultproxy.Containing(":k:job"))
		select {
		case <-c.Captured():
			pauseFor(time.Duration(rnd.IntN(200)) * time.Millisecond)
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, _ = c.Replay(ctx) // late, once more
		case <-time.After(200 * time.Millisecond):
		}
	case 4:
		p.SwallowReplies(true)
		pauseFor(50 * time.Millisecond)
		p.SwallowReplies(false)
		p.CloseConns()
	}
}

// While one server loses nothing, the holds do not overlap, whatever the network does, and also when the server
// or a holder is stopped.
func TestHoldsOnOneServerDoNotOverlapUnderFaults(t *testing.T) {
	t.Parallel()
	seed := historySeed(t)
	srv := redistest.Server(t)
	o := slowMachine()
	o.Timeout = 200 * time.Millisecond
	var lockers []*lock.Locker
	var proxies []*faultproxy.Proxy
	for range 3 {
		p := redistest.Proxy(t, srv.Addr())
		proxies = append(proxies, p)
		lockers = append(lockers, newLocker(t, o, newClient(t, p.Addr())))
	}
	stop := make(chan struct{})
	var faults sync.WaitGroup
	faults.Go(func() {
		defer close(stop)
		rnd := rand.New(rand.NewPCG(seed, 1<<32))
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
			if rnd.IntN(8) == 0 {
				_ = srv.Stop()
				pauseFor(time.Duration(rnd.IntN(300)) * time.Millisecond)
				_ = srv.Cont()
			}
			netTroubles(rnd, proxies[rnd.IntN(len(proxies))])
			pauseFor(20 * time.Millisecond)
		}
	})
	h := contend(t, seed, lockers, 4, newClient(t, shared.Server(t).Addr()), stop)
	faults.Wait()
	report(t, h, append(append(h.overlaps(), h.unordered()...), h.wrong()...), 20)
}

// Redlock's holds may overlap when servers forget; the numbers grow all the same, and the resource ends right.
func TestRedlockHistoriesUnderFaults(t *testing.T) {
	t.Parallel()
	seed := historySeed(t)
	m := fencedFive(t)
	m.opt.NodeTimeout, m.opt.Timeout, m.opt.Poll = 100*time.Millisecond, 200*time.Millisecond, 50*time.Millisecond
	lockers := []*lock.Locker{m.locker(t), m.locker(t), m.locker(t)}
	redistest.Eventually(t, patient, func() bool { return lockers[0].InitFences(t.Context()) == nil })
	stop := make(chan struct{})
	var faults sync.WaitGroup
	faults.Go(func() {
		defer close(stop)
		rnd := rand.New(rand.NewPCG(seed, 1<<32))
		for end := time.Now().Add(8 * time.Second); time.Now().Before(end); {
			i := rnd.IntN(5)
			switch rnd.IntN(6) {
			case 0, 1:
				_ = m.servers[i].Kill()
				pauseFor(time.Duration(rnd.IntN(100)) * time.Millisecond)
				_ = m.servers[i].Restart() // empty
			case 2:
				_ = m.servers[i].Stop()
				pauseFor(time.Duration(rnd.IntN(300)) * time.Millisecond)
				_ = m.servers[i].Cont()
			default:
				netTroubles(rnd, m.proxies[i])
			}
			pauseFor(50 * time.Millisecond)
		}
	})
	h := contend(t, seed, lockers, 2, newClient(t, shared.Server(t).Addr()), stop)
	faults.Wait()
	t.Logf("%d of %d holds overlap", len(h.overlaps()), len(h.holds))
	report(t, h, append(h.unordered(), h.wrong()...), 5)
}

func report(t *testing.T, h *history, bad []string, least int) {
	t.Helper()
	refused := 0
	for _, w := range h.writes {
		if !w.accepted {
			refused++
		}
	}
	t.Logf("%d holds, %d writes refused", len(h.holds), refused)
	if len(bad) > 0 {
		t.Fatalf("%d faults:\n%s\n%+v", len(bad), strings.Join(bad, "\n"), h.holds)
	}
	if len(h.holds) < least {
		t.Errorf("only %d holds", len(h.holds))
	}
}
