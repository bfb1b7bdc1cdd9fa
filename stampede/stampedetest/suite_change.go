package stampedetest

import (
	"fmt"

	"github.com/herdgate/herdgate/stampede"
)

var setTests = []storeTest{
	{"SetWritesUnderANewStamp", func(c *check) {
		k := c.key("k")
		seen := map[stampede.Stamp]bool{}
		for range 3 {
			c.set(k, c.entry("same"))
			e := c.holds(k, "same")
			if seen[e.Stamp] {
				c.Error("two Sets wrote under one stamp")
			}
			seen[e.Stamp] = true
		}
	}},
	{"SetReplacesAnExpiredEntry", func(c *check) {
		k := c.key("k")
		c.stale(k, "stale")
		c.set(k, c.entry("set"))
		if e := c.holds(k, "set"); e.Expired || e.Freshness() != stampede.Fresh {
			c.Errorf("the entry is %+v, want a fresh one", e)
		}
	}},
	{"SetEndsTheLease", func(c *check) {
		k := c.key("k")
		lease := c.lead(k)
		c.set(k, c.entry("set"))
		c.renew(k, lease, long, stampede.Absent)
		c.free(k)
	}},
}

var deleteTests = []storeTest{
	{"DeleteRemovesTheEntry", func(c *check) {
		k := c.key("k")
		c.set(k, c.entry("payload"))
		c.delete(k)
		c.none(k)
		el := c.elect(k, stampede.Stamp{})
		c.role(el, stampede.RoleLeader)
		c.zero(el.Entry)
	}},
	{"DeleteEndsTheLease", func(c *check) {
		k := c.key("k")
		lease := c.lead(k)
		c.delete(k)
		c.renew(k, lease, long, stampede.Absent)
		c.refuse(k, lease, c.entry("too late"))
		c.none(k)
		c.free(k)
	}},
	{"DeleteTakesManyKeysAndUnknownOnes", func(c *check) {
		c.many(c.delete, func(k stampede.Key) { c.none(k) })
	}},
	{"DeleteOfNothingIsNothing", func(c *check) {
		c.delete()
		c.delete(c.key("unknown"))
		c.none(c.key("unknown"))
	}},
}

var expireTests = []storeTest{
	{"ExpireMakesTheEntryStale", func(c *check) {
		k := c.key("k")
		c.set(k, c.entry("payload"))
		before := c.read(k)
		began := c.now()
		c.expire(k)
		e := c.holds(k, "payload")
		if e.Freshness() != stampede.Stale || !e.Expired {
			c.Errorf("the entry is %s, Expired %v; want stale, true", freshnessName(e.Freshness()), e.Expired)
		}
		if e.Stamp == before.Stamp {
			c.Error("the stamp is still the same")
		}
		if e.TTL != before.TTL || e.StaleFor != before.StaleFor {
			c.Errorf("TTL and window are %v and %v, want the writer's", e.TTL, e.StaleFor)
		}
		c.left(e.Left, began, long)
		for _, seen := range []stampede.Stamp{{}, before.Stamp} {
			el := c.elect(k, seen)
			c.role(el, stampede.RoleLeader)
			c.release(k, el.Lease, stampede.Pass{})
		}
	}},
	{"ExpireServesForTheWindowFromNowOn", func(c *check) {
		k := c.key("k")
		e := c.entry("payload")
		e.StaleFor, e.StaleIfError = short, 2*short
		c.set(k, e)
		began := c.now()
		c.expire(k)
		c.left(c.read(k).Left, began, 2*short)
		c.ages(k, began, short, stampede.OnlyIfError)
		c.dies(k, began, 2*short)
	}},
	{"ExpireDoesNotLengthenALife", func(c *check) {
		k := c.key("k")
		e := c.entry("payload")
		e.TTL, e.StaleFor = short, 3*short
		began := c.now()
		c.set(k, e)
		c.pass(2 * short)
		c.expire(k)
		if e := c.holds(k, "payload"); e.Left > 2*short+jitter {
			c.Errorf("%v are left of a life of %v, %v after it began", e.Left, 4*short, 2*short)
		}
		c.dies(k, began, 4*short)
	}},
	{"ExpireWithoutStaleForLeavesTheEntryForErrors", func(c *check) {
		k := c.key("k")
		e := c.entry("payload")
		e.StaleFor, e.StaleIfError = 0, long
		c.set(k, e)
		c.expire(k)
		if e := c.holds(k, "payload"); e.Freshness() != stampede.OnlyIfError {
			c.Errorf("the entry is %s, want only-if-error", freshnessName(e.Freshness()))
		}
	}},
	{"ExpireDeletesAnEntryWithoutWindow", func(c *check) {
		k := c.key("k")
		e := c.entry("payload")
		e.StaleFor = 0
		c.set(k, e)
		lease := c.lead(k)
		c.expire(k)
		c.none(k)
		c.refuse(k, lease, c.entry("too late"))
		c.free(k)
	}},
	{"ExpireMakesANewStampEachTime", func(c *check) {
		k := c.key("k")
		c.set(k, c.entry("payload"))
		seen := map[stampede.Stamp]bool{c.read(k).Stamp: true}
		for range 3 {
			c.expire(k)
			e := c.holds(k, "payload")
			if seen[e.Stamp] {
				c.Error("Expire left an old stamp")
			}
			if e.Freshness() != stampede.Stale {
				c.Errorf("the entry is %s, want stale", freshnessName(e.Freshness()))
			}
			seen[e.Stamp] = true
		}
	}},
	{"ExpireEndsTheLease", func(c *check) {
		for _, k := range []stampede.Key{c.key("cold"), c.key("stale")} {
			if k.Key == "stale" {
				c.stale(k, "stale")
			}
			lease := c.lead(k)
			c.expire(k)
			c.renew(k, lease, long, stampede.Absent)
			c.refuse(k, lease, c.entry("too late"))
			c.free(k)
		}
	}},
	{"ExpireKeepsThatThereIsNoSuchThing", func(c *check) {
		k := c.key("k")
		c.set(k, stampede.Entry{NotFound: true, TTL: long, StaleFor: long})
		c.expire(k)
		if e := c.read(k); !e.NotFound || e.Freshness() != stampede.Stale {
			c.Errorf("the entry is %+v, want a stale NotFound", e)
		}
	}},
	{"ExpireTakesManyKeysAndUnknownOnes", func(c *check) {
		c.many(c.expire, func(k stampede.Key) {
			if e := c.holds(k, k.Key); e.Freshness() != stampede.Stale {
				c.Errorf("the entry is %s, want stale", freshnessName(e.Freshness()))
			}
		})
		c.none(c.key("unknown"))
	}},
	{"ExpireOfNothingIsNothing", func(c *check) {
		c.expire()
		c.expire(c.key("unknown"))
		c.none(c.key("unknown"))
	}},
}

// many changes a hundred keys at once, with unknown ones, and leaves others alone.
func (c *check) many(change func(...stampede.Key), changed func(stampede.Key)) {
	c.Helper()
	keys := []stampede.Key{c.key("unknown")}
	for i := range 100 {
		k := c.key(fmt.Sprint("k", i))
		if i%2 == 0 {
			k.Space += "-other" // the keys of one call need not be of one space
		}
		c.set(k, c.entry(k.Key))
		keys = append(keys, k)
	}
	other := c.key("other")
	c.set(other, c.entry("other"))
	change(keys...)
	for _, k := range keys[1:] {
		changed(k)
	}
	if e := c.holds(other, "other"); e.Freshness() != stampede.Fresh {
		c.Error("a key that was not meant was changed")
	}
}
