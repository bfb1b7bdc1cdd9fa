package stampedetest

import (
	"time"

	"github.com/herdgate/herdgate/stampede"
)

var leaseTests = []storeTest{
	{"RenewProlongsTheLease", func(c *check) {
		k := c.key("k")
		lease := c.leadFor(k, short)
		began := c.now()
		c.renew(k, lease, 2*short, stampede.Held)
		el := c.elect(k, stampede.Stamp{})
		c.role(el, stampede.RoleFollower)
		if el.Lease != lease {
			c.Error("renewing changed the stamp")
		}
		c.left(el.Left, began, 2*short)
		c.after(began, 2*short, "there is another leader", func() bool {
			return c.elect(k, stampede.Stamp{}).Role == stampede.RoleLeader
		})
	}},
	{"RenewCountsFromNow", func(c *check) {
		k := c.key("k")
		lease := c.lead(k)
		began := c.now()
		c.renew(k, lease, short, stampede.Held)
		c.after(began, short, "there is another leader", func() bool {
			return c.elect(k, stampede.Stamp{}).Role == stampede.RoleLeader
		})
		c.renew(k, lease, long, stampede.Taken)
	}},
	{"RenewNeverTakesALease", func(c *check) {
		for name, end := range map[string]func(k stampede.Key, lease stampede.Stamp){
			"never held": func(stampede.Key, stampede.Stamp) {},
			"Delete":     func(k stampede.Key, _ stampede.Stamp) { c.delete(k) },
			"Set":        func(k stampede.Key, _ stampede.Stamp) { c.set(k, c.entry("set")) },
			"Expire":     func(k stampede.Key, _ stampede.Stamp) { c.expire(k) },
			"Commit":     func(k stampede.Key, lease stampede.Stamp) { c.accept(k, lease, c.entry("commit")) },
			"Release":    func(k stampede.Key, lease stampede.Stamp) { c.release(k, lease, stampede.Pass{}) },
		} {
			k := c.key(name)
			lease := stampede.NewStamp()
			if name != "never held" {
				lease = c.lead(k)
			}
			end(k, lease)
			c.renew(k, lease, long, stampede.Absent)
			c.free(k)
		}
	}},
	{"RenewNeverTakesALeaseThatRanOut", func(c *check) {
		k := c.key("k")
		lease := c.leadFor(k, short)
		c.pass(short)
		c.renew(k, lease, long, stampede.Absent)
		c.free(k)
	}},
	{"RenewTellsThatAnotherHoldsTheLease", func(c *check) {
		k := c.key("k")
		old := c.lead(k)
		c.delete(k)
		began := c.now()
		lease := c.lead(k)
		near := lease
		near[len(near)-1]++
		for _, other := range []stampede.Stamp{old, near, {}} {
			c.renew(k, other, 2*long, stampede.Taken)
		}
		el := c.elect(k, stampede.Stamp{})
		c.role(el, stampede.RoleFollower)
		c.left(el.Left, began, long)
		c.taken(k, lease)
	}},
	{"RenewDoesNotTakeAMarkerForALease", func(c *check) {
		k := c.key("k")
		lease := c.lead(k)
		c.fail(k, lease, long)
		c.renew(k, lease, long, stampede.Absent)
		c.renew(k, stampede.NewStamp(), long, stampede.Absent)
		c.role(c.elect(k, stampede.Stamp{}), stampede.RoleBackOff)
		c.delete(k)
		lease = c.lead(k)
		c.release(k, lease, stampede.Pass{For: long})
		c.renew(k, lease, long, stampede.Absent)
		c.role(c.elect(k, stampede.Stamp{}), stampede.RolePass)
	}},

	{"FailMakesOthersBackOff", func(c *check) {
		k := c.key("k")
		lease := c.lead(k)
		began := c.now()
		c.fail(k, lease, long)
		for range 2 {
			el := c.elect(k, stampede.Stamp{})
			c.role(el, stampede.RoleBackOff)
			c.left(el.Left, began, long)
			c.zero(el.Entry)
			if el.Lease != lease {
				c.Error("a back-off does not come with the stamp of the load that left it")
			}
		}
		// Also the one whose load failed, when it asks with the same token.
		c.role(c.vote(k, stampede.Ballot{Token: lease.Token(), Length: long}), stampede.RoleBackOff)
	}},
	{"FailLeavesTheEntryAlone", func(c *check) {
		k := c.key("k")
		c.set(k, c.entry("payload"))
		before := c.read(k)
		c.fail(k, c.lead(k), long)
		if after := c.holds(k, "payload"); after.Stamp != before.Stamp || after.Freshness() != stampede.Fresh {
			c.Errorf("Fail changed the entry: %+v", after)
		}
		c.role(c.elect(k, stampede.Stamp{}), stampede.RoleFresh)
		c.role(c.elect(k, before.Stamp), stampede.RoleBackOff)
	}},
	{"FailBacksOffOnlyForItsTime", func(c *check) {
		k := c.key("k")
		lease := c.lead(k)
		began := c.now()
		c.fail(k, lease, short)
		c.after(began, short, "there is a leader", func() bool {
			return c.elect(k, stampede.Stamp{}).Role == stampede.RoleLeader
		})
	}},
	{"FailTwiceIsFailOnce", func(c *check) {
		k := c.key("k")
		lease := c.lead(k)
		began := c.now()
		c.fail(k, lease, long)
		c.fail(k, lease, 3*long)
		c.release(k, lease, stampede.Pass{For: 3 * long})
		el := c.elect(k, stampede.Stamp{})
		c.role(el, stampede.RoleBackOff)
		c.left(el.Left, began, long)
	}},

	{"ReleaseLeavesNothing", func(c *check) {
		k := c.key("k")
		c.release(k, c.lead(k), stampede.Pass{})
		c.none(k)
		c.free(k)
		c.stale(k, "stale")
		c.release(k, c.lead(k), stampede.Pass{Unshared: true})
		c.holds(k, "stale")
		c.free(k)
	}},
	{"ReleaseWithAPassLetsOthersLoadBeside", func(c *check) {
		for _, unshared := range []bool{false, true} {
			k := c.key("shared")
			if unshared {
				k = c.key("unshared")
			}
			lease := c.lead(k)
			began := c.now()
			c.release(k, lease, stampede.Pass{For: long, Unshared: unshared})
			for range 2 {
				el := c.elect(k, stampede.Stamp{})
				c.role(el, stampede.RolePass)
				c.left(el.Left, began, long)
				c.zero(el.Entry)
				if el.Unshared != unshared {
					c.Errorf("Unshared %v, want %v", el.Unshared, unshared)
				}
			}
			c.release(k, lease, stampede.Pass{}) // not held any more
			c.role(c.elect(k, stampede.Stamp{}), stampede.RolePass)
		}
	}},
	{"ReleaseWithAPassEndsWithItsTime", func(c *check) {
		k := c.key("k")
		lease := c.lead(k)
		began := c.now()
		c.release(k, lease, stampede.Pass{For: short})
		c.after(began, short, "there is a leader", func() bool {
			return c.elect(k, stampede.Stamp{}).Role == stampede.RoleLeader
		})
	}},
	{"ReleaseAfterACommitChangesNothing", func(c *check) {
		k := c.key("k")
		lease := c.lead(k)
		c.accept(k, lease, c.entry("payload"))
		c.release(k, lease, stampede.Pass{For: long})
		c.fail(k, lease, long)
		c.holds(k, "payload")
		c.free(k)
	}},

	{"AForeignStampChangesNothing", func(c *check) {
		k := c.key("k")
		c.stale(k, "stale")
		began := c.now()
		lease := c.lead(k)
		near := lease
		near[len(near)-1]++
		for _, other := range []stampede.Stamp{{}, near, stampede.NewStamp()} {
			c.fail(k, other, 5*time.Second)
			c.release(k, other, stampede.Pass{})
			c.release(k, other, stampede.Pass{For: 5 * time.Second})
			c.renew(k, other, 2*long, stampede.Taken)
			el := c.elect(k, stampede.Stamp{})
			c.role(el, stampede.RoleFollower)
			c.left(el.Left, began, long)
		}
		c.holds(k, "stale")
		c.accept(k, lease, c.entry("payload"))
		for _, other := range []stampede.Stamp{{}, stampede.NewStamp()} {
			c.fail(k, other, long)
			c.release(k, other, stampede.Pass{For: long})
		}
		c.holds(k, "payload")
		c.free(k)
	}},
	{"MarkersAreClearedByWhoChangesTheKey", func(c *check) {
		for name, change := range map[string]func(stampede.Key){
			"Set":    func(k stampede.Key) { c.set(k, c.entry("set")) },
			"Delete": func(k stampede.Key) { c.delete(k) },
			"Expire": func(k stampede.Key) { c.expire(k) },
		} {
			for _, warm := range []bool{false, true} {
				k := c.key(name + " back-off")
				p := c.key(name + " pass")
				if warm {
					k, p = c.key(name+" back-off, stale"), c.key(name+" pass, stale")
					c.stale(k, "stale")
					c.stale(p, "stale")
				}
				c.fail(k, c.lead(k), long)
				change(k)
				c.free(k)
				c.release(p, c.lead(p), stampede.Pass{For: long})
				change(p)
				c.free(p)
			}
		}
	}},
}
