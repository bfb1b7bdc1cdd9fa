package lock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/herdgate/herdgate/internal/leases"
)

// vote is what one of several servers answers.
type vote struct {
	i     int
	stamp string        // empty: not granted
	left  time.Duration // then for how long another holds it
	epoch string        // with fences: empty if it has forgotten its numbers
	known uint64        // the last number that it knows for the lock
	err   error
}

// tryAll asks all servers at the same time. The lock is ours when a majority of all that are configured,
// not of those that answer, has granted it, and time is left. What the others answer later is added to the
// lock, so that it does not hang on a bare majority, or given back.
func (lk *Locker) tryAll(ctx context.Context, k *keys, ttl time.Duration) (*Lock, time.Duration, error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, about(k.name, ended(ctx))
	}
	if err := lk.identify(ctx); err != nil {
		return nil, 0, about(k.name, err)
	}
	begun := time.Now()
	l := &Lock{
		lk: lk, keys: k, token: newToken(), ttl: ttl, acquired: begun, shares: make([]share, len(lk.nodes)),
		held: begun, deadline: begun.Add(ttl - drift(ttl)),
	}
	if l.fenced() {
		return lk.tryFenced(ctx, l)
	}
	_, left, err := l.gather(ctx, func(vote) bool { return true })
	if err == nil {
		err = l.inTime()
	}
	if err != nil {
		l.abandon()
		return nil, left, about(k.name, err)
	}
	return l, 0, nil
}

// fenced says whether the lock of several servers has a fencing number.
func (l *Lock) fenced() bool { return l.lk.opt.Fences && !l.keys.plain }

// inTime says whether a lock that was granted can still be counted on.
func (l *Lock) inTime() error {
	if time.Now().Before(l.deadline) {
		return nil
	}
	return fmt.Errorf("%w: granting took longer than the lease of %v", ErrTooFewNodes, l.ttl)
}

// gather asks all servers for their shares and returns those that count, once they are a majority. Otherwise
// it returns why they cannot become one.
func (l *Lock) gather(ctx context.Context, counts func(vote) bool) (won []vote, left time.Duration, err error) {
	lk := l.lk
	answers := make(chan vote, len(lk.nodes)) // so that nobody waits to answer
	if !lk.onAll(func(n *node) { answers <- l.ask(n, l.ttl) }) {
		return nil, 0, ErrClosed
	}
	var lost, held, uncounted int
	var errs []error
	for range lk.nodes {
		var s vote
		select {
		case s = <-answers:
		case <-ctx.Done():
			return nil, 0, ended(ctx)
		}
		switch {
		case errors.Is(s.err, ErrMisuse):
			return nil, 0, s.err
		case s.err != nil:
			errs = append(errs, s.err)
			lost++
		case s.stamp == "":
			held++
			lost++
			left = max(left, s.left)
		case !counts(s):
			lost++
			uncounted++
		default:
			if won = append(won, s); len(won) >= lk.quorum {
				return won, 0, nil
			}
		}
		if lost > len(lk.nodes)-lk.quorum && len(errs) <= len(lk.nodes)-lk.quorum && held > 0 {
			break // no need to hear the rest
		}
	}
	if len(errs) > len(lk.nodes)-lk.quorum {
		if errors.Is(errs[0], ErrClosed) {
			return nil, 0, ErrClosed
		}
		return won, 0, tooFew(len(lk.nodes)-len(errs), len(lk.nodes), errs)
	}
	if len(won)+uncounted >= lk.quorum {
		return won, 0, errForgotten
	}
	lk.events.emit(Event{Kind: EventHeld, Lock: l.Name()})
	return won, left, ErrNotAcquired
}

// tooFew is the error when only some servers answered.
func tooFew(answered, of int, errs []error) error {
	return fmt.Errorf("%w: %d of %d, the first fault: %s", ErrTooFewNodes, answered, of, errs[0].Error())
}

// ask asks one server for its share, for ttl from now, and notes the answer. It does not depend on the caller,
// who may have what it wants before that.
func (l *Lock) ask(n *node, ttl time.Duration) vote {
	if err := n.identify(); err != nil {
		return vote{i: n.i, err: err}
	}
	lk, k, s, timeout, asked := l.lk, l.keys, &l.shares[n.i], l.lk.timeoutFor(l.ttl), time.Now()
	l.mu.Lock()
	if err := l.over(); err != nil {
		l.mu.Unlock()
		return vote{i: n.i, err: err}
	}
	l.latest = later(l.latest, asked.Add(timeout+ttl))
	s.asks.Add(1)
	l.mu.Unlock()
	v, err := ask(context.Background(), n, k.name, timeout, func(ctx context.Context) (vote, error) {
		if l.fenced() {
			return l.joinFenced(ctx, n, ttl)
		}
		return replied(joinScript.Run(ctx, n.rdb, 1, []any{0, 0, 0, k.lock, l.token, leases.Millis(ttl)}).Result())
	}, nil)
	v.i, v.err = n.i, err
	l.mu.Lock()
	switch {
	case err == nil && !asked.Before(s.asked): // else there is an answer to a later request
		s.stamp, s.asked = v.stamp, asked
	case unknown(err):
		s.unsure = true
	}
	// Who releases waits for this answer. After a loss, perhaps nobody does.
	unwanted, latest := l.lost != nil, l.latest
	l.mu.Unlock()
	s.asks.Done()
	if l.fenced() && v.stamp != "" && v.epoch == "" {
		lk.reseedSoon()
	}
	if unwanted && (v.stamp != "" || unknown(err)) {
		lk.giveBack(n, k, l.token, latest)
	}
	return v
}

