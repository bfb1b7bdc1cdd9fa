package stampedetest

import (
	"fmt"
	"sync"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// watch subscribes to k and waits until the subscription stands.
func (c *check) watch(k stampede.Key) stampede.Watch {
	c.Helper()
	w := c.store.Watch(k)
	c.Cleanup(w.Close)
	select {
	case <-w.Ready():
	case <-time.After(grace):
		c.Fatalf("the watch is not ready after %v", grace)
	}
	return w
}

// told waits for the next change.
func (c *check) told(w stampede.Watch, of string) stampede.Change {
	c.Helper()
	select {
	case change := <-w.C():
		return change
	case <-time.After(grace):
		c.Fatalf("not told of %s within %v", of, grace)
		return stampede.Change{}
	}
}

var watchTests = []storeTest{
	{"WatchTellsOfEveryEndOfALoadAndEveryChange", func(c *check) {
		for name, change := range map[string]func(k stampede.Key, lease stampede.Stamp) (unstored stampede.Stamp){
			"Commit": func(k stampede.Key, lease stampede.Stamp) stampede.Stamp {
				c.accept(k, lease, c.entry("commit"))
				return stampede.Stamp{}
			},
			"Fail": func(k stampede.Key, lease stampede.Stamp) stampede.Stamp {
				c.fail(k, lease, long)
				return lease
			},
			"Release": func(k stampede.Key, lease stampede.Stamp) stampede.Stamp {
				c.release(k, lease, stampede.Pass{})
				return stampede.Stamp{}
			},
			"Release with a pass": func(k stampede.Key, lease stampede.Stamp) stampede.Stamp {
				c.release(k, lease, stampede.Pass{For: long})
				return lease
			},
			"Set": func(k stampede.Key, _ stampede.Stamp) stampede.Stamp {
				c.set(k, c.entry("set"))
				return stampede.Stamp{}
			},
			"Delete": func(k stampede.Key, _ stampede.Stamp) stampede.Stamp {
				c.delete(k)
				return stampede.Stamp{}
			},
			"Expire": func(k stampede.Key, _ stampede.Stamp) stampede.Stamp {
				c.expire(k)
				return stampede.Stamp{}
			},
		} {
			for _, warm := range []bool{false, true} {
				k := c.key(fmt.Sprint(name, ", stale: ", warm))
				if warm {
					c.stale(k, "stale")
				}
				lease := c.lead(k)
				w := c.watch(k)
				unstored := change(k, lease)
				got := c.told(w, k.Key)
				for got.Unstored != unstored && got.Unstored == (stampede.Stamp{}) {
					got = c.told(w, k.Key) // of what made the entry stale: where messages travel, it may be late
				}
				if got.Unstored != unstored {
					c.Errorf("%s: Unstored is set: %v, want %v", k.Key, got.Unstored != stampede.Stamp{}, unstored != stampede.Stamp{})
				}
				w.Close()
			}
		}
	}},
	{"WatchTellsWhatWasCommittedOrNothingOfIt", func(c *check) {
		k := c.key("k")
		lease := c.lead(k)
		w := c.watch(k)
		c.accept(k, lease, c.entry("payload"))
		if e := c.told(w, "Commit").Stored; e != nil {
			c.is(*e, "payload")
			if e.Stamp != lease || e.Freshness() != stampede.Fresh {
				c.Errorf("told of %+v", e)
			}
		}
		for what, change := range map[string]func(){
			"Set": func() { c.set(k, c.entry("set")) }, "Expire": func() { c.expire(k) }, "Delete": func() { c.delete(k) },
		} {
			change()
			if c.told(w, what).Stored != nil {
				c.Errorf("%s told like a commit", what)
			}
		}
	}},
	{"WatchTellsOnlyOfEndsThatWere", func(c *check) {
		k := c.key("k")
		lease := c.lead(k)
		w := c.watch(k)
		for _, other := range []stampede.Stamp{{}, stampede.NewStamp()} {
			c.fail(k, other, long)
			c.release(k, other, stampede.Pass{For: long})
			c.refuse(k, other, c.entry("no right"))
		}
		c.fail(k, lease, long)
		for got := c.told(w, "Fail"); got.Unstored != lease; got = c.told(w, "Fail") {
			if got.Unstored != (stampede.Stamp{}) {
				c.Fatal("told of the end of a lease that was not held")
			}
		}
	}},
	{"WatchTellsOfAllThatComesAfterReady", func(c *check) {
		for i := range 20 {
			k := c.key(fmt.Sprint(i))
			w := c.watch(k)
			c.delete(k)
			c.told(w, "Delete")
			c.set(k, c.entry("set"))
			c.told(w, "Set")
			w.Close()
		}
	}},
	{"WatchTellsAllWatchers", func(c *check) {
		k := c.key("k")
		w1, w2, w3 := c.watch(k), c.watch(k), c.watch(k)
		w2.Close()
		lease := c.lead(k)
		c.fail(k, lease, long)
		for _, w := range []stampede.Watch{w1, w3} {
			if c.told(w, "Fail").Unstored != lease {
				c.Error("told without the lease that ended")
			}
		}
	}},
	{"WatchTellsOfItsOwnKeyOnly", func(c *check) {
		k := c.key("k")
		w := c.watch(k)
		for _, other := range []stampede.Key{c.key("k2"), c.key("{k}"), c.key("K"), {Space: c.space + "k", Key: "k"}} {
			lease := c.lead(other)
			c.fail(other, lease, long)
			c.delete(other)
		}
		lease := c.lead(k)
		c.fail(k, lease, long)
		if c.told(w, "Fail").Unstored != lease {
			c.Error("told of what happened to another key")
		}
	}},
	{"WatchIsQuietAfterClose", func(c *check) {
		k := c.key("k")
		closed, open := c.watch(k), c.watch(k)
		closed.Close()
		c.delete(k)
		c.told(open, "Delete")
		select {
		case _, ok := <-closed.C():
			if ok {
				c.Error("a closed watch was told of a Delete")
			}
		default:
		}
	}},
	{"WatchNeedsNoReader", func(c *check) {
		// Nobody may be held up by a watcher that is slow, and the last thing is not lost on it.
		k := c.key("k")
		w := c.watch(k)
		for range 200 {
			c.delete(k)
		}
		lease := c.lead(k)
		c.fail(k, lease, long)
		for told := false; !told; {
			told = c.told(w, "Fail").Unstored == lease
		}
	}},
	{"WatchWakesAWaiterThatLooksAgainAfterReady", func(c *check) {
		// The order of a follower: watch, ready, elect again, wait. Whenever the commit falls, the
		// follower finds the entry or is told.
		for i := range 20 {
			k := c.key(fmt.Sprint(i))
			lease := c.lead(k)
			var wg sync.WaitGroup
			wg.Go(func() { c.accept(k, lease, c.entry("payload")) })
			w := c.watch(k)
			for el := c.elect(k, stampede.Stamp{}); el.Role != stampede.RoleFresh; el = c.elect(k, stampede.Stamp{}) {
				if el.Role == stampede.RoleLeader {
					c.Fatal("elected though the entry was committed")
				}
				c.told(w, "Commit")
			}
			wg.Wait()
			w.Close()
		}
	}},
	{"DropsTellOfChangedKeysOfTheirSpace", func(c *check) {
		var mu sync.Mutex // protects got and foreign
		got := map[string]bool{}
		foreign := 0
		stop := c.store.Drops(c.space, func(key string) { mu.Lock(); got[key] = true; mu.Unlock() })
		defer stop()
		defer c.store.Drops(c.space+"x", func(string) { mu.Lock(); foreign++; mu.Unlock() })()
		for name, change := range map[string]func(stampede.Key){
			"Set\x00\xff": func(k stampede.Key) { c.set(k, c.entry("set")) },
			"Delete {}":   func(k stampede.Key) { c.delete(k, c.key("with others")) },
			"Expire:":     func(k stampede.Key) { c.expire(k) },
		} {
			// A subscription that does not stand yet may miss some.
			c.eventually("told of "+name, func() bool {
				change(c.key(name))
				mu.Lock()
				defer mu.Unlock()
				return got[name]
			})
		}
		mu.Lock()
		defer mu.Unlock()
		if foreign > 0 {
			c.Error("told of keys of another space")
		}
	}},
	{"DropsEndWithStop", func(c *check) {
		var mu sync.Mutex // protects stopped and others
		stopped, others := map[string]int{}, map[string]int{}
		stop := c.store.Drops(c.space, func(key string) { mu.Lock(); stopped[key]++; mu.Unlock() })
		defer c.store.Drops(c.space, func(key string) { mu.Lock(); others[key]++; mu.Unlock() })()
		for _, name := range []string{"before", "after"} {
			c.eventually("told of a Delete "+name, func() bool {
				c.delete(c.key(name))
				mu.Lock()
				defer mu.Unlock()
				return others[name] > 0 && (name == "after" || stopped[name] > 0)
			})
			if name == "before" {
				stop()
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if stopped["after"] > 0 {
			c.Error("told after stop")
		}
	}},
}
