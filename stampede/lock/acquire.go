package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// TryAcquire asks for the lock of name once, for a lease of ttl from now, and does not wait for others: if
// one of them holds it, the error is ErrNotAcquired. The lock is not renewed by itself: see [Lock.Keep],
// [Lock.Extend] and [Locker.Do]. The end of ctx ends the call at once, and not the lock.
func (lk *Locker) TryAcquire(ctx context.Context, name string, ttl time.Duration) (*Lock, error) {
	if err := lk.check(ctx, name, ttl); err != nil {
		return nil, err
	}
	k, err := lk.keysOf(name)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	l, _, err := lk.try(ctx, k, ttl, "")
	if err != nil {
		return nil, err
	}
	lk.events.emit(Event{Kind: EventAcquired, Lock: name, Took: time.Since(begun)})
	return l, nil
}

// Acquire is TryAcquire, but waits while another holds the lock, or Redis does not answer, for as long as
// ctx, Options.WaitTimeout and Options.Tries allow. Those of a process who wait for the same lock get it in the
// order in which they came. Among processes, a release wakes the one that has waited longest, but anybody who asks at
// that moment may be faster. With several servers nobody is woken: waiters ask again after random pauses.
func (lk *Locker) Acquire(ctx context.Context, name string, ttl time.Duration) (*Lock, error) {
	if err := lk.check(ctx, name, ttl); err != nil {
		return nil, err
	}
	k, err := lk.keysOf(name)
	if err != nil {
		return nil, err
	}
	a := &acquiring{lk: lk, k: k, ttl: ttl, begun: time.Now()}
	if !lk.lines.standing(name) {
		if l, done, err := a.try(ctx, ""); done {
			return l, err
		}
	}
	return a.wait(ctx)
}

// acquiring is a call of Acquire.
type acquiring struct {
	lk    *Locker
	k     *keys
	ttl   time.Duration
	begun time.Time
	tries int
	last  error         // why the last try failed
	known bool          // that the last try was answered
	ends  time.Time     // when the lease of another ends, as of the last try; zero if that is not known
	pause time.Duration // the last one

	// What follows is for one who waits.
	ln     *line
	w      *waiter
	again  *time.Timer     // when to ask again without a sign
	stands <-chan struct{} // closed once the subscription stands; nil when there is no need to know
}

// try asks once, and reports whether that is the end of it. See [Locker.try] for process.
func (a *acquiring) try(ctx context.Context, process string) (l *Lock, done bool, err error) {
	l, left, err := a.lk.try(ctx, a.k, a.ttl, process)
	a.tries++
	a.known, a.ends = err == nil || errors.Is(err, ErrNotAcquired), time.Time{}
	if left > 0 || errors.Is(err, ErrNotAcquired) { // in its last millisecond a lock has 0 ms left
		a.ends = time.Now().Add(max(left, time.Millisecond))
	}
	switch {
	case err == nil:
		a.lk.events.emit(Event{Kind: EventAcquired, Lock: a.k.name, Took: time.Since(a.begun)})
		return l, true, nil
	case ctx.Err() != nil:
		_, err = a.giveUp(ended(ctx))
		return nil, true, err
	case errors.Is(err, ErrClosed), errors.Is(err, ErrMisuse), errors.Is(err, ErrNoFences):
		return nil, true, err
	}
	a.last = err
	if a.tries == a.lk.opt.Tries {
		_, err = a.giveUp(fmt.Errorf("asked %d times", a.tries))
		return nil, true, err
	}
	return nil, false, nil
}

// giveUp makes the error of a call that ends without the lock.
func (a *acquiring) giveUp(why error) (*Lock, error) {
	last := a.last
	if last == nil && a.tries == 0 { // others of this process were first in line
		last = about(a.k.name, ErrNotAcquired)
	}
	err := about(a.k.name, why)
	if last != nil {
		err = fmt.Errorf("%w: %w", last, why)
	}
	a.lk.events.emit(Event{Kind: EventGivenUp, Lock: a.k.name, Took: time.Since(a.begun), Err: err})
	return nil, err
}

