package stampedetest

import (
	"context"

	"github.com/herdgate/herdgate/stampede"
)

func (c *check) commitMarked(k stampede.Key, marker stampede.Stamp, e stampede.Entry) (v stampede.Verdict) {
	c.Helper()
	c.step("CommitMarked", func(ctx context.Context) (err error) {
		v, err = c.store.CommitMarked(ctx, k, marker, e)
		return
	})
	return v
}

// verdict commits under a marker and demands a verdict.
func (c *check) verdict(k stampede.Key, marker stampede.Stamp, e stampede.Entry, want stampede.Verdict) {
	c.Helper()
	if v := c.commitMarked(k, marker, e); v != want {
		c.Fatalf("CommitMarked: verdict %s, want %s", verdictName(v), verdictName(want))
	}
}

// markers are the ways to leave a marker.
var markers = map[string]func(c *check, k stampede.Key, lease stampede.Stamp){
	"fail": func(c *check, k stampede.Key, lease stampede.Stamp) { c.fail(k, lease, long) },
	"pass": func(c *check, k stampede.Key, lease stampede.Stamp) {
		c.release(k, lease, stampede.Pass{For: long})
	},
}

var markedTests = []storeTest{
	{"TheFirstLoadUnderAMarkerIsStored", func(c *check) {
		for name, leave := range markers {
			k := c.key(name)
			leave(c, k, c.lead(k))
			marker := c.elect(k, stampede.Stamp{}).Lease
			w := c.watch(k)
			c.verdict(k, stampede.NewStamp(), c.entry("stranger"), stampede.Refused)
			c.verdict(k, marker, c.entry("first"), stampede.Accepted)
			c.told(w, "CommitMarked")
			c.verdict(k, marker, c.entry("second"), stampede.Refused)
			c.holds(k, "first")
			if c.read(k).Stamp == marker {
				c.Fatal("the entry has the stamp of the marker, as that of the next load under it would")
			}
			c.refuse(k, marker, c.entry("the load that left it"))
			c.role(c.elect(k, c.read(k).Stamp), stampede.RoleLeader)
		}
	}},
	{"AMarkerThatWasEndedIsOfNoMoreUse", func(c *check) {
		for name, leave := range markers {
			for what, end := range map[string]func(k stampede.Key){
				"delete": func(k stampede.Key) { c.delete(k) },
				"expire": func(k stampede.Key) { c.expire(k) },
				"set":    func(k stampede.Key) { c.set(k, c.entry("set")) },
			} {
				k := c.key(name + what)
				leave(c, k, c.lead(k))
				marker := c.elect(k, stampede.Stamp{}).Lease
				end(k)
				c.verdict(k, marker, c.entry("late"), stampede.Refused)
			}
		}
	}},
	{"ALoadBesideALeaseIsStoredWhileThatStands", func(c *check) {
		k := c.key("k")
		lease := c.lead(k)
		w := c.watch(k)
		c.verdict(k, lease, c.entry("beside"), stampede.Accepted)
		c.told(w, "CommitMarked")
		c.verdict(k, lease, c.entry("another beside"), stampede.Refused)
		c.refuse(k, lease, c.entry("the holder's"))
		c.holds(k, "beside")
		if c.read(k).Stamp == lease {
			c.Fatal("the entry has the stamp of the lease: the holder would take it for its own")
		}
	}},
	{"ALoadBesideALeaseIsStoredUnderTheMarkerThatItLeaves", func(c *check) {
		for name, leave := range markers {
			k := c.key(name)
			lease := c.lead(k)
			leave(c, k, lease)
			c.verdict(k, lease, c.entry("beside"), stampede.Accepted)
		}
	}},
	{"ALeaseThatWasEndedIsOfNoMoreUseToWhoLoadsBeside", func(c *check) {
		for what, end := range map[string]func(k stampede.Key, lease stampede.Stamp){
			"commit":  func(k stampede.Key, lease stampede.Stamp) { c.accept(k, lease, c.entry("the holder's")) },
			"release": func(k stampede.Key, lease stampede.Stamp) { c.release(k, lease, stampede.Pass{}) },
			"delete":  func(k stampede.Key, _ stampede.Stamp) { c.delete(k) },
			"expire":  func(k stampede.Key, _ stampede.Stamp) { c.expire(k) },
			"set":     func(k stampede.Key, _ stampede.Stamp) { c.set(k, c.entry("set")) },
			"another": func(k stampede.Key, _ stampede.Stamp) { c.delete(k); c.lead(k) },
		} {
			k := c.key(what)
			lease := c.lead(k)
			end(k, lease)
			c.verdict(k, lease, c.entry("late"), stampede.Refused)
		}
	}},
	{"AMarkerIsNoLease", func(c *check) {
		for name, leave := range markers {
			k := c.key(name)
			lease := c.lead(k)
			leave(c, k, lease)
			c.refuse(k, lease, c.entry("late"))
			c.none(k)
		}
	}},
}
