package stampedetest

import (
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// lastly demands that others back off for d after this failure, and returns when it was.
func (c *check) lastly(k stampede.Key, lease stampede.Stamp, backoff stampede.Backoff, d time.Duration) moment {
	c.Helper()
	began := c.now()
	if got := c.failed(k, lease, backoff); got != d {
		c.Fatalf("Fail: back-off of %v, want %v", got, d)
	}
	el := c.elect(k, c.read(k).Stamp)
	c.role(el, stampede.RoleBackOff)
	c.left(el.Left, began, d)
	return began
}

// probe waits for the end of a back-off, and returns the lease that is granted then.
func (c *check) probe(k stampede.Key, began moment, d time.Duration) (lease stampede.Stamp) {
	c.Helper()
	c.after(began, d, "there is a leader", func() bool {
		el := c.elect(k, c.read(k).Stamp)
		lease = el.Lease
		return el.Role == stampede.RoleLeader
	})
	return lease
}

var backoffTests = []storeTest{
	{"FailuresInARowDoubleTheBackOff", func(c *check) {
		k := c.key("k")
		backoff := stampede.Backoff{First: short, Max: 3 * short}
		lease := c.lead(k)
		for _, d := range []time.Duration{short, 2 * short, 3 * short, 3 * short} {
			began := c.lastly(k, lease, backoff, d)
			lease = c.probe(k, began, d)
			c.role(c.elect(k, stampede.Stamp{}), stampede.RoleFollower) // one is elected, not all
		}
	}},
	{"ABackOffWithoutALargerBoundIsConstant", func(c *check) {
		for _, most := range []time.Duration{0, short / 2, short} {
			k := c.key(most.String())
			backoff := stampede.Backoff{First: short, Max: most}
			began := c.lastly(k, c.lead(k), backoff, short)
			c.lastly(k, c.probe(k, began, short), backoff, short)
		}
	}},
	{"FailuresAreRememberedBeyondTheBackOff", func(c *check) {
		k := c.key("k")
		backoff := stampede.Backoff{First: short, Max: 20 * short}
		c.lastly(k, c.lead(k), backoff, short)
		c.pass(2 * short)
		lease := c.lead(k)
		c.renew(k, lease, long, stampede.Held)
		c.lastly(k, lease, backoff, 2*short)
	}},
	{"FailuresAreForgottenAtLast", func(c *check) {
		k := c.key("k")
		backoff := stampede.Backoff{First: short, Max: 2 * short}
		c.lastly(k, c.lead(k), backoff, short)
		c.pass(3*short + jitter)
		c.lastly(k, c.lead(k), backoff, short)
	}},
	{"FailTwiceCountsOnce", func(c *check) {
		k := c.key("k")
		lease := c.lead(k)
		backoff := stampede.Backoff{First: 4 * short, Max: long}
		began := c.lastly(k, lease, backoff, 4*short)
		for range 3 {
			c.left(c.failed(k, lease, backoff), began, 4*short)
		}
		next := c.probe(k, began, 4*short)
		if d := c.failed(k, lease, backoff); d != 0 {
			c.Errorf("Fail of the load before: back-off of %v, want none", d)
		}
		c.lastly(k, next, backoff, 8*short)
	}},
	{"FailOfWhatIsNotHeldHasNoBackOff", func(c *check) {
		k := c.key("k")
		backoff := stampede.Backoff{First: long, Max: 2 * long}
		for _, held := range []bool{false, true} {
			if held {
				c.lead(k)
			}
			if d := c.failed(k, stampede.NewStamp(), backoff); d != 0 {
				c.Errorf("back-off of %v, want none", d)
			}
		}
		c.role(c.elect(k, stampede.Stamp{}), stampede.RoleFollower)
	}},
	{"TheNextLeaseEndsABackOffMarker", func(c *check) {
		k := c.key("k")
		lease := c.lead(k)
		began := c.lastly(k, lease, stampede.Backoff{First: short, Max: long}, short)
		next := c.probe(k, began, short)
		c.verdict(k, lease, c.entry("of a load under the marker"), stampede.Refused)
		c.refuse(k, lease, c.entry("of the load that failed"))
		c.renew(k, lease, long, stampede.Taken)
		c.accept(k, next, c.entry("next"))
		c.holds(k, "next")
	}},
	{"WhatEndsTheFailuresInARow", func(c *check) {
		backoff := stampede.Backoff{First: short, Max: long}
		for name, end := range map[string]func(k stampede.Key, lease stampede.Stamp){
			"Commit":  func(k stampede.Key, lease stampede.Stamp) { c.accept(k, lease, c.entry("commit")) },
			"Release": func(k stampede.Key, lease stampede.Stamp) { c.release(k, lease, stampede.Pass{}) },
			"Set":     func(k stampede.Key, _ stampede.Stamp) { c.set(k, c.entry("set")) },
			"Delete":  func(k stampede.Key, _ stampede.Stamp) { c.delete(k) },
			"Expire":  func(k stampede.Key, _ stampede.Stamp) { c.expire(k) },
		} {
			for _, warm := range []bool{false, true} {
				k := c.key(name)
				if warm {
					k = c.key(name + ", stale")
					c.stale(k, "stale")
				}
				began := c.lastly(k, c.lead(k), backoff, short)
				end(k, c.probe(k, began, short))
				if c.lastly(k, c.lead(k), backoff, short); name == "Commit" || name == "Release" {
					continue
				}
				end(k, stampede.Stamp{}) // the marker
				c.lastly(k, c.lead(k), backoff, short)
			}
		}
		k := c.key("CommitMarked")
		lease := c.lead(k)
		c.lastly(k, lease, backoff, short)
		c.verdict(k, lease, c.entry("marked"), stampede.Accepted)
		c.lastly(k, c.lead(k), backoff, short)
	}},
}
