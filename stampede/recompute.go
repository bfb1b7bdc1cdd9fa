package stampede

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/herdgate/herdgate/internal/flight"
	"github.com/herdgate/herdgate/internal/renew"
)

// This file is the recompute path: what a pod does for a key that it cannot serve, or should load
// behind. The callers of a pod share a flight; recompute is what a flight does, wait is what its
// callers do.
//
// Who may get which value. A caller takes a value only if it came before the step was sent that vouches
// for it: the elect that answered with an entry, or the commit that was accepted; or before the load
// began. For then the value was in the store while the caller waited, or comes from a load that began
// while it did. A commit that was refused, or not answered, vouches for nothing. Everybody else goes
// round again: at most once for a load, since the next load begins after they came.
//
// Why no late write wins. Commit checks in one atomic step that the lease still holds the very stamp
// that was granted to this load. Delete, Set and Expire end the lease; whoever is elected next gets
// another stamp; so does a late copy of the elect that this load was granted by. Hence between the
// grant and an accepted commit nothing was deleted, set, expired or committed. No clock takes part.
//
// Why no waiter sleeps for ever. Whoever follows another pod's load subscribes first and elects again
// after that: what ended the lease before that is seen by the election, what ends it later is told.
// A leader that died ends it by not renewing, and who follows does not sleep longer than the lease has
// left. All of it ends at WaitTimeout.

// ask is what a flight is wanted for.
type ask[T any] struct {
	wait    bool          // somebody waits for it
	trouble bool          // the store did not answer: do not ask it again
	unsure  bool          // nor the commit of the load that was waited for: its lease may still be there
	left    time.Duration // of the call's budget for steps of the store
	looked  time.Time     // when the read that found nothing at all was begun
	reason  Reason
	seen    Stamp      // of the entry that is to be replaced
	alt     *Result[T] // what the caller could be served with if the load fails
}

func (q *ask[T]) spend(since time.Time) { q.left = max(q.left-time.Since(since), 1) }

// outcome is what a flight brings to its callers.
type outcome[T any] struct {
	kind    outcomeKind
	result  Result[T]
	err     error         // failed: of the load; value: ErrNotFound or nil
	before  flight.Mark   // value: for those who came before it
	private bool          // value: for the caller who started the flight
	unsure  bool          // value: its commit was not answered
	spent   time.Duration // of the budget of the caller who started the flight
	data    []byte        // value, with CopyOnRead: what each caller's own is decoded from
}

type outcomeKind uint8

const (
	lookAgain outcomeKind = iota // look again
	gotValue                     // the value, or ErrNotFound
	gotError                     // the load failed
	backedOff                    // no load, since the last one failed: for those who have an alternative
	loadSelf                     // each caller loads for itself
)

// everyone is a mark that all callers came before.
const everyone = flight.Mark(math.MaxUint64)

// join joins the flight of key, or starts one.
func (g *Guard[T]) join(ctx context.Context, key string, load loader[T], q ask[T]) flight.Ticket[outcome[T]] {
	return g.flights.Join(key, q.looked, func(f *flight.Flight[outcome[T]]) outcome[T] {
		if !g.life.enter() {
			return outcome[T]{kind: gotError, err: ErrClosed}
		}
		defer g.life.leave()
		return g.recompute(ctx, f, key, load, q)
	})
}

// wait waits in a flight and returns what it brings to this caller. came is when the caller joined its
// first flight; zero: it is this one.
func (g *Guard[T]) wait(ctx context.Context, t *flight.Ticket[outcome[T]], key string, load loader[T], q *ask[T], came *flight.Mark) (r Result[T], again bool, err error) {
	defer t.Leave()
	if isLoading(ctx, g.space, key) {
		return r, false, fmt.Errorf("%w: %q", ErrReentrant, key)
	}
	if *came == 0 {
		*came = t.Joined()
	}
	var soft <-chan time.Time
	if q.alt != nil && g.opts.SoftTimeout > 0 {
		timer := time.NewTimer(g.opts.SoftTimeout)
		defer timer.Stop()
		soft = timer.C
	}
	for {
		early, news := t.Early()
		if early != nil && (early.kind != loadSelf || !t.Starter()) {
			if r, again, err = g.take(ctx, t.Starter(), *came, early, key, load, q, soft); !again {
				return r, false, err
			}
		}
		select {
		case <-ctx.Done():
			return Result[T]{}, false, ctx.Err()
		case <-soft:
			return g.ifError(key, q), false, nil
		case <-news:
		case done := <-t.Done():
			out := landed[T](done)
			r, again, err = g.take(ctx, t.Starter(), *came, out, key, load, q, soft)
			if again && t.Starter() { // one budget over all rounds
				q.left = max(q.left-out.spent, 1)
			}
			return r, again, err
		}
	}
}

