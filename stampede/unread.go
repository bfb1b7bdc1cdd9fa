package stampede

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/herdgate/herdgate/internal/flight"
)

// This file is about callers that do not read before they wait: those who come while a flight is known to wait for a
// load, and those who stand for election at once.
//
// Why an election need not come after a read. An election looks at the entry itself, in the same step in which it grants
// the lease, and brings it along. So a read before it only tells whether there is any need for one; and where there
// likely is, as this pod's copies tell, it is a request, and a round trip of whoever waits, for nothing. What an election
// costs beyond a read where there is none is time of Redis, so it is held only as long as the guesses prove right.
//
// What a caller has not seen it must not miss. What is fresh or stale the election brings. Else, unless it has seen that
// there is nothing at all, a caller who gets no value reads after all, before it takes an error or does
// anything by itself: there may be something for StaleIfError, and a closed guard or an election that is not answered
// says nothing about what a read would bring. An election is given half of the budget, so that there is some left for that. It
// is on the budget of all who wait for it. One that was not answered may have been held all the same: its lease is an
// orphan, which nobody in this pod follows.
//
// Where options make it matter whether a caller waits, so that it may not before it has looked, it reads: SoftTimeout,
// MaxWaiters, MaxLoads, FleetLoads; and Tags, which elections know nothing of.

// expectation is what this pod's copies say about the entry of a key.
type expectation uint8

const (
	noIdea      expectation = iota // and, likely, it is fresh
	likelyStale                    // somebody has to load it, behind
	likelyGone                     // and who comes has to wait
)

// odds is how often expectations prove right, of 256, and how long reads take, both smoothed. They are guesses that what
// comes corrects: an update that is lost to another one does not matter.
type odds struct {
	stale, gone atomic.Int32
	read        atomic.Int64
}

// trust begins with trust in copies that went stale. That there is no copy says nothing in a pod that has just started.
func (o *odds) trust() { o.stale.Store(256) }

func (o *odds) of(x expectation) *atomic.Int32 {
	if x == likelyStale {
		return &o.stale
	}
	return &o.gone
}

// good says whether it proves right often enough, and there is ample time for another step if it does not.
func (o *odds) good(x expectation, left time.Duration) bool {
	return x != noIdea && o.of(x).Load() > 64 && time.Duration(o.read.Load()) < left/8
}

// took is told how long a read took.
func (o *odds) took(d time.Duration) {
	was := o.read.Load()
	o.read.Store(was + (int64(d)-was)/8)
}

// saw is told what there was.
func (o *odds) saw(x expectation, e *Entry, err error) {
	if x == noIdea || err != nil {
		return
	}
	right := int32(0)
	if fr := servable(e); fr == Stale && x == likelyStale || fr < Stale {
		right = 256
	}
	n := o.of(x)
	was := n.Load()
	n.Store(was + (right-was)/16)
}

// bad forgets what speaks for elections.
func (o *odds) bad(x expectation) { o.of(x).Store(0) }

// expects returns what a copy, or that there is none, says of an entry that nobody has looked at.
func (g *Guard[T]) expects(key string, p *pocket) expectation {
	switch now := g.local.now(); {
	case p == nil || now >= p.end:
		return likelyGone
	case now < p.stale || g.holds.active(key, p.stamp):
		return noIdea
	}
	return likelyStale
}

// mayGoBlind says whether callers may stand for election without having looked.
func (g *Guard[T]) mayGoBlind() bool {
	o := &g.opts
	return g.local != nil && !o.Tags && o.SoftTimeout == 0 && o.MaxWaiters == 0 && !g.bounded(true)
}

// joinUnread joins a flight, or starts one, for a caller that need not read first; ok is false if it has to.
func (c *caller[T]) joinUnread() (t flight.Ticket[outcome[T]], ok bool) {
	g := c.g
	if t, ok = g.flights.JoinLooked(c.key, lookEvery); ok {
		c.q.since = time.Now()
		if c.blind = t.Guess(); c.blind {
			g.account(c.ctx, g.local.peek(c.key), &c.q)
		} else {
			c.missed()
		}
		return t, true
	}
	if !g.blindly || g.mode.now() != Normal {
		return t, false
	}
	p := g.local.peek(c.key)
	if c.q.expected = g.expects(c.key, p); c.q.expected == noIdea {
		return t, false
	}
	g.account(c.ctx, p, &c.q)
	if !g.odds.good(c.q.expected, c.q.left) || isLoading(c.ctx, g.place, c.key) {
		return t, false
	}
	q := c.q
	q.blind, q.since = true, time.Now()
	if t, ok = g.flights.JoinUnseen(c.key, q.expected == likelyGone, c.flight(q)); ok {
		c.blind, c.q.since = true, q.since
	}
	return t, ok
}

// reloadUnread starts a load behind for a copy that is served, without a look at the store, if it is time for one.
func (g *Guard[T]) reloadUnread(ctx context.Context, key string, load loader[T], p *pocket, now time.Duration) (started bool) {
	if !g.blindly || now < p.load || !g.odds.good(likelyStale, g.opts.StoreBudget) {
		return false
	}
	q := ask[T]{reason: WentStale, seen: p.stamp}
	if now < p.stale {
		q.reason = NearlyStale
	}
	return g.reload(ctx, key, load, q)
}

// mustLook says whether a caller that has not looked has to, instead of taking what its flight brings.
func (c *caller[T]) mustLook(out *outcome[T], starter bool) bool {
	switch out.kind {
	case gotValue:
		return out.private && !starter
	case gotError:
		if !out.waited || time.Since(c.q.since) >= c.g.opts.WaitTimeout {
			c.failed = out.err
		}
		return true
	case loadSelf:
		return true
	}
	return false // it will in any case
}

// seen is told what the first election of a flight has found, if nobody had looked before: what a read does then.
func (j *job[T]) seen(e *Entry, r *Result[T]) {
	g, q := j.g, &j.q
	g.odds.saw(q.expected, e, nil)
	switch servable(e) {
	case Dead:
		g.local.gone(j.k.Key)
		g.lengthen(j.k.Key, q)
		return
	case OnlyIfError:
		alt := *r // a copy, so that r stays off the heap
		q.alt = &alt
	}
	q.reason = WentStale
}

// wasHit counts a call that an election has served.
func (c *caller[T]) wasHit(fr Freshness) {
	c.hit = true
	if fr == Stale {
		c.g.events.emit(EventStale, c.key, 0, nil)
	} else {
		c.g.events.emit(EventHit, c.key, 0, nil)
	}
}

// instead returns what there is for a caller whose load has failed, as it sees now that it has looked; else the error.
func (c *caller[T]) instead(l *lookup[T]) (Result[T], error) {
	switch {
	case l.err != nil && over(c.ctx) != nil:
		return Result[T]{}, over(c.ctx)
	case l.err != nil:
		if out, ok := c.g.copied(c.ctx, c.key, c.load); ok {
			return out.result, out.err
		}
	case servable(&l.e) == OnlyIfError:
		c.missed()
		alt := l.r // a copy, so that l stays off the heap
		c.q.alt = &alt
		return c.ifError(), nil
	}
	c.missed()
	return Result[T]{}, c.failed
}
