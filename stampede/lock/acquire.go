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
	l, _, err := lk.try(ctx, k, ttl)
	if err != nil {
		return nil, err
	}
	lk.events.emit(Event{Kind: EventAcquired, Lock: name, Took: time.Since(begun)})
	return l, nil
}

// Acquire is TryAcquire, but waits while another holds the lock, or Redis does not answer, for as long as
// ctx, Options.WaitTimeout and Options.Tries allow. Those of a process who wait for the same lock get it in the
// order in which they came; among processes there is no order. A waiter is woken by the release, where Redis
// can tell of it, and else asks again after a random pause.
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
		if l, done, err := a.try(ctx); done {
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
	left  time.Duration // for how long another holds the lock, as of the last try; 0: not known
	pause time.Duration // the last one
}

// try asks once, and reports whether that is the end of it.
func (a *acquiring) try(ctx context.Context) (l *Lock, done bool, err error) {
	l, a.left, err = a.lk.try(ctx, a.k, a.ttl)
	a.tries++
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
	ln, w := lk.lines.join(a.k.name)
	defer func() {
		if topic, ear := lk.lines.leave(a.k.name, ln, w, got); topic != nil {
			lk.hub.Leave(topic, ear)
		}
	}()
	var limit <-chan time.Time
	if lk.opt.WaitTimeout > 0 {
		timer := time.NewTimer(lk.opt.WaitTimeout - time.Since(a.begun))
		defer timer.Stop()
		limit = timer.C
	}
	again := time.NewTimer(time.Hour)
	defer again.Stop()
	turn := w.turn
	asked := a.tries > 0 // just now
	if w.first {
		turn = nil
	}
	for {
		var holder *Lock
		var heard, stands <-chan struct{}
		if turn == nil {
			holder = lk.lines.held(ln)
			// Only what is released after the subscription stood is told, so only a try after that may be relied on.
			sure := lk.stands(ln)
			if holder == nil && !asked {
				if l, done, err := a.try(ctx); done {
					return l, err
				}
			}
			asked = false
			if lk.hub != nil && holder == nil {
				heard, stands = lk.listen(a.k, ln)
			}
			if sure {
				stands = nil
			}
			again.Reset(a.nextPause(holder, sure))
		}
		select {
		case <-turn: // who was first may have left without asking, when it was told to
			turn, asked = nil, false
		case <-w.wake: // a lock of this process has ended
		case <-heard: // one elsewhere has, or the subscription is lost
		case <-stands:
		case <-again.C:
		case <-ctx.Done():
			return a.giveUp(ended(ctx))
		case <-lk.ctx.Done():
			return nil, ErrClosed
		case <-limit:
			return a.giveUp(fmt.Errorf("waited for %v", lk.opt.WaitTimeout))
		}
	}
}

// apart is how far those are spread, at most, who ask when a lease ends.
const apart = 20 * time.Millisecond

// nextPause is how long to wait for a sign before asking again without one.
func (a *acquiring) nextPause(holder *Lock, told bool) time.Duration {
	if holder != nil {
		return max(holder.Validity(), 0) + drift(a.ttl)
	}
	longest := a.lk.opt.Poll
	shortest := longest / 12
	var pause time.Duration
	if told && !errors.Is(a.last, ErrUnavailable) { // else nobody may be there to tell
		a.pause, pause = 0, longest*2+rand.N(longest*2)
	} else { // decorrelated jitter
		a.pause = min(longest, shortest+rand.N(max(3*a.pause-shortest, shortest)))
		pause = a.pause
	}
	if a.left > 0 { // who holds it may have died
		pause = min(pause, a.left+rand.N(min(shortest, apart)))
	}
	return pause
}

// listen makes sure that somebody of ln listens to releases elsewhere. It returns what tells of them, and
// what is closed once the subscription stands.
func (lk *Locker) listen(k *keys, ln *line) (heard, stands <-chan struct{}) {
	topic, e := lk.lines.ear(ln)
	if topic == nil { // only the first in line comes here
		e = &ear{heard: make(chan struct{}, 1)}
		topic = lk.hub.Join(k.channel, e)
		lk.lines.setEar(ln, topic, e)
	}
	return e.heard, lk.hub.Ready(topic)
}

// stands says whether releases elsewhere are told to ln.
func (lk *Locker) stands(ln *line) bool {
	topic, _ := lk.lines.ear(ln)
	if topic == nil {
		return false
	}
	select {
	case <-lk.hub.Ready(topic):
		return true
	default:
		return false
	}
}