func landed[T any](r singleflight.Result) *outcome[T] { return flight.Result[outcome[T]](r) }

// take is the rule who may get which value. When a caller came counts from its first flight on: who goes
// round again, and finds that somebody else has begun the next load already, has a part in that.
func (g *Guard[T]) take(ctx context.Context, starter bool, came flight.Mark, out *outcome[T], key string, load loader[T], q *ask[T], soft <-chan time.Time) (r Result[T], again bool, err error) {
	switch out.kind {
	case gotValue:
		if out.private && !starter {
			return g.loadSelf(ctx, key, load, q, soft)
		}
		if came >= out.before {
			q.unsure = out.unsure
			return r, true, nil
		}
		r = out.result
		if g.opts.CopyOnRead && out.err == nil && !out.private {
			own, err := decode[T](g.opts.Codec, out.data)
			switch {
			case err == nil:
				r.Value = own
			case !starter:
				return g.loadSelf(ctx, key, load, q, soft)
			}
		}
		if !starter && out.err == nil {
			r.Shared = true
			g.events.emit(EventWaited, key, 0, nil)
		}
		return r, false, out.err
	case gotError:
		if q.alt != nil {
			return g.ifError(key, q), false, nil
		}
		return r, false, out.err
	case backedOff:
		if q.alt != nil {
			return g.ifError(key, q), false, nil
		}
	case loadSelf:
		return g.loadSelf(ctx, key, load, q, soft)
	}
	return r, true, nil
}

func (g *Guard[T]) ifError(key string, q *ask[T]) Result[T] {
	g.events.emit(EventIfError, key, 0, nil)
	return *q.alt
}

// recompute elects, and then leads, follows or does without. It runs on the flight's goroutine, with
// the values of the ctx of the caller who started it.
func (g *Guard[T]) recompute(ctx context.Context, f *flight.Flight[outcome[T]], key string, load loader[T], q ask[T]) (out outcome[T]) {
	defer func() {
		if p := recover(); p != nil { // a store's, say; DoChan would end the process
			out = outcome[T]{kind: gotError, err: &PanicError{Value: p, Stack: debug.Stack()}}
		}
	}()
	had := q.left
	defer func() { out.spent = had - q.left }()
	ctx = context.WithoutCancel(ctx)
	if q.trouble || q.unsure {
		return g.loadAlone(ctx, f, key, load, &q)
	}
	var w vigil
	defer func() {
		if took := w.end(); took > 0 {
			g.events.emit(EventWaitedForPod, key, took, nil)
		}
	}()
	for {
		now, asked := time.Now(), f.Mark()
		el, err := g.elect(ctx, key, &q, w.watch == nil)
		if err != nil {
			return g.withoutStore(ctx, f, key, load, &q)
		}
		r := g.open(key, &el.Entry)
		fr := el.Entry.Freshness()
		if fr == Dead && (el.Role == RoleLeader || el.Role == RoleFollower) {
			f.Waitable(true, now) // others who come need not look: there is nothing but this load to wait for
		}
		switch {
		case el.Role == RoleFresh && fr == Fresh:
			return found(&el.Entry, r, asked)
		case el.Role == RoleFresh: // but of no use to us: have it replaced
			q.seen = el.Entry.Stamp
			continue
		case el.Role == RoleLeader:
			if q.wait && fr == Stale { // it came since the callers looked: they need not wait
				f.Tell(found(&el.Entry, r, asked))
			}
			return g.lead(ctx, f, key, load, &q, &el, r)
		}
		g.events.emit(refusals[el.Role], key, 0, nil)
		switch {
		case fr == Stale: // somebody else sees to it, or nobody should
			g.holds.put(key, el.Entry.Stamp, el.Left, el.Role == RoleBackOff)
			return found(&el.Entry, r, asked)
		case !q.wait:
			g.holds.put(key, el.Entry.Stamp, el.Left, el.Role == RoleBackOff)
			return outcome[T]{}
		case el.Role == RoleBackOff && fr == OnlyIfError:
			g.holds.put(key, el.Entry.Stamp, el.Left, true)
			return outcome[T]{kind: backedOff}
		case el.Role == RolePass && el.Unshared:
			return outcome[T]{kind: loadSelf}
		case el.Role != RoleFollower || w.told:
			return g.loadAlone(ctx, f, key, load, &q)
		case g.follow(&w, f, key, &el):
			continue
		case g.life.quitting():
			return outcome[T]{kind: gotError, err: ErrClosed}
		case f.Waiting() == 0:
			return outcome[T]{}
		case g.opts.OnWaitTimeout == FailWait:
			return outcome[T]{kind: gotError, err: fmt.Errorf("%w: %q after %v", ErrWaitTimeout, key, g.opts.WaitTimeout)}
		default:
			return g.loadAlone(ctx, f, key, load, &q)
		}
	}
}

