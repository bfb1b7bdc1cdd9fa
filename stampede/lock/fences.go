package lock

import (
	"context"
	"encoding/hex"
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
	// claimKept is how long a claim stands.
	claimKept = 10 * time.Second
	// rounds is how often acquiring begins anew, with the same token, when a server forgets or falls silent
	// in the middle of it.
	rounds = 4
	// raises is how often a number is raised before that.
	raises = 16
	// maxFence is the highest number that Lua's numbers tell apart from the next.
	maxFence = 1<<53 - 1
)

func (lk *Locker) marker() string { return lk.opt.Name + ":m" }
func (lk *Locker) claim() string  { return lk.opt.Name + ":c" }

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
			return 0, fmt.Errorf("%w: the numbers are used up", ErrNoFences)
		}
		known, err := together(ctx, l, with, func(ctx context.Context, n *node, s vote) (string, error) {
			return acceptScript.Run(ctx, n.rdb, []string{l.keys.lock, l.keys.fence, l.lk.marker()},
				s.stamp, s.epoch, digits(number), numberKept.Milliseconds()).Text()
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
			return confirmScript.Run(ctx, n.rdb, []string{l.keys.fence, l.lk.marker()}, s.epoch, digits(number)).Int()
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

// mark is what a server answers about its marker.
type mark struct {
	n     *node
	epoch string // empty: it has none
	top   uint64
	err   error
}

// look asks all servers for their markers, and claims those without one, if claim is not empty.
func (lk *Locker) look(ctx context.Context, claim string) ([]mark, error) {
	answers := make(chan mark, len(lk.nodes))
	for _, n := range lk.nodes {
		if !lk.spawn(func() { answers <- n.look(claim) }) {
			return nil, ErrClosed
		}
	}
	marks := make([]mark, 0, len(lk.nodes))
	for range lk.nodes {
		select {
		case m := <-answers:
			marks = append(marks, m)
		case <-ctx.Done():
			return nil, ended(ctx)
		}
	}
	return marks, nil
}

func (n *node) look(claim string) mark {
	lk := n.lk
	m, err := ask(context.Background(), n, "", lk.opt.Timeout, func(ctx context.Context) (m mark, err error) {
		reply, err := claimScript.Run(ctx, n.rdb, []string{lk.marker(), lk.claim()}, claim, claimKept.Milliseconds()).StringSlice()
		if err == nil && len(reply) == 2 {
			m.epoch = reply[0]
			m.top, err = strconv.ParseUint(reply[1], 10, 64)
		}
		return m, err
	}, nil)
	m.n, m.err = n, err
	return m
}

// seed makes a server's marker where the claim stands.
func (n *node) seed(claim string, top uint64) bool {
	made, err := ask(context.Background(), n, "", n.lk.opt.Timeout, func(ctx context.Context) (int, error) {
		return seedScript.Run(ctx, n.rdb, []string{n.lk.marker(), n.lk.claim()}, claim, digits(top)).Int()
	}, nil)
	return err == nil && made == 1
}

// tally sums marks up.
func tally(marks []mark) (marked, silent int, top uint64, first error) {
	for _, m := range marks {
		switch {
		case m.err != nil:
			silent++
			first = m.err
		case m.epoch != "":
			marked++
			top = max(top, m.top)
		}
	}
	return marked, silent, top, first
}

// reseed gives servers that have forgotten their numbers new ones, above all that a majority of the others
// has accepted. That majority is asked only after the servers were claimed, and a server that forgets again
// forgets the claim with the rest: so no answer is older than what was forgotten.
func (lk *Locker) reseed(ctx context.Context) error {
	claim := newClaim()
	claimed, err := lk.look(ctx, claim)
	if err != nil {
		return err
	}
	marks, err := lk.look(ctx, "")
	if err != nil {
		return err
	}
	marked, silent, top, first := tally(marks)
	switch {
	case marked+silent < lk.quorum || marked < lk.quorum && silent == 0:
		return fmt.Errorf("%w: %d of %d do, a majority has to: see Locker.SeedFences", ErrNoFences, marked, len(lk.nodes))
	case marked < lk.quorum:
		return tooFew(len(lk.nodes)-silent, len(lk.nodes), []error{first})
	}
	for _, m := range claimed {
		if m.err == nil && m.epoch == "" && m.n.seed(claim, top) {
			lk.events.emit(Event{Kind: EventReseeded, Node: m.n.i})
		}
	}
	return nil
}

// reseedSoon does so in the background, once at a time.
func (lk *Locker) reseedSoon() {
	if !lk.reseeding.CompareAndSwap(false, true) {
		return
	}
	if !lk.spawn(func() {
		defer lk.reseeding.Store(false)
		_ = lk.reseed(lk.ctx)
	}) {
		lk.reseeding.Store(false)
	}
}

func newClaim() string { return hex.EncodeToString([]byte(newToken())) }

// SeedFences prepares several servers for fencing numbers (Options.Fences). It has to be called once before the
// first lock, with 0; calling it again, at each start of a program, does nothing.
//
// It also mends what cannot be mended without knowledge from outside. A server that was restarted counts as one
// that has forgotten the numbers, and gets them from a majority of the others by itself. When a majority has forgotten
// at the same time, acquiring fails with ErrNoFences; then call SeedFences with the highest number that any
// resource has seen, and no lower one: this is the only way in which numbers could come twice. Numbers given out from then
// on are higher.
//
// All servers must answer: ErrTooFewNodes means that not all did.
func (lk *Locker) SeedFences(ctx context.Context, above uint64) error {
	switch {
	case lk == nil || len(lk.nodes) < 3:
		return fmt.Errorf("%w: SeedFences is for lockers on several servers", ErrMisuse)
	case above >= maxFence:
		return fmt.Errorf("%w: fencing numbers end at %d", ErrMisuse, uint64(maxFence))
	case lk.closed.Load():
		return ErrClosed
	}
	for {
		done, err := lk.seedAll(ctx, above)
		if done || err != nil {
			return err
		}
		// Others do the same at the same time.
		timer := time.NewTimer(10*time.Millisecond + rand.N(50*time.Millisecond))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ended(ctx)
		}
	}
}

// seedAll reports whether a majority has its marker in the end. As in reseed, no answer that counts is older
// than the claims.
func (lk *Locker) seedAll(ctx context.Context, above uint64) (bool, error) {
	claim := newClaim()
	claimed, err := lk.look(ctx, claim)
	if err != nil {
		return false, err
	}
	marks, err := lk.look(ctx, "")
	if err != nil {
		return false, err
	}
	marked, silent, top, first := tally(marks)
	_, silentBefore, _, firstBefore := tally(claimed)
	switch {
	case marked >= lk.quorum: // the others are seen to by themselves
		return true, nil
	case silent+silentBefore > 0:
		if first == nil {
			first = firstBefore
		}
		return false, tooFew(len(lk.nodes)-max(silent, silentBefore), len(lk.nodes), []error{first})
	}
	for _, m := range claimed {
		if m.epoch == "" && m.n.seed(claim, max(above, top)) {
			marked++
		}
	}
	return marked >= lk.quorum, nil
}

func digits(n uint64) string { return strconv.FormatUint(n, 10) }
