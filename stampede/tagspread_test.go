package stampede_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// When what a tag has expired is loaded anew: Policy.TagSpread.

// census counts the loads of each key, and when they began.
type census struct {
	takes time.Duration

	mu    sync.Mutex // protects what follows
	start time.Time
	of    map[string]int
	slots map[time.Duration]int // by tenths of a second
}

func (c *census) load(ctx context.Context, l *stampede.Load[int]) (int, error) {
	c.mu.Lock()
	c.of[l.Key()]++
	c.slots[time.Since(c.start)/(100*time.Millisecond)]++
	n := c.of[l.Key()]
	c.mu.Unlock()
	l.Tags("all", l.Key())
	<-time.After(c.takes)
	return n, nil
}

func (c *census) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.start, c.of, c.slots = time.Now(), map[string]int{}, map[time.Duration]int{}
}

func TestMassExpiryIsNoStampede(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys, round, spread = 1000, 20 * time.Millisecond, time.Second
		policy := stampede.Policy{TTL: time.Hour, StaleFor: time.Hour, Jitter: -1, Beta: -1, TagSpread: spread}
		store := new(stampede.MemoryStore)
		var pods []pod
		for range 4 {
			pods = append(pods, newPod(t, store, tagging(policy)))
		}
		c := &census{takes: 5 * time.Millisecond}
		c.begin()
		var names []string
		for i := range keys {
			names = append(names, fmt.Sprint("k", i))
			fetched(t, pods[0].Guard, names[i], c.load)
		}
		must(t, pods[1].ExpireTag(t.Context(), "all"))
		c.begin()
		var traffic sync.WaitGroup
		for i, p := range pods {
			traffic.Go(func() {
				time.Sleep(time.Duration(i) * round / 4)
				for at := time.Duration(0); at < spread+2*round; at += round {
					for _, key := range names {
						begun := time.Now()
						if r := fetched(t, p.Guard, key, c.load); r.Value != 1 || r.Freshness < stampede.Stale || time.Since(begun) != 0 {
							t.Errorf("%s: %d, %v after %v", key, r.Value, r.Freshness, time.Since(begun))
						}
					}
					time.Sleep(round)
				}
			})
		}
		traffic.Wait()
		synctest.Wait()
		for _, key := range names {
			if n := c.of[key]; n != 1 {
				t.Errorf("%s was loaded %d times", key, n)
			}
		}
		even, most := keys/int(spread/(100*time.Millisecond)), 0
		for _, n := range c.slots {
			most = max(most, n)
		}
		if most > even*3/2 || len(c.slots) < 10 {
			t.Errorf("up to %d loads in a tenth of a second, evenly it would be %d: %v", most, even, c.slots)
		}
		for _, p := range pods {
			if s := p.Stats(); s.Misses > keys || s.WaitedForPod > 0 {
				t.Errorf("somebody has waited: %+v", s)
			}
		}
	})
}

func TestTurnsAreTheSameInAllPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := atOnce
		policy.TagSpread = time.Minute
		store := new(stampede.MemoryStore)
		a, b := newPod(t, store, tagging(policy)), newPod(t, store, tagging(policy))
		fetched(t, a.Guard, "k", tagged(value(1), "x"))
		must(t, a.ExpireTag(t.Context(), "x"))
		turn := func(p pod) (d time.Duration) {
			for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
				elections := p.net.Calls("Elect")
				fetched(t, p.Guard, "k", tagged(func(context.Context) (int, error) { return 0, errBoom }, "x"))
				synctest.Wait()
				if p.net.Calls("Elect") > elections {
					return time.Since(begun)
				}
				if d = time.Since(begun); d > policy.TagSpread {
					t.Fatal("it is never its turn")
				}
			}
		}
		first := turn(a)
		time.Sleep(time.Hour - 2*time.Minute) // beyond the back-off
		second := turn(b)
		if first != second || first == 0 {
			t.Errorf("its turn is %v after a saw the expiry, %v after b did", first, second)
		}
	})
}

func TestWhatIsPastItsTTLDoesNotWaitForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := stampede.Policy{TTL: time.Second, StaleFor: time.Second, Jitter: -1, Beta: -1, TagSpread: time.Hour}
		p := newPod(t, new(stampede.MemoryStore), tagging(policy))
		src := new(source)
		fetched(t, p.Guard, "k", tagged(src.load, "x"))
		must(t, p.ExpireTag(t.Context(), "x"))
		if r := fetched(t, p.Guard, "k", tagged(never(t))); r.Freshness != stampede.Stale || r.Behind {
			t.Errorf("%+v", r)
		}
		time.Sleep(time.Second)
		holds(t, fetched(t, p.Guard, "k", tagged(src.load)), 1, stampede.Stale)
		synctest.Wait()
		holds(t, fetched(t, p.Guard, "k", tagged(never(t))), 2, stampede.Fresh)
	})
}

func TestWhoHasNothingStaleDoesNotWaitForATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, policy := range []stampede.Policy{windowless, {TTL: time.Hour, StaleFor: -1, Jitter: -1}} {
			policy.TagSpread = time.Hour
			p := newPod(t, new(stampede.MemoryStore), tagging(policy))
			fetched(t, p.Guard, "k", tagged(value(1), "x"))
			must(t, p.ExpireTag(t.Context(), "x"))
			holds(t, fetched(t, p.Guard, "k", tagged(value(2))), 2, stampede.Fresh)
		}
	})
}

func TestRefreshDoesNotWaitForATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := atOnce
		policy.TagSpread = time.Hour
		p := newPod(t, new(stampede.MemoryStore), tagging(policy))
		fetched(t, p.Guard, "k", tagged(value(1), "x"))
		must(t, p.ExpireTag(t.Context(), "x"))
		must(t, p.Refresh(t.Context(), "k", value(2)))
		synctest.Wait()
		holds(t, fetched(t, p.Guard, "k", tagged(never(t))), 2, stampede.Fresh)
	})
}

func TestForgottenExpiryIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stampede.NewSpread(time.Hour)
		const n = stampede.MaxSpread
		if s.Due("k", 1, 0) || s.Due("k", 1, 5) {
			t.Error("due at once")
		}
		for i := range uint64(n) {
			s.Due("k", 1, 6+i)
		}
		if !s.Due("k", 1, 5) || !s.Due("k", 1, 4) {
			t.Error("what was forgotten is not due")
		}
		if s.Due("k", 1, 0) || s.Due("k", 1, 5+n) || s.Due("k", 1, 1<<50) {
			t.Error("what was not is due")
		}
		if s.Due("k", 2, 5) {
			t.Error("what was forgotten of another record is due")
		}
		time.Sleep(time.Hour)
		if !s.Due("k", 2, 5) {
			t.Error("not due at last")
		}
	})
}