// refusals are the events of the elections that did not make this pod load.
var refusals = map[Role]EventKind{RoleBackOff: EventBackOff, RolePass: EventBackOff, RoleFollower: EventLeaseHeld}

// found makes an outcome of an entry that a step has answered with.
func found[T any](e *Entry, r Result[T], asked flight.Mark) outcome[T] {
	out := outcome[T]{kind: gotValue, result: r, before: asked, data: e.Data}
	if e.NotFound {
		out.err = ErrNotFound
	}
	return out
}

// elect stands for election. Only the first election of a flight is on the callers' budget: later ones
// happen while they wait for a load anyway.
func (g *Guard[T]) elect(ctx context.Context, key string, q *ask[T], first bool) (Election, error) {
	begun := time.Now()
	left := g.opts.StoreBudget
	if first {
		left = q.left
	}
	step := within(ctx, begun.Add(left))
	defer step.release()
	el, err := g.store.Elect(step, Key{g.space, key}, Ballot{Token: NewToken(), Length: g.opts.Lease, Seen: q.seen})
	if err != nil {
		g.events.emit(EventTrouble, key, 0, err)
		return el, err
	}
	if first {
		q.spend(begun)
	}
	return el, nil
}

// withoutStore goes on when an election was not answered. Who waits is served: with a copy, or by a load
// without a lease. A load behind is put off, since all pods are in the same trouble.
func (g *Guard[T]) withoutStore(ctx context.Context, f *flight.Flight[outcome[T]], key string, load loader[T], q *ask[T]) outcome[T] {
	if !q.wait {
		g.holds.put(key, q.seen, g.opts.Lease+rand.N(g.opts.Lease), false)
		return outcome[T]{}
	}
	if q.alt == nil {
		if r, data, ok := g.copied(ctx, key, load); ok {
			return outcome[T]{kind: gotValue, result: r, before: everyone, data: data}
		}
	}
	return g.loadAlone(ctx, f, key, load, q)
}

// lead runs the load under the lease, keeps the lease meanwhile, and commits.
func (g *Guard[T]) lead(ctx context.Context, f *flight.Flight[outcome[T]], key string, load loader[T], q *ask[T], el *Election, prev Result[T]) outcome[T] {
	g.events.emit(EventLeaseWon, key, 0, nil)
	k, lease := Key{g.space, key}, el.Lease
	about := &Load[T]{key: key, reason: q.reason, leased: true, prev: prev.Value,
		has: el.Entry.Freshness() != Dead && !el.Entry.NotFound}
	release := func(pass Pass) {
		g.aside(func(ctx context.Context) error { return g.store.Release(ctx, k, lease, pass) }, key)
	}
	about.release = func(pass time.Duration) { // who waits, here and elsewhere
		f.Tell(outcome[T]{kind: loadSelf})
		release(Pass{For: max(pass, passFor), Unshared: true})
	}
	_, drops := g.copies.begin(key)
	loadBegan := f.Mark()
	r, ok := g.start(ctx, load, about)
	if !ok {
		release(Pass{})
		return outcome[T]{kind: gotError, err: ErrOverloaded}
	}
	dog := renew.Start(ctx, g.opts.Lease/3, func(ctx context.Context) bool { return g.renew(ctx, k, lease, r) })
	finished := g.await(r)
	dog.Stop()
	if !finished {
		return g.givenUp(r, k, lease, &el.Entry)
	}
	ours, err := g.result(r, key)
	switch {
	case ours:
		return outcome[T]{}
	case err != nil && !r.e.NotFound:
		g.fail(k, lease, &el.Entry)
		g.background(q, err)
		return outcome[T]{kind: gotError, err: err}
	}
	g.background(q, nil)
	out := outcome[T]{kind: gotValue, err: err, before: loadBegan, private: r.said.dontShare, data: r.data,
		result: Result[T]{Value: r.v, From: FromLoad, Freshness: Fresh, FreshFor: r.e.TTL}}
	if r.said.dontStore || r.bad != nil {
		if r.bad != nil {
			g.events.emit(EventNotStored, key, 0, r.bad)
		}
		pass := Pass{For: max(passFor, r.said.pass), Unshared: r.said.dontShare}
		g.holds.put(key, el.Entry.Stamp, pass.For, false)
		release(pass) // after ReleaseWaiters it finds the lease gone
		out.result.FreshFor = 0
		return out
	}
	committing := f.Mark()
	e := r.e // the commit may go on with its own
	e.Stamp, e.Left = lease, e.TTL+e.Window()
	switch g.commit(k, lease, r.e, q) {
	case Accepted:
		out.before, out.result.Stored = committing, true
		g.copies.put(key, &e, r.v, r.begun, drops)
	case Unknown:
		out.unsure = true
		fallthrough
	case NotStored: // it serves this pod while the store is in trouble
		g.copies.put(key, &e, r.v, r.begun, drops)
	}
	return out
}

