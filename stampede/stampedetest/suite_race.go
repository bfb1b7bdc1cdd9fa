package stampedetest

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/herdgate/herdgate/stampede"
)

const (
	crowd  = 32 // goroutines
	rounds = 20
)

// together calls fn n times at once. fn must not end the test.
func together(n int, fn func(i int)) {
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	ready.Add(n)
	for i := range n {
		done.Go(func() {
			ready.Done()
			<-start
			fn(i)
		})
	}
	ready.Wait()
	close(start)
	done.Wait()
}

// try is a step of many at once: a failure is reported, but does not end the goroutine.
func (c *check) try(err error) {
	c.Helper()
	if err != nil {
		c.Error(err)
	}
}

var raceTests = []storeTest{
	{"OneOfACrowdLeads", func(c *check) {
		for round := range rounds {
			k := c.key(fmt.Sprint(round))
			if round%2 == 1 {
				c.stale(k, "stale")
			}
			elections := make([]stampede.Election, crowd)
			together(crowd, func(i int) {
				var err error
				elections[i], err = c.store.Elect(c.Context(), k, stampede.Ballot{Token: stampede.NewToken(), Length: long})
				c.try(err)
			})
			var lease stampede.Stamp
			leaders := 0
			for _, el := range elections {
				if el.Role == stampede.RoleLeader {
					leaders, lease = leaders+1, el.Lease
				}
			}
			if leaders != 1 {
				c.Fatalf("%d leaders, want 1", leaders)
			}
			for _, el := range elections {
				if el.Role != stampede.RoleLeader && (el.Role != stampede.RoleFollower || el.Lease != lease) {
					c.Fatalf("a follower follows another lease, as %s", roleName(el.Role))
				}
			}
			c.accept(k, lease, c.entry("payload"))
		}
	}},
	{"NoTwoLoadAtATime", func(c *check) {
		k := c.key("k")
		var loading, accepted atomic.Int32
		together(8, func(i int) {
			for n := range 50 {
				e, err := c.store.Read(c.Context(), k)
				c.try(err)
				el, err := c.store.Elect(c.Context(), k, stampede.Ballot{Token: stampede.NewToken(), Length: long, Seen: e.Stamp})
				c.try(err)
				if el.Role != stampede.RoleLeader {
					continue
				}
				if loading.Add(1) > 1 {
					c.Error("two hold the lease")
				}
				_, err = c.store.Renew(c.Context(), k, el.Lease, long)
				c.try(err)
				loading.Add(-1)
				if (i+n)%3 == 0 {
					c.try(c.store.Release(c.Context(), k, el.Lease, stampede.Pass{}))
					continue
				}
				v, err := c.store.Commit(c.Context(), k, el.Lease, c.entry("payload"))
				c.try(err)
				if v != stampede.Accepted {
					c.Errorf("the commit of the holder: %s", verdictName(v))
				}
				accepted.Add(1)
			}
		})
		if accepted.Load() == 0 {
			c.Error("nobody ever led")
		}
	}},
	{"WhoChangesTheKeyWinsOverACommitAtTheSameTime", func(c *check) {
		for round := range 3 * rounds {
			k := c.key(fmt.Sprint(round))
			lease := c.lead(k)
			together(2, func(i int) {
				switch {
				case i == 0:
					_, err := c.store.Commit(c.Context(), k, lease, c.entry("commit"))
					c.try(err)
				case round%3 == 0:
					c.try(c.store.Delete(c.Context(), k))
				case round%3 == 1:
					c.try(c.store.Set(c.Context(), k, c.entry("set")))
				default:
					c.try(c.store.Expire(c.Context(), k))
				}
			})
			e := c.read(k)
			switch {
			case round%3 == 0:
				c.zero(e)
			case round%3 == 1:
				c.is(e, "set")
			case e.Freshness() == stampede.Fresh:
				c.Fatal("the entry is fresh after Expire")
			}
		}
	}},
}
