package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"
)

const (
	// numberKept is how long a server keeps a lock's number apart from those of other locks. Nothing hangs on
	// it: see own in scripts/marker.lua.
	numberKept = 24 * time.Hour
	// rounds is how often acquiring begins anew, with the same token, when a server forgets or falls silent
	// in the middle of it.
	rounds = 4
	// raises is how often a number is raised before that.
	raises = 16
	// maxFence is the highest number that Lua's numbers tell apart from the next.
	maxFence = 1<<53 - 1
)

var numberKeptMillis any = numberKept.Milliseconds()

// errForgotten: the lock was granted by a majority, but not by a majority that knows its fencing numbers.
var errForgotten = errors.New("lock: servers have forgotten their fencing numbers")

// errAgain: a server forgot, or fell silent, between two steps.
var errAgain = fmt.Errorf("%w to agree on a fencing number", ErrTooFewNodes)

// tryFenced acquires and then agrees on a fencing number with a majority of servers that know theirs. See
// "Fencing numbers on several servers" in the package's documentation for why the numbers grow.
func (lk *Locker) tryFenced(ctx context.Context, l *Lock) (*Lock, time.Duration, error) {
	var left time.Duration
	var err error
	for range rounds {
		var won []vote
		won, left, err = l.gather(ctx, func(s vote) bool { return s.epoch != "" })
		if err == nil {
			l.fence, err = l.agree(ctx, won)
		}
		if err == nil {
			err = l.inTime()
		}
		if errors.Is(err, errForgotten) {
			if err = lk.reseed(ctx); err == nil {
				err = errAgain
			}
		}
		if !errors.Is(err, errAgain) || l.inTime() != nil {
			break
		}
		lk.events.emit(Event{Kind: EventFenceAgain, Lock: l.Name(), Err: err})
	}
	if err != nil {
		l.abandon()
		return nil, left, about(l.Name(), err)
	}
	return l, 0, nil
}

// agree has a number accepted by all of these servers, a majority, and then makes sure that all of them knew
// it at the same time: else one of them might have forgotten it again before the last one knew it, and be
// given its numbers anew by servers that did not know it yet.
func (l *Lock) agree(ctx context.Context, with []vote) (uint64, error) {
	highest := uint64(0)
	for _, s := range with {
		highest = max(highest, s.known)
	}
	for range raises {
		number := highest + 1
		if number > maxFence {
			return 0, errUsedUp
		}
		known, err := together(ctx, l, with, func(ctx context.Context, n *node, s vote) (string, error) {
			return acceptScript.Run(ctx, n.rdb, 3, []any{
				0, 0, 0, l.keys.lock, l.keys.fence, l.lk.marker, s.stamp, s.epoch, digits(number), numberKeptMillis,
			}).Text()
		})
		if err != nil {
			return 0, err
		}
		accepted := true
		for _, k := range known {
			if k == "-" {
				return 0, errAgain
			}
			if k != "" {
				accepted = false
				higher, _ := strconv.ParseUint(k, 10, 64)
				highest = max(highest, higher)
			}
		}
		if !accepted {
			highest = max(highest, number) + rand.Uint64N(4) // not in step with others
			l.lk.events.emit(Event{Kind: EventFenceAgain, Lock: l.Name()})
			continue
		}
		remembered, err := together(ctx, l, with, func(ctx context.Context, n *node, s vote) (int, error) {
			return confirmScript.Run(ctx, n.rdb, 2, []any{0, 0, 0, l.keys.fence, l.lk.marker, s.epoch, digits(number)}).Int()
		})
		if err != nil {
			return 0, err
		}
		for _, r := range remembered {
			if r != 1 {
				return 0, errAgain
			}
		}
		return number, nil
	}
	return 0, errAgain
}

// together asks the servers of all shares at the same time, and returns all answers, or an error.
func together[T any](ctx context.Context, l *Lock, shares []vote, op func(context.Context, *node, vote) (T, error)) ([]T, error) {
	type answer struct {
		v   T
		err error
	}
	lk := l.lk
	answers := make(chan answer, len(shares))
	for _, s := range shares {
		if !lk.spawn(func() {
			n := lk.nodes[s.i]
			v, err := ask(context.Background(), n, l.Name(), lk.timeoutFor(l.ttl), func(ctx context.Context) (T, error) {
				return op(ctx, n, s)
			}, nil)
			answers <- answer{v, err}
		}) {
			return nil, ErrClosed
		}
	}
	all := make([]T, 0, len(shares))
	for range shares {
		select {
		case a := <-answers:
			if a.err != nil {
				return nil, fmt.Errorf("%w: %s", errAgain, a.err.Error())
			}
			all = append(all, a.v)
		case <-ctx.Done():
			return nil, ended(ctx)
		}
	}
	return all, nil
}

func digits(n uint64) string { return strconv.FormatUint(n, 10) }
