package stampede

import (
	"context"
	"fmt"
	"time"

	"github.com/herdgate/herdgate/internal/flight"
)

// caller is a call of Get that could not be served at once, over all its rounds.
type caller[T any] struct {
	g      *Guard[T]
	ctx    context.Context
	key    string
	load   loader[T]
	q      ask[T]
	came   flight.Mark      // when it joined its first flight; zero: not yet
	miss   bool             // counted as a miss
	hit    bool             // or as a hit: it is not one any more
	blind  bool             // it has not looked what is stored: see unread.go
	failed error            // of the load that it waited for without having looked
	soft   <-chan time.Time // SoftTimeout has passed since the first time that it had an alternative
	from   time.Time        // that time
}

// missed counts the call, not its rounds.
func (c *caller[T]) missed() {
	if !c.miss && !c.hit {
		c.miss = true
		c.g.events.emit(EventMiss, c.key, 0, nil)
	}
}

// join joins the flight of the key in a group, or starts one.
func (c *caller[T]) join(flights *flight.Group[outcome[T]]) flight.Ticket[outcome[T]] {
	return flights.Join(c.key, c.q.looked, c.flight(c.q))
}

// flight returns what a flight of the caller's does.
func (c *caller[T]) flight(q ask[T]) func(*flight.Flight[outcome[T]]) outcome[T] {
	g, ctx, key, load := c.g, c.ctx, c.key, c.load // so that c stays off the heap
	return func(f *flight.Flight[outcome[T]]) outcome[T] {
		if !g.life.enter() {
			return gaveError[T](ErrClosed)
		}
		defer g.life.leave()
		return g.recompute(ctx, f, key, load, q)
	}
}

// wait waits in a flight and returns what it brings to this caller.
func (c *caller[T]) wait(t *flight.Ticket[outcome[T]]) (r Result[T], again bool, err error) {
	defer t.Leave()
	goesOn := t.Starter()
	defer func() { r.Behind = r.Behind || goesOn && !again && err == nil }()
	if !t.Starter() {
		c.load.batch.settle(c.key)
	}
	if isLoading(c.ctx, c.g.place, c.key) {
		if c.blind { // there may be something that need not be loaded
			return r, true, nil
		}
		return r, false, fmt.Errorf("%w: %q", ErrReentrant, c.key)
	}
	if c.g.bounded(true) && partOfLoad(c.ctx, c.g.place) {
		t.Lend() // the seat of that load
	}
	if most := c.g.opts.MaxWaiters; most > 0 && c.came == 0 && t.Place() > most {
		c.g.events.emit(EventOverloaded, c.key, 0, nil)
		if c.q.alt != nil {
			return c.ifError(), false, nil
		}
		return r, false, fmt.Errorf("%w: %d callers wait for %q", ErrOverloaded, most, c.key)
	}
	if c.came == 0 {
		c.came = t.Joined()
	}
	c.soft = nil
	if c.q.alt != nil && c.g.opts.SoftTimeout > 0 {
		if c.from.IsZero() {
			c.from = time.Now()
		}
		timer := time.NewTimer(c.g.opts.SoftTimeout - time.Since(c.from))
		defer timer.Stop()
		c.soft = timer.C
	}
	begun := time.Now()
	for {
		early, news := t.Early()
		if early != nil && (early.kind != loadSelf || !t.Starter()) {
			if r, again, err = c.take(early, t.Starter()); !again {
				return r, false, err
			}
			if c.blind { // who has not looked does not wait on where there is something
				c.charge(early, t.Starter(), begun)
				return r, true, nil
			}
		}
		select {
		case <-c.ctx.Done():
			return Result[T]{}, false, c.ctx.Err()
		case <-c.soft:
			return c.ifError(), false, nil
		case <-news:
		case done := <-t.Done():
			goesOn = false
			out := flight.Result[outcome[T]](done)
			r, again, err = c.take(out, t.Starter())
			c.charge(out, t.Starter(), begun)
			return r, again, err
		}
	}
}

// charge takes what a flight's steps have cost off the caller's budget, which is one over all rounds: all of it if the
// caller started it, else as far as the caller has waited for the election.
func (c *caller[T]) charge(out *outcome[T], starter bool, since time.Time) {
	switch {
	case starter:
		c.q.left = max(c.q.left-out.spent, 1)
	case c.blind || out.unread:
		d := min(out.spent, time.Since(since))
		c.q.left = max(c.q.left-d, 1)
		c.q.shared.Add(d)
	}
}

// take is the rule who may get which value. When a caller came counts from its first flight on: who goes
// round again, and finds that somebody else has begun the next load already, has a part in that.
func (c *caller[T]) take(out *outcome[T], starter bool) (r Result[T], again bool, err error) {
	if c.blind && !out.dead && c.mustLook(out, starter) {
		return r, true, nil
	}
	switch out.kind {
	case gotValue:
		if out.private && !starter {
			return c.loadSelf()
		}
		if c.came >= out.before {
			c.q.unsure = out.unsure
			return r, true, nil
		}
		r = out.result
		if c.g.opts.CopyOnRead && out.err == nil && !out.private {
			own, err := decode[T](c.g.opts.Codec, out.data)
			switch {
			case err == nil:
				r.Value = own
			case !starter:
				return c.loadSelf()
			}
		}
		switch {
		case c.blind && out.hit:
			c.wasHit(r.Freshness)
		case !starter && out.err == nil:
			r.Shared = true
			c.g.events.emit(EventWaited, c.key, 0, nil)
		}
		return r, false, out.err
	case gotError:
		if out.waited && time.Since(c.q.since) < c.g.opts.WaitTimeout {
			return r, true, nil // it has not waited for as long
		}
		if c.q.alt != nil {
			return c.ifError(), false, nil
		}
		return r, false, out.err
	case backedOff:
		if c.q.alt != nil {
			return c.ifError(), false, nil
		}
	case loadSelf:
		return c.loadSelf()
	}
	if out.lost {
		c.q.losses++
	}
	return r, true, nil
}

// ifError is the value within StaleIfError.
func (c *caller[T]) ifError() Result[T] {
	c.g.events.emit(EventIfError, c.key, 0, nil)
	return *c.q.alt
}

// loadSelf loads for this caller. Nobody else waits for it, so it ends when the caller leaves.
func (c *caller[T]) loadSelf() (Result[T], bool, error) {
	g := c.g
	if !g.life.enter() {
		return Result[T]{}, false, ErrClosed
	}
	s, err := g.takeSeat(c)
	if err != nil {
		g.life.leave()
		if c.q.alt != nil && c.ctx.Err() == nil {
			return c.ifError(), false, nil
		}
		return Result[T]{}, false, err
	}
	m := g.local.begin(c.key)
	r, err := g.start(c.ctx, c.load, &Load[T]{key: c.key, reason: c.q.reason, release: func(time.Duration) {}}, true)
	if err != nil {
		g.leaveSeat(s)
		g.life.leave()
		return Result[T]{}, false, err
	}
	done := make(chan outcome[T], 1)
	go func() {
		defer g.life.leave()
		defer g.leaveSeat(s)
		done <- g.unleased(r, true, everyone, m)
	}()
	select {
	case out := <-done:
		if out.kind == gotError && c.q.alt != nil {
			return c.ifError(), false, nil
		}
		return out.result, false, out.err
	case <-c.soft:
		r.cancel(nil)
		alt := c.ifError()
		alt.Behind = true // it may not have ended yet
		return alt, false, nil
	case <-c.ctx.Done():
		r.cancel(context.Cause(c.ctx))
		return Result[T]{}, false, c.ctx.Err()
	}
}