func (l *Lock) joinFenced(ctx context.Context, n *node, ttl time.Duration) (vote, error) {
	k := l.keys
	return replied(joinFencedScript.Run(ctx, n.rdb, 3, []any{
		0, 0, 0, k.lock, k.fence, l.lk.marker, l.token, leases.Millis(ttl), numberKeptMillis,
	}).Result())
}

// replied reads what the scripts that join answer.
func replied(reply any, err error) (s vote, _ error) {
	switch r := reply.(type) {
	case string:
		s.stamp = r
	case int64:
		s.left = millis(r)
		return s, nil
	case []any:
		if len(r) == 3 {
			s.stamp, _ = r[0].(string)
			s.epoch, _ = r[1].(string)
			known, _ := r[2].(string)
			s.known, err = strconv.ParseUint(known, 10, 64)
		}
	}
	if err == nil && len(s.stamp) != leases.StampSize {
		err = fmt.Errorf("join answered %v", reply)
	}
	return s, err
}

// abandon gives back what was granted, on all servers, whatever they have answered. Nobody waits for that.
func (l *Lock) abandon() {
	l.discard()
	l.lk.onAll(func(n *node) { _, _ = l.releaseOn(n) })
}

// discard makes l one that nobody wants: nothing more is asked for.
func (l *Lock) discard() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.released = true
}

// releaseOn releases, once all requests are answered, by token: what the stamp is may not be known. It reports
// whether it was held, and leaves to the background a server that does not answer, or refuses, or may still grant what it
// was asked for.
func (l *Lock) releaseOn(n *node) (bool, error) {
	l.shares[n.i].asks.Wait()
	held, err := n.release(l.keys, l.token, l.lk.timeoutFor(l.ttl))
	l.mu.Lock()
	unsure, latest := l.shares[n.i].unsure, l.latest
	l.mu.Unlock()
	if err != nil || unsure {
		l.lk.giveBack(n, l.keys, l.token, latest)
	}
	return held, err
}

// releaseAll releases on all servers and reports whether a majority held the lock. It returns once that is known.
func (l *Lock) releaseAll() (bool, error) {
	type answer struct {
		held bool
		err  error
	}
	lk := l.lk
	answers := make(chan answer, len(lk.nodes))
	if !lk.onAll(func(n *node) {
		held, err := l.releaseOn(n)
		answers <- answer{held, err}
	}) {
		return false, ErrClosed
	}
	var held, absent int
	var errs []error
	for range lk.nodes {
		switch a := <-answers; {
		case a.err != nil:
			errs = append(errs, a.err)
		case a.held:
			held++
		default:
			absent++
		}
		if held >= lk.quorum {
			return true, nil
		}
		if absent >= lk.quorum {
			return false, nil
		}
	}
	if len(errs) == 0 {
		return false, nil
	}
	return false, tooFew(held+absent, len(lk.nodes), errs)
}

// extendAll renews on all servers where the lock is held, and joins it on the others: a lock that hangs on a
// bare majority is lost with one restart. It answers as the script that renews does.
func (l *Lock) extendAll(ctx context.Context, ttl, timeout time.Duration) (int, error) {
	type answer struct {
		held int
		err  error
	}
	lk := l.lk
	answers := make(chan answer, len(lk.nodes))
	if !lk.onAll(func(n *node) {
		held, err := l.extendOn(n, ttl, timeout)
		answers <- answer{held, err}
	}) {
		return 0, ErrClosed
	}
	var held, taken, absent int
	var errs []error
	for range lk.nodes {
		var a answer
		select {
		case a = <-answers:
		case <-ctx.Done():
			return 0, ended(ctx)
		}
		switch {
		case a.err != nil:
			errs = append(errs, a.err)
		case a.held == leases.Held:
			held++
		case a.held == leases.Taken:
			taken++
		default:
			absent++
		}
		switch {
		case held >= lk.quorum:
			return leases.Held, nil
		case taken >= lk.quorum:
			return leases.Taken, nil
		case taken+absent > len(lk.nodes)-lk.quorum:
			// Those that do not answer cannot make up for it: the lock was lost on too many.
			if taken > 0 {
				return leases.Taken, nil
			}
			return leases.Absent, nil
		}
	}
	return 0, tooFew(held+taken+absent, len(lk.nodes), errs)
}

// extendOn extends on one server. Where the lock was not held yet, or is gone, it joins; but that counts as held
// only for what comes next: somebody else may have had that share meanwhile. It joins also where another lease was
// found: that may be one of its own, by a copy of its request that came late.
func (l *Lock) extendOn(n *node, ttl, timeout time.Duration) (int, error) {
	l.mu.Lock()
	stamp := l.shares[n.i].stamp
	l.mu.Unlock()
	held := leases.Absent
	if stamp != "" {
		var err error
		if held, err = n.renew(context.Background(), l.keys, stamp, ttl, timeout); err != nil || held == leases.Held {
			return held, err
		}
	}
	if l.Validity() > 0 {
		if v := l.ask(n, ttl); v.err == nil && v.stamp == "" {
			held = leases.Taken
		}
	}
	return held, nil
}