// passFor is how long after a load without a stored value elections are answered with "load, do not
// follow": longer than it takes a follower to subscribe, so that all who followed are told.
const passFor = 500 * time.Millisecond

// commit stores what was loaded. Those who wait do so no longer than their budget allows; the commit
// goes on.
func (g *Guard[T]) commit(k Key, lease Stamp, e Entry, q *ask[T]) Verdict {
	verdict := make(chan Verdict, 1)
	g.aside(func(ctx context.Context) error {
		v, err := g.store.Commit(ctx, k, lease, e)
		verdict <- v
		switch {
		case v == Accepted:
			g.events.emit(EventCommitted, k.Key, 0, nil)
		case v == Refused:
			g.events.emit(EventRefused, k.Key, 0, nil)
		default:
			g.events.emit(EventNotStored, k.Key, 0, err)
		}
		if v == Unknown { // do not let others wait for the end of a lease that is of no more use
			g.aside(func(ctx context.Context) error { return g.store.Release(ctx, k, lease, Pass{}) }, k.Key)
		}
		return err
	}, k.Key)
	timer := time.NewTimer(q.left)
	defer timer.Stop()
	select {
	case v := <-verdict:
		return v
	case <-timer.C:
		return Unknown
	}
}

// aside does a step of the store that nobody waits for, on a ctx of its own.
func (g *Guard[T]) aside(step func(context.Context) error, key string) {
	g.life.more()
	go func() {
		defer g.life.leave()
		ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
		defer cancel()
		if err := step(ctx); err != nil {
			g.events.emit(EventTrouble, key, 0, err)
		}
	}()
}

// renew is called by the watchdog. The lease with another owner ends the load; an absent one does
// not, nor does no answer: not to know is not to have lost.
func (g *Guard[T]) renew(ctx context.Context, k Key, lease Stamp, r *run[T]) (more bool) {
	step := within(ctx, time.Now().Add(g.opts.Lease/3))
	defer step.release()
	h, err := g.store.Renew(step, k, lease, g.opts.Lease)
	switch {
	case ctx.Err() != nil: // the load is over: what became of the lease does not matter
		return false
	case err != nil:
		g.events.emit(EventTrouble, k.Key, 0, err)
	case h == Taken:
		g.flights.Look(k.Key)
		g.events.emit(EventLeaseLost, k.Key, 0, ErrLeaseLost)
		r.cancel(ErrLeaseLost)
		return false
	case h == Absent:
		g.flights.Look(k.Key)
		g.events.emit(EventLeaseGone, k.Key, 0, nil)
		return false
	default:
		g.events.emit(EventLeaseRenewed, k.Key, 0, nil)
	}
	return true
}

// fail gives the lease back after a load that failed.
func (g *Guard[T]) fail(k Key, lease Stamp, e *Entry) {
	if d := g.opts.Policy.ErrorBackoff; d > 0 {
		g.holds.put(k.Key, e.Stamp, d, true)
		g.aside(func(ctx context.Context) error { return g.store.Fail(ctx, k, lease, d) }, k.Key)
		return
	}
	g.aside(func(ctx context.Context) error { return g.store.Release(ctx, k, lease, Pass{For: passFor}) }, k.Key)
}

