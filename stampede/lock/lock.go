package lock

import (
	"context"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"github.com/herdgate/herdgate/internal/leases"
)

// Lock is a lock that was acquired. It may be used, and released, on any goroutine. Nil, and one that was not
// made by a [Locker], is a lock that is not held: what can fail does so with ErrMisuse.
type Lock struct {
	lk       *Locker
	keys     *keys
	token    any // a string, in the form in which it is passed on
	ttl      time.Duration
	fence    uint64
	acquired time.Time

	mu       sync.Mutex // protects what follows
	one      [1]share   // shares of a lock on one server
	shares   []share    // for each server
	held     time.Time  // when the last request was sent that a server, or a majority, granted
	deadline time.Time  // until when the holder may count on it
	latest   time.Time  // until when a server may hold it, be it by a request that got no answer
	released bool
	lost     *LostError
	told     bool // that it is lost, or soon will be
	keepers  []*keeper
}

// share is what is known of a lock on a server.
type share struct {
	stamp  string         // what it granted; empty where that is not known
	asked  time.Time      // when that was asked for
	unsure bool           // a request without an answer may still be granted
	asks   sync.WaitGroup // requests that are under way; none begins once the lock is released or lost
}

// valid says whether l was acquired, ever.
func (l *Lock) valid() bool { return l != nil && l.lk != nil }

var errNotAcquired = fmt.Errorf("%w: the Lock was not made by a Locker", ErrMisuse)

// Name returns the lock's name.
func (l *Lock) Name() string {
	if !l.valid() {
		return ""
	}
	return l.keys.name
}

// Token returns what this acquisition is known by, in hexadecimal: random, and never used twice.
func (l *Lock) Token() string {
	if !l.valid() {
		return ""
	}
	return hex.EncodeToString([]byte(l.token.(string)))
}

// Fence returns the fencing number of this acquisition: higher than that of any acquisition of the same
// lock that had returned before this one was asked for. Hand it to the resource that the lock protects,
// which must refuse what carries a lower number than it has seen: see [SetFenced] and docs/locks.md. It is 0
// only for a lock on several servers without Options.Fences.
func (l *Lock) Fence() uint64 {
	if !l.valid() {
		return 0
	}
	return l.fence
}