// wait stands in line, and asks again and again once it is at its turn.
func (a *acquiring) wait(ctx context.Context) (got *Lock, err error) {
	lk := a.lk
	a.ln, a.w = lk.lines.join(a.k.name)
	defer func() { a.leave(got) }()
	var limit <-chan time.Time
	if lk.opt.WaitTimeout > 0 {
		timer := time.NewTimer(lk.opt.WaitTimeout - time.Since(a.begun))
		defer timer.Stop()
		limit = timer.C
	}
	a.again = time.NewTimer(maxDuration)
	defer a.again.Stop()
	turn, wake := a.w.turn, (<-chan struct{})(nil)
	if a.w.first {
		turn, wake = nil, a.ln.wake
		a.ln.ends = a.ends
		if l, done, err := a.look(ctx, a.tries == 0); done { // else it has just asked
			return l, err
		}
	}
	for {
		ask := true
		select {
		case <-turn:
			turn, wake = nil, a.ln.wake
			n := lk.lines.told(a.ln)
			ask, a.known = n.free || n.standby, true // else who was first before would have left word
		case <-wake:
			n := lk.lines.told(a.ln)
			if n.standby && !n.free {
				a.again.Reset(a.grace())
				continue
			}
			ask = n.free
		case <-a.stands:
		case <-a.again.C:
		case <-ctx.Done():
			return a.giveUp(ended(ctx))
		case <-lk.ctx.Done():
			return nil, ErrClosed
		case <-limit:
			return a.giveUp(fmt.Errorf("waited for %v", lk.opt.WaitTimeout))
		}
		if l, done, err := a.look(ctx, ask); done {
			return l, err
		}
	}
}

// look is what the first in line does: unless one of this process has the lock, it asks if it is to, listens to
// releases elsewhere, and sets the time at which to ask again.
func (a *acquiring) look(ctx context.Context, ask bool) (l *Lock, done bool, err error) {
	lk := a.lk
	if holder := lk.lines.held(a.ln); holder != nil {
		a.stands = nil
		a.again.Reset(max(holder.Validity(), 0) + drift(a.ttl))
		return nil, false, nil
	}
	// Only what is released after the subscription stood is told, so only a try after that may be relied on.
	sure := lk.listens(a.ln)
	if ask {
		_ = lk.lines.told(a.ln) // the answer will be newer
		l, done, err := a.try(ctx, lk.process)
		if a.ln.ends = a.ends; done {
			return l, true, err
		}
	}
	a.stands = lk.listen(a.k, a.ln)
	if sure {
		a.stands = nil
	}
	a.again.Reset(a.nextPause(sure))
	return nil, false, nil
}

// leave takes a out of its line, with the lock or without.
func (a *acquiring) leave(got *Lock) {
	lk, ln := a.lk, a.ln
	if over := lk.lines.leave(a.k.name, ln, a.w, got, a.known); !over || ln.topic == nil {
		return
	}
	lk.hub.Leave(ln.topic, ln.ear)
	if got == nil { // else the server knows
		lk.spawn(func() {
			if !lk.lines.standing(a.k.name) {
				lk.nodes[0].forget(a.k)
			}
		})
	}
}

// apart is how far those are spread, at most, who ask when a lease ends.
const apart = 20 * time.Millisecond

// grace is how long to leave the lock to the process that it was passed on to.
func (a *acquiring) grace() time.Duration {
	d := min(a.lk.opt.Poll/12, apart)
	return d + rand.N(d)
}

// nextPause is how long to wait for a sign before asking again without one.
func (a *acquiring) nextPause(told bool) time.Duration {
	longest := a.lk.opt.Poll
	shortest := longest / 12
	var pause time.Duration
	if told && a.known { // else nobody may be there to tell
		a.pause, pause = 0, longest*2+rand.N(longest*2)
	} else { // decorrelated jitter
		a.pause = min(longest, shortest+rand.N(max(3*a.pause-shortest, shortest)))
		pause = a.pause
	}
	if !a.ln.ends.IsZero() { // who holds it may have died
		pause = min(pause, max(time.Until(a.ln.ends), 0)+rand.N(min(shortest, apart)))
	}
	return pause
}
