package stampedetest

import (
	"time"

	"github.com/herdgate/herdgate/stampede"
)

var commitTests = []storeTest{
	{"CommitWritesUnderTheStampOfTheLeaseAndEndsIt", func(c *check) {
		k := c.key("k")
		lease := c.lead(k)
		began := c.now()
		c.accept(k, lease, c.entry("payload"))
		e := c.holds(k, "payload")
		if e.Stamp != lease {
			c.Error("the entry does not carry the stamp of the lease")
		}
		c.left(e.Left, began, 2*long)
		c.renew(k, lease, long, stampede.Absent)
		c.free(k)
	}},
	{"CommitIgnoresWhatTheStoreSets", func(c *check) {
		k := c.key("k")
		lease := c.lead(k)
		e := c.entry("payload")
		e.Stamp, e.Expired, e.Left, e.Fault = stampede.NewStamp(), true, time.Second, stampede.ErrTooLarge
		c.accept(k, lease, e)
		got := c.holds(k, "payload")
		if got.Stamp != lease || got.Freshness() != stampede.Fresh || got.Fault != nil {
			c.Errorf("the writer's Stamp, Expired, Left or Fault was kept: %+v", got)
		}
	}},
	{"CommitReplacesWhatIsThere", func(c *check) {
		k := c.key("k")
		c.stale(k, "stale")
		c.accept(k, c.lead(k), c.entry("new"))
		if e := c.holds(k, "new"); e.Expired || e.Freshness() != stampede.Fresh {
			c.Errorf("the new entry is %+v, want a fresh one", e)
		}
	}},
	{"CommitIsAcceptedAgain", func(c *check) {
		k := c.key("k")
		lease := c.lead(k)
		c.accept(k, lease, c.entry("payload"))
		c.accept(k, lease, c.entry("payload"))
		c.holds(k, "payload")
		next := c.lead(k)
		c.accept(k, lease, c.entry("payload"))
		c.taken(k, next) // not ended by the copy of the other's commit
		c.accept(k, next, c.entry("next"))
		c.refuse(k, lease, c.entry("payload"))
		c.holds(k, "next")
	}},
	{"CommitIsRefusedAfterTheLeaseWasEnded", func(c *check) {
		for name, end := range map[string]func(k stampede.Key, lease stampede.Stamp){
			"Delete":            func(k stampede.Key, _ stampede.Stamp) { c.delete(k) },
			"Expire":            func(k stampede.Key, _ stampede.Stamp) { c.expire(k) },
			"Fail":              func(k stampede.Key, lease stampede.Stamp) { c.fail(k, lease, long) },
			"Release":           func(k stampede.Key, lease stampede.Stamp) { c.release(k, lease, stampede.Pass{}) },
			"Release with pass": func(k stampede.Key, lease stampede.Stamp) { c.release(k, lease, stampede.Pass{For: long}) },
		} {
			cold := c.key(name + ", cold")
			lease := c.lead(cold)
			end(cold, lease)
			c.refuse(cold, lease, c.entry("too late"))
			c.none(cold)

			warm := c.key(name + ", stale")
			c.stale(warm, "stale")
			lease = c.lead(warm)
			end(warm, lease)
			c.refuse(warm, lease, c.entry("too late"))
			if name == "Delete" {
				c.none(warm)
			} else {
				c.holds(warm, "stale")
			}
		}
	}},
	{"CommitIsRefusedAfterSet", func(c *check) {
		k := c.key("k")
		lease := c.lead(k)
		c.set(k, c.entry("set"))
		c.refuse(k, lease, c.entry("too late"))
		c.holds(k, "set")
	}},
	{"CommitIsRefusedOnceWhatItWroteIsGone", func(c *check) {
		for name, change := range map[string]func(k stampede.Key){
			"Delete": func(k stampede.Key) { c.delete(k) },
			"Set":    func(k stampede.Key) { c.set(k, c.entry("set")) },
			"Expire": func(k stampede.Key) { c.expire(k) },
		} {
			k := c.key(name)
			lease := c.lead(k)
			c.accept(k, lease, c.entry("payload"))
			change(k)
			before := c.read(k)
			c.refuse(k, lease, c.entry("payload"))
			if after := c.read(k); after.Stamp != before.Stamp || after.Freshness() != before.Freshness() {
				c.Errorf("after %s a copy of the commit changed what is stored", name)
			}
		}
	}},
	{"CommitIsRefusedWhenTheLeaseRanOut", func(c *check) {
		k := c.key("k")
		began := c.now()
		old := c.leadFor(k, short)
		c.after(began, short, "the lease has ended", func() bool {
			return c.elect(k, stampede.Stamp{}).Role == stampede.RoleLeader
		})
		c.refuse(k, old, c.entry("too late"))
		c.none(k)
	}},
	{"CommitIsRefusedWhenTheLeaseRanOutAndNobodyTookIt", func(c *check) {
		k := c.key("k")
		lease := c.leadFor(k, short)
		c.pass(short)
		c.refuse(k, lease, c.entry("too late"))
		c.none(k)
	}},
	{"CommitIsRefusedWithoutLease", func(c *check) {
		k := c.key("k")
		for _, lease := range []stampede.Stamp{{}, stampede.NewStamp()} {
			c.refuse(k, lease, c.entry("no right"))
			c.none(k)
		}
		c.set(k, c.entry("set"))
		c.refuse(k, stampede.Stamp{}, c.entry("no right"))
		c.holds(k, "set")
	}},
	{"CommitIsRefusedUnderAnothersLease", func(c *check) {
		k := c.key("k")
		lease := c.lead(k)
		near := lease
		near[len(near)-1]++ // the right token with another nonce
		for _, other := range []stampede.Stamp{{}, stampede.NewStamp(), near} {
			c.refuse(k, other, c.entry("no right"))
			c.none(k)
			c.taken(k, lease)
		}
		c.accept(k, lease, c.entry("payload"))
	}},
}
