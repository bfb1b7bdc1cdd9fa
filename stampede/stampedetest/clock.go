package stampedetest

import (
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// moment is when something began, by the store's clock as well as the test can know it.
type moment struct {
	moved time.Duration
	at    time.Time
}

// now returns the moment before the step that comes next.
func (c *check) now() moment { return moment{c.moved, time.Now()} }

func (c *check) advance(d time.Duration) {
	if d > 0 {
		c.cfg.advance(c.store, d)
		c.moved += d
	}
}

// after waits until what began at since has lasted d: cond must become true then, and not sooner.
// Where time cannot be moved it asks again and again.
func (c *check) after(since moment, d time.Duration, what string, cond func() bool) {
	c.Helper()
	if c.cfg.advance != nil {
		if wait := since.moved + d - jitter - c.moved; wait > 0 {
			c.advance(wait)
			if cond() {
				c.Fatalf("%s too early, before %v", what, d)
			}
		}
		c.advance(since.moved + d + jitter - c.moved)
		if !cond() {
			c.Fatalf("not so after %v: %s", d, what)
		}
		return
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if <-tick.C; time.Since(since.at) > d+grace {
			c.Fatalf("not so %v after it was due: %s", grace, what)
		}
	}
	if passed := time.Since(since.at); passed < d-jitter {
		c.Fatalf("%s too early, after %v, want %v", what, passed, d)
	}
}

// pass lets d pass by the store's clock: until a lease of that length has ended.
func (c *check) pass(d time.Duration) {
	c.Helper()
	k := c.key("clock" + d.String())
	began := c.now()
	c.leadFor(k, d)
	c.after(began, d, "the lease of a clock has ended", func() bool {
		return c.elect(k, stampede.Stamp{}).Role == stampede.RoleLeader
	})
	c.delete(k)
}

// eventually waits for what happens by itself.
func (c *check) eventually(what string, cond func() bool) {
	c.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(grace); !cond(); <-tick.C {
		if time.Now().After(end) {
			c.Fatalf("not so after %v: %s", grace, what)
		}
	}
}

// ages demands that the entry of k is no better than want from d after since on, and not before.
func (c *check) ages(k stampede.Key, since moment, d time.Duration, want stampede.Freshness) {
	c.Helper()
	var got stampede.Freshness
	c.after(since, d, "the entry is "+freshnessName(want), func() bool {
		e := c.read(k)
		got = e.Freshness()
		return got <= want
	})
	// Where time is real, the test may have been held up for longer than the next window lasts.
	if c.cfg.advance != nil && got != want {
		c.Fatalf("the entry is %s after %v, want %s", freshnessName(got), d, freshnessName(want))
	}
}

// dies demands that the entry of k is dead from d after since on, and not before, and then gone.
func (c *check) dies(k stampede.Key, since moment, d time.Duration) {
	c.Helper()
	c.ages(k, since, d, stampede.Dead)
	// In the last part of its last millisecond, an entry is still there, with nothing left.
	var e stampede.Entry
	c.eventually("the entry is gone", func() bool {
		e = c.read(k)
		return e.Stamp == stampede.Stamp{}
	})
	c.zero(e)
}

// left demands that left is what remains of life, which began at since.
func (c *check) left(left time.Duration, since moment, life time.Duration) {
	c.Helper()
	upto := life
	if c.cfg.advance != nil {
		upto -= c.moved - since.moved
	}
	from := upto - jitter
	if c.cfg.advance == nil {
		from -= time.Since(since.at)
	}
	if left < from || left > upto+jitter {
		c.Fatalf("%v are left, want %v to %v", left, from, upto)
	}
}