// Validity returns for how much longer the holder may count on the lock, by its own monotonic clock, if
// nothing happens: 0 or less when it is over. That is no promise: while a process is paused, between the look
// at the clock and what is done next, any time can pass. Where that matters, let the resource check Fence.
func (l *Lock) Validity() time.Duration {
	if !l.valid() {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.released || l.lost != nil {
		return 0
	}
	return time.Until(l.deadline)
}

// Extend lets the lock last for ttl from now, if it is still held; it never shortens it. A lock that was lost
// (ErrLost) is not taken again: somebody may have had it meanwhile. After ErrUnavailable or ErrTooFewNodes
// it is unknown whether it was extended, the lock is held for as long as before, and Extend may be tried
// again.
func (l *Lock) Extend(ctx context.Context, ttl time.Duration) error {
	switch {
	case !l.valid():
		return errNotAcquired
	case ctx == nil:
		return about(l.Name(), errNilCtx)
	case checkLease(ttl) != nil:
		return about(l.Name(), checkLease(ttl))
	}
	if err := ctx.Err(); err != nil {
		return about(l.Name(), ended(ctx))
	}
	return l.extend(ctx, ttl, l.lk.timeoutFor(ttl))
}

// over is the error of a lock that is lost or released. The caller holds mu.
func (l *Lock) over() error {
	switch {
	case l.lost != nil:
		return l.lost
	case l.released:
		return about(l.Name(), ErrReleased)
	}
	return nil
}

// asking notes, before a request is sent that lets a server hold the lock for ttl, until when it may do so: the
// request may be done as late as at the end of its time limit, and its answer be lost.
func (l *Lock) asking(ttl, timeout time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest = later(l.latest, time.Now().Add(timeout+ttl))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (l *Lock) extend(ctx context.Context, ttl, timeout time.Duration) error {
	l.mu.Lock()
	err := l.over()
	l.mu.Unlock()
	if err != nil {
		return err
	}
	l.asking(ttl, timeout)
	sent := time.Now()
	var answer int
	if len(l.lk.nodes) == 1 {
		answer, err = l.lk.nodes[0].renew(ctx, l.keys, l.shares[0].stamp, ttl, timeout)
	} else {
		answer, err = l.extendAll(ctx, ttl, timeout)
	}
	switch {
	case err != nil:
		l.lk.events.emit(Event{Kind: EventNotRenewed, Lock: l.Name(), Err: err})
		return about(l.Name(), err)
	case answer == leases.Taken:
		return l.lose(Taken, nil)
	case answer == leases.Absent:
		return l.lose(Gone, nil)
	case answer != leases.Held:
		return about(l.Name(), unavailable(fmt.Errorf("renew answered %d", answer)))
	}
	l.mu.Lock()
	err = l.over()
	if err == nil {
		l.held = later(l.held, sent)
		l.deadline = later(l.deadline, sent.Add(ttl-drift(ttl)))
	}
	l.mu.Unlock()
	if err == nil {
		l.lk.events.emit(Event{Kind: EventRenewed, Lock: l.Name(), Took: time.Since(sent)})
	}
	return err
}

// lose notes that the lock is lost, once, unless it was released: what is found after that is no loss.
func (l *Lock) lose(why Reason, cause error) error {
	l.mu.Lock()
	if err := l.over(); err != nil {
		l.mu.Unlock()
		return err
	}
	lost := &LostError{Name: l.Name(), Reason: why, Held: l.held, Found: time.Now(), Err: cause}
	if why == Expired {
		lost.Held = l.deadline
	}
	l.lost = lost
	told, keepers := l.told, l.keepers
	l.told, l.keepers = true, nil
	l.mu.Unlock()
	for _, k := range keepers {
		k.end(lost)
	}
	if !told {
		l.lk.events.emit(Event{Kind: EventLost, Lock: l.Name(), Err: lost})
	}
	l.lk.lines.free(l.Name(), true)
	return lost
}

// Release gives the lock back, so that others need not wait for its end. First it ends the ctx of those that
// keep the lock, with ErrReleased as the cause. It is safe after a loss: only what this acquisition holds is
// released. ctx's end takes no part, since what has to be done at the end of a call must not depend on whether the
// call was cancelled; Options.Timeout bounds it, and when Redis does not answer, or refuses, Release returns
// ErrUnavailable (ErrTooFewNodes) and goes on trying in the background until the lease is over, that of an Extend
// without an answer included. ErrLost means that the lock was not held any more. Only the first call does anything;
// further ones return nil.
func (l *Lock) Release(context.Context) error {
	if !l.valid() {
		return errNotAcquired
	}
	l.mu.Lock()
	if l.released {
		l.mu.Unlock()
		return nil
	}
	l.released = true
	lost, keepers, sure := l.lost, l.keepers, l.held
	l.keepers = nil
	l.mu.Unlock()
	for _, k := range keepers {
		k.end(about(l.Name(), ErrReleased))
	}
	// In the background when the lock is lost: it may be there still, or parts of it, but nobody need wait for that.
	if lost != nil {
		l.lk.spawn(func() { _, _, _ = l.passOn() })
		return lost
	}
	held, next, err := l.passOn()
	l.lk.lines.free(l.Name(), next == "" || next == l.lk.process)
	switch {
	case err != nil:
		err = about(l.Name(), err)
	case !held:
		err = &LostError{Name: l.Name(), Reason: Gone, Held: sure, Found: time.Now()}
	default:
		l.lk.events.emit(Event{Kind: EventReleased, Lock: l.Name(), Took: time.Since(l.acquired)})
		return nil
	}
	l.lk.events.emit(Event{Kind: EventNotReleased, Lock: l.Name(), Err: err})
	return err
}

// passOn releases what was granted, and reports whether it was held, and which process is to have it next, if
// that is known.
func (l *Lock) passOn() (held bool, next string, err error) {
	if len(l.lk.nodes) > 1 {
		held, err = l.releaseAll()
		return held, "", err
	}
	process := ""
	if l.lk.lines.standing(l.Name()) {
		process = l.lk.process
	}
	n, stamp := l.lk.nodes[0], l.shares[0].stamp
	held, next, err = n.pass(l.keys, stamp, process)
	if err != nil {
		l.mu.Lock()
		latest := l.latest
		l.mu.Unlock()
		l.lk.giveBack(n, l.keys, stamp, latest)
	}
	return held, next, err
}
