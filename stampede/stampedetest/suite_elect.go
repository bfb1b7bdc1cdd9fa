package stampedetest

import (
	"time"

	"github.com/herdgate/herdgate/stampede"
)

var electTests = []storeTest{
	{"ElectMakesTheFirstTheLeader", func(c *check) {
		k := c.key("k")
		token := stampede.NewToken()
		el := c.vote(k, stampede.Ballot{Token: token, Length: long})
		c.role(el, stampede.RoleLeader)
		if el.Lease.Token() != token {
			c.Error("the stamp of the lease does not begin with the token")
		}
		c.zero(el.Entry)
		c.taken(k, el.Lease)
	}},
	{"ElectMakesOthersFollowers", func(c *check) {
		k := c.key("k")
		began := c.now()
		lease := c.lead(k)
		for range 3 {
			el := c.elect(k, stampede.Stamp{})
			c.role(el, stampede.RoleFollower)
			if el.Lease != lease {
				c.Error("the follower is told of another lease")
			}
			c.left(el.Left, began, long)
			c.zero(el.Entry)
		}
	}},
	{"ElectAnswersTheSameTokenAlike", func(c *check) {
		k := c.key("k")
		ballot := stampede.Ballot{Token: stampede.NewToken(), Length: long}
		first := c.vote(k, ballot)
		c.role(first, stampede.RoleLeader)
		c.role(c.elect(k, stampede.Stamp{}), stampede.RoleFollower)
		again := c.vote(k, ballot)
		c.role(again, stampede.RoleLeader)
		if again.Lease != first.Lease {
			c.Error("the same token was granted another stamp while its lease lasts")
		}
		c.accept(k, first.Lease, c.entry("payload"))
	}},
	{"ElectAfterARenewalAnswersTheSameTokenAlike", func(c *check) {
		k := c.key("k")
		ballot := stampede.Ballot{Token: stampede.NewToken(), Length: long}
		first := c.vote(k, ballot)
		c.renew(k, first.Lease, 2*long, stampede.Held)
		again := c.vote(k, ballot)
		c.role(again, stampede.RoleLeader)
		if again.Lease != first.Lease {
			c.Error("the same token was granted another stamp while its lease lasts")
		}
	}},
	{"ElectReturnsAFreshEntryOfAnotherVersion", func(c *check) {
		k := c.key("k")
		c.set(k, c.entry("old"))
		old := c.read(k).Stamp
		c.set(k, c.entry("new"))
		for _, seen := range []stampede.Stamp{{}, old, stampede.NewStamp()} {
			el := c.elect(k, seen)
			c.role(el, stampede.RoleFresh)
			c.is(el.Entry, "new")
			if el.Entry.Freshness() != stampede.Fresh {
				c.Errorf("the entry is %s, want fresh", freshnessName(el.Entry.Freshness()))
			}
		}
		c.free(k)
	}},
	{"ElectReturnsThatThereIsNoSuchThing", func(c *check) {
		k := c.key("k")
		c.set(k, stampede.Entry{NotFound: true, TTL: long})
		el := c.elect(k, stampede.Stamp{})
		c.role(el, stampede.RoleFresh)
		if !el.Entry.NotFound {
			c.Error("the entry is not NotFound")
		}
	}},
	{"ElectReplacesAFreshEntryThatTheCallerHasSeen", func(c *check) {
		k := c.key("k")
		c.set(k, c.entry("old"))
		el := c.elect(k, c.read(k).Stamp)
		c.role(el, stampede.RoleLeader)
		c.is(el.Entry, "old")
		c.accept(k, el.Lease, c.entry("new"))
		c.holds(k, "new")
	}},
	{"ElectLooksAtTheEntryBeforeTheLease", func(c *check) {
		k := c.key("k")
		c.set(k, c.entry("fresh"))
		seen := c.read(k).Stamp
		lease := c.lead(k)
		c.role(c.elect(k, stampede.Stamp{}), stampede.RoleFresh)
		el := c.elect(k, seen)
		c.role(el, stampede.RoleFollower)
		c.is(el.Entry, "fresh")
		c.taken(k, lease)
	}},
	{"ElectReturnsTheStaleEntryWhateverTheRole", func(c *check) {
		k := c.key("k")
		e := c.stale(k, "stale")
		same := func(el stampede.Election, want stampede.Role) {
			c.Helper()
			c.role(el, want)
			c.is(el.Entry, "stale")
			if el.Entry.Stamp != e.Stamp || el.Entry.Freshness() != stampede.Stale || !el.Entry.Expired {
				c.Errorf("the election's entry is %+v, want %+v", el.Entry, e)
			}
		}
		leader := c.elect(k, stampede.Stamp{})
		same(leader, stampede.RoleLeader)
		same(c.elect(k, e.Stamp), stampede.RoleFollower)
		c.fail(k, leader.Lease, long)
		same(c.elect(k, e.Stamp), stampede.RoleBackOff)
		c.stale(k, "stale")
		e = c.read(k)
		c.release(k, c.lead(k), stampede.Pass{For: long})
		same(c.elect(k, e.Stamp), stampede.RolePass)
	}},
	{"ElectElectsOnceTheEntryIsNotFresh", func(c *check) {
		k := c.key("k")
		e := c.entry("payload")
		e.TTL = short
		began := c.now()
		c.set(k, e)
		var el stampede.Election
		c.after(began, short, "there is a leader", func() bool {
			el = c.elect(k, stampede.Stamp{})
			return el.Role != stampede.RoleFresh
		})
		c.role(el, stampede.RoleLeader)
		c.is(el.Entry, "payload")
	}},
	{"ElectIsFreeAgainWhenTheLeaseEnds", func(c *check) {
		k := c.key("k")
		began := c.now()
		old := c.leadFor(k, short)
		var el stampede.Election
		c.after(began, short, "there is another leader", func() bool {
			el = c.elect(k, stampede.Stamp{})
			return el.Role != stampede.RoleFollower
		})
		c.role(el, stampede.RoleLeader)
		c.refuse(k, old, c.entry("old"))
		c.accept(k, el.Lease, c.entry("new"))
		c.holds(k, "new")
	}},
	{"ElectDoesNotProlongTheLeaseOfTheSameToken", func(c *check) {
		k := c.key("k")
		began := c.now()
		ballot := stampede.Ballot{Token: stampede.NewToken(), Length: short}
		first := c.vote(k, ballot)
		c.role(first, stampede.RoleLeader)
		c.after(began, short, "the lease has ended", func() bool {
			return c.vote(k, ballot).Lease != first.Lease
		})
	}},
	{"ElectGrantsTheSameTokenAnotherStampAfterEachEnd", func(c *check) {
		// A late copy of an elect, executed after the lease that its first copy took has ended, must
		// not bring back the right of a load that began with that one.
		ends := map[string]func(stampede.Key, stampede.Stamp){
			"Delete":  func(k stampede.Key, _ stampede.Stamp) { c.delete(k) },
			"Release": func(k stampede.Key, lease stampede.Stamp) { c.release(k, lease, stampede.Pass{}) },
			"Set and its end": func(k stampede.Key, _ stampede.Stamp) {
				c.set(k, c.entry("set"))
				c.delete(k)
			},
			"Expire": func(k stampede.Key, _ stampede.Stamp) { c.expire(k) },
			"Commit": func(k stampede.Key, lease stampede.Stamp) {
				c.accept(k, lease, c.entry("commit"))
				c.expire(k)
			},
			"Fail": func(k stampede.Key, lease stampede.Stamp) {
				c.fail(k, lease, long)
				c.delete(k)
			},
		}
		for name, end := range ends {
			k := c.key(name)
			ballot := stampede.Ballot{Token: stampede.NewToken(), Length: long}
			old := c.vote(k, ballot)
			c.role(old, stampede.RoleLeader)
			end(k, old.Lease)
			late := c.vote(k, ballot)
			c.role(late, stampede.RoleLeader)
			if late.Lease == old.Lease {
				c.Errorf("after %s the same token was granted the same stamp again", name)
			}
			c.refuse(k, old.Lease, c.entry("too late"))
			c.renew(k, old.Lease, long, stampede.Taken)
			c.fail(k, old.Lease, long)
			c.release(k, old.Lease, stampede.Pass{For: long})
			c.taken(k, late.Lease)
		}
	}},
	{"ElectGrantsTheSameTokenAnotherStampAfterTheLeaseRanOut", func(c *check) {
		k := c.key("k")
		ballot := stampede.Ballot{Token: stampede.NewToken(), Length: short}
		began := c.now()
		old := c.vote(k, ballot)
		c.role(old, stampede.RoleLeader)
		c.after(began, short, "the lease has ended", func() bool {
			el := c.elect(k, stampede.Stamp{})
			if el.Role == stampede.RoleLeader {
				c.release(k, el.Lease, stampede.Pass{})
			}
			return el.Role == stampede.RoleLeader
		})
		ballot.Length = long
		late := c.vote(k, ballot)
		c.role(late, stampede.RoleLeader)
		if late.Lease == old.Lease {
			c.Error("the same token was granted the same stamp again")
		}
		c.refuse(k, old.Lease, c.entry("too late"))
		c.taken(k, late.Lease)
	}},
	{"ElectGrantsAVeryShortLeaseThatEnds", func(c *check) {
		k := c.key("k")
		c.role(c.vote(k, stampede.Ballot{Token: stampede.NewToken(), Length: time.Millisecond}), stampede.RoleLeader)
		c.after(c.now(), time.Millisecond, "there is another leader", func() bool {
			return c.elect(k, stampede.Stamp{}).Role == stampede.RoleLeader
		})
	}},
}