// givenUp ends a load whose loader goes on. What it brings at last is dropped.
func (g *Guard[T]) givenUp(r *run[T], k Key, lease Stamp, e *Entry) outcome[T] {
	err := fmt.Errorf("%w: %q after %v", ErrLoadTimeout, k.Key, g.opts.LoadTimeout)
	if context.Cause(r.ctx) == ErrClosed {
		g.aside(func(ctx context.Context) error { return g.store.Release(ctx, k, lease, Pass{}) }, k.Key)
		return outcome[T]{kind: gotError, err: ErrClosed}
	}
	g.events.emit(EventLoadTimedOut, k.Key, g.opts.LoadTimeout, err)
	g.fail(k, lease, e)
	return outcome[T]{kind: gotError, err: err}
}

// loadAlone loads for the callers of this pod, without lease and commit.
func (g *Guard[T]) loadAlone(ctx context.Context, f *flight.Flight[outcome[T]], key string, load loader[T], q *ask[T]) outcome[T] {
	about := &Load[T]{key: key, reason: q.reason, release: func(time.Duration) { f.Tell(outcome[T]{kind: loadSelf}) }}
	_, drops := g.copies.begin(key)
	f.Waitable(false, time.Time{}) // only who came before the load may have its value
	began := f.Mark()
	r, ok := g.start(ctx, load, about)
	if !ok {
		return outcome[T]{kind: gotError, err: ErrOverloaded}
	}
	return g.unleased(r, key, q, began, drops)
}

// unleased waits for the end of a load that has no lease.
func (g *Guard[T]) unleased(r *run[T], key string, q *ask[T], began flight.Mark, drops uint32) outcome[T] {
	if !g.await(r) {
		err := fmt.Errorf("%w: %q after %v", ErrLoadTimeout, key, g.opts.LoadTimeout)
		if context.Cause(r.ctx) == ErrClosed {
			return outcome[T]{kind: gotError, err: ErrClosed}
		}
		g.events.emit(EventLoadTimedOut, key, g.opts.LoadTimeout, err)
		return outcome[T]{kind: gotError, err: err}
	}
	_, err := g.result(r, key)
	g.background(q, err)
	if err != nil && !r.e.NotFound {
		return outcome[T]{kind: gotError, err: err}
	}
	if !r.said.dontStore && r.bad == nil {
		r.e.Stamp, r.e.Left = NewStamp(), r.e.TTL+r.e.Window()
		g.copies.putUnstored(key, &r.e, r.v, r.begun, drops)
	}
	return outcome[T]{kind: gotValue, err: err, before: began, private: r.said.dontShare, data: r.data,
		result: Result[T]{Value: r.v, From: FromLoad, Freshness: Fresh, FreshFor: r.e.TTL}}
}

// loadSelf loads for one caller. Nobody else waits for it, so it ends when the caller leaves.
func (g *Guard[T]) loadSelf(ctx context.Context, key string, load loader[T], q *ask[T], soft <-chan time.Time) (Result[T], bool, error) {
	if !g.life.enter() {
		return Result[T]{}, false, ErrClosed
	}
	r, ok := g.start(ctx, load, &Load[T]{key: key, reason: q.reason, release: func(time.Duration) {}})
	if !ok {
		g.life.leave()
		return Result[T]{}, false, ErrOverloaded
	}
	done := make(chan outcome[T], 1)
	own := *q // so that the caller's stays off the heap
	go func() {
		defer g.life.leave()
		done <- g.unleased(r, key, &own, everyone, 0)
	}()
	select {
	case out := <-done:
		if out.kind == gotError && q.alt != nil {
			return g.ifError(key, q), false, nil
		}
		return out.result, false, out.err
	case <-soft:
		r.cancel(nil)
		return g.ifError(key, q), false, nil
	case <-ctx.Done():
		r.cancel(context.Cause(ctx))
		return Result[T]{}, false, ctx.Err()
	}
}

// background logs that loads behind fail, or do not any more: no caller can be told.
func (g *Guard[T]) background(q *ask[T], err error) {
	if q.wait {
		return
	}
	g.trouble.say(err != nil, func() {
		if err != nil {
			g.opts.Logger.Warn("stampede: loads behind fail", "guard", g.opts.Name, "error", err)
			return
		}
		g.opts.Logger.Info("stampede: loads behind succeed again", "guard", g.opts.Name)
	})
}
