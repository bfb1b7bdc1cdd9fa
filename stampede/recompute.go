package stampede

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/herdgate/herdgate/internal/budget"
	"github.com/herdgate/herdgate/internal/flight"
	"github.com/herdgate/herdgate/internal/renew"
)

// This file is the recompute path: what a pod does for a key that it cannot serve, or should load
// behind. The callers of a pod share a flight; what they do meanwhile is in caller.go, how a loader is
// run in run.go, how another pod's load is waited for in follow.go.
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
	wait     bool          // somebody waits for it
	trouble  bool          // the store did not answer: do not ask it again
	unsure   bool          // nor the commit of the load that was waited for: its lease may still be there
	left     time.Duration // of the call's budget for steps of the store
	spent    time.Duration // of it, by the flight
	shared   *budget.Spent // with other calls for the same request
	brief    bool          // that is the one of who has a copy
	looked   time.Time     // when the read that found nothing at all was begun
	reason   Reason
	seen     Stamp       // of the entry that is to be replaced
	alt      *Result[T]  // what the caller could be served with if the load fails
	since    time.Time   // when the caller began to wait, for WaitTimeout
	losses   int         // loads of this call whose lease was lost
	blind    bool        // nobody has read what is stored: see unread.go
	expected expectation // what the caller may expect of a read
}

// spend takes the time of a step off the budget.
func (q *ask[T]) spend(since time.Time) (took time.Duration) {
	took = time.Since(since)
	q.left = max(q.left-took, 1)
	q.spent += took
	q.shared.Add(took)
	return took
}

// outcome is what a flight brings to its callers.
type outcome[T any] struct {
	kind    outcomeKind
	result  Result[T]
	err     error         // gotError: of the load; gotValue: ErrNotFound or nil
	before  flight.Mark   // gotValue: for those who came before it
	private bool          // gotValue: for the caller who started the flight
	unsure  bool          // gotValue: its commit was not answered
	unread  bool          // lookAgain: nor was an election that nobody had looked before
	lost    bool          // lookAgain: the lease of the load was lost
	waited  bool          // gotError: WaitTimeout has passed, for those for whom it has
	hit     bool          // gotValue: the first election found it
	dead    bool          // an election has seen that nothing is stored that anybody could be served with
	spent   time.Duration // by the flight, of the budget of the caller who started it
	data    []byte        // gotValue, with CopyOnRead: what each caller's own is decoded from
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

func gaveError[T any](err error) outcome[T] { return outcome[T]{kind: gotError, err: err} }

// job is what a flight does.
type job[T any] struct {
	g    *Guard[T]
	f    *flight.Flight[outcome[T]]
	ctx  context.Context // with the values, not the end, of the ctx of the caller who started the flight
	k    Key
	load loader[T]
	q    ask[T]
	seat *seat // for its load; nil: none yet
	dead bool  // as of the last election: see outcome
}

// recompute does the job of a flight, on the flight's goroutine.
func (g *Guard[T]) recompute(ctx context.Context, f *flight.Flight[outcome[T]], key string, load loader[T], q ask[T]) (out outcome[T]) {
	defer load.batch.settle(key)
	j := &job[T]{g: g, f: f, ctx: context.WithoutCancel(ctx), k: Key{g.space, key}, load: load, q: q}
	j.q.spent = 0
	if err := calmly(func() error { out = j.do(); return nil }); err != nil {
		g.events.emit(EventTrouble, key, 0, err)
		return gaveError[T](err)
	}
	out.spent, out.dead = j.q.spent, j.dead
	return out
}

// calmly does what a store has a part in on a goroutine of the guard's own, where nobody else could recover: a panic
// there, in DoChan as well, would end the process. It returns the panic as an error.
func calmly(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("stampede: panic in the store or the guard: %v\n\n%s", p, debug.Stack())
		}
	}()
	return do()
}

// do elects, and then leads, follows or does without.
func (j *job[T]) do() outcome[T] {
	g, q, key := j.g, &j.q, j.k.Key
	var w vigil
	defer func() {
		j.stand()
		if took := w.end(); took > 0 {
			g.events.emit(EventWaitedForPod, key, took, nil)
		}
	}()
	switch m := g.mode.now(); {
	case m != Normal && (!q.wait || q.blind): // its value would not be stored, or it need not wait
		return outcome[T]{}
	case m != Normal || q.trouble || q.unsure || q.losses >= maxLosses:
		return j.loadAlone(&w, Stamp{})
	}
	for {
		if out, ok := j.sit(&w, true); !ok {
			return out
		}
		m, now, asked := g.local.begin(key), time.Now(), j.f.Mark()
		el, err := j.elect(w.watch == nil)
		switch {
		case err != nil && q.blind && w.watch == nil: // a read may be answered
			g.odds.bad(q.expected)
			return outcome[T]{unread: true}
		case err != nil:
			return j.withoutStore(&w)
		}
		if j.judge(&el.Entry, w.watch == nil) != nil {
			if el.Role != RoleLeader {
				return j.withoutStore(&w)
			}
			expire(&el.Entry) // for all that is known
		}
		r := g.open(key, g.local.peek(key), &el.Entry)
		fr := servable(&el.Entry)
		if j.dead = fr == Dead; !j.dead {
			g.local.put(key, &el.Entry, r.Value, now, m, stored)
		}
		if q.blind && w.watch == nil {
			j.seen(&el.Entry, &r)
		}
		there := found(&el.Entry, r, asked)
		there.hit, there.spent = w.watch == nil, q.spent
		if el.Role == RoleLeader || el.Role == RoleFollower {
			j.f.Waitable(fr == Dead, now) // then others who come need not look
		}
		switch {
		case el.Role == RoleFresh && fr == Fresh:
			return there
		case el.Role == RoleFresh: // but of no use to us: have it replaced
			q.seen = el.Entry.Stamp
			continue
		case el.Role == RoleLeader:
			if q.wait && fr == Stale { // it came since the callers looked: they need not wait
				j.f.Tell(there)
				q.wait = false
			}
			return j.lead(&el, r)
		}
		switch {
		case el.Role == RoleFollower:
			g.events.emit(EventLeaseHeld, key, 0, nil)
		case el.Role == RoleBackOff && (fr != Dead || !q.wait): // no load
			g.events.emit(EventBackOff, key, 0, nil)
		}
		switch {
		case fr == Stale: // somebody else sees to it, or nobody should
			g.holds.put(key, el.Entry.Stamp, el.Left, el.Role == RoleBackOff)
			return there
		case !q.wait:
			g.holds.put(key, el.Entry.Stamp, el.Left, el.Role == RoleBackOff)
			return outcome[T]{}
		case el.Role == RoleBackOff && fr == OnlyIfError:
			g.holds.put(key, el.Entry.Stamp, el.Left, true)
			return outcome[T]{kind: backedOff}
		case el.Role == RolePass && el.Unshared:
			return outcome[T]{kind: loadSelf}
		case el.Role != RoleFollower: // the last load brought nothing: beside others, and the first one is stored
			return j.loadAlone(&w, el.Lease)
		case w.told || g.orphans.active(key, attempt(el.Lease.Token())):
			return j.loadAlone(&w, Stamp{})
		}
		was := w.hedged
		if out, ok := j.hedge(&w, &el); ok {
			return out
		}
		if w.hedged != was {
			continue // what was told meanwhile is known to nobody any more
		}
		j.load.batch.settle(key)
		switch {
		case j.follow(&w, &el):
			if out, ok := j.delivered(&w, asked, now, m); ok && !j.f.JoinedSince(asked) {
				return out
			} else if ok {
				j.f.Waitable(false, time.Time{}) // the others have to look
				j.f.Tell(out)
			}
			continue
		case g.life.quitting():
			return gaveError[T](ErrClosed)
		case j.f.Waiting() == 0:
			return outcome[T]{}
		case g.opts.OnWaitTimeout == FailWait:
			return outcome[T]{kind: gotError, err: fmt.Errorf("%w: %q after %v", ErrWaitTimeout, key, g.opts.WaitTimeout), waited: true}
		default:
			return j.loadAlone(&w, Stamp{})
		}
	}
}

// letGo makes the outcome for who waits for a load that lets them go: made before it, since the load has a goroutine of its own.
func (j *job[T]) letGo() outcome[T] {
	return outcome[T]{kind: loadSelf, dead: j.dead, spent: j.q.spent}
}

// maxLosses is after how many loads whose lease was lost a call's next one does without: pods that lose
// their leases time and again would otherwise take turns for ever.
const maxLosses = 2

// found makes an outcome of an entry that a step has answered with.
func found[T any](e *Entry, r Result[T], asked flight.Mark) outcome[T] {
	out := outcome[T]{kind: gotValue, result: r, before: asked, data: e.Data}
	if e.NotFound {
		out.err = ErrNotFound
	}
	return out
}

// delivered makes an outcome of an entry that came with the message that it was committed. What is known
// of it is from the election before that.
func (j *job[T]) delivered(w *vigil, asked flight.Mark, now time.Time, m mark) (out outcome[T], ok bool) {
	if w.stored == nil {
		return out, false
	}
	e := *w.stored // others may have been told the same
	w.stored = nil
	if j.judge(&e, false) != nil || e.Expired {
		return out, false
	}
	r := j.g.open(j.k.Key, nil, &e)
	if servable(&e) < Stale {
		return out, false
	}
	j.g.local.put(j.k.Key, &e, r.Value, now, m, stored)
	return found(&e, r, asked), true
}

// elect stands for election. Only the first election of a flight is on the callers' budget: later ones
// happen while they wait for a load anyway.
func (j *job[T]) elect(first bool) (Election, error) {
	g, q := j.g, &j.q
	begun := time.Now()
	left := g.opts.StoreBudget
	switch {
	case first && q.blind:
		left = q.left / 2 // the other half is for a read
	case first:
		left = q.left
	}
	step := within(j.ctx, begun.Add(left))
	defer step.release()
	token := NewToken()
	el, err := g.store.Elect(step, j.k, Ballot{Token: token, Length: g.opts.Lease, Seen: q.seen})
	if first {
		q.spend(begun)
	}
	if err != nil {
		if first && q.blind { // else the caller does without
			g.orphans.put(j.k.Key, attempt(token), g.opts.Lease, false)
		}
		g.events.emit(EventTrouble, j.k.Key, 0, err)
		return el, err
	}
	el.Left = max(el.Left-time.Since(begun), 0) // it was true when the store answered
	return el, nil
}

// withoutStore goes on when an election was not answered. Who waits is served: with a copy, or by a load
// without a lease. A load behind is put off, since all pods are in the same trouble.
func (j *job[T]) withoutStore(w *vigil) outcome[T] {
	g, q := j.g, &j.q
	if !q.wait {
		g.holds.put(j.k.Key, q.seen, g.opts.Lease+rand.N(g.opts.Lease), false)
		return outcome[T]{}
	}
	if q.alt == nil {
		if out, ok := g.copied(j.ctx, j.k.Key, j.load); ok {
			return out
		}
	}
	return j.loadAlone(w, Stamp{})
}

// lead runs the load under the lease, keeps the lease meanwhile, and commits.
func (j *job[T]) lead(el *Election, prev Result[T]) outcome[T] {
	g, key, lease := j.g, j.k.Key, el.Lease
	g.events.emit(EventLeaseWon, key, 0, nil)
	about := &Load[T]{key: key, reason: j.q.reason, leased: true, prev: prev.Value,
		has: el.Entry.Freshness() != Dead && !el.Entry.NotFound}
	alone := j.letGo()
	about.release = func(pass time.Duration) { // who waits, here and elsewhere
		j.f.Tell(alone)
		j.release(lease, Pass{For: max(pass, passFor), Unshared: true})
	}
	j.date(about)
	m := g.local.begin(key)
	loadBegan := j.f.Mark()
	r, err := g.start(j.ctx, j.load, about, false)
	if err != nil {
		j.release(lease, Pass{})
		return gaveError[T](err)
	}
	dog := renew.Start(j.ctx, g.opts.Lease/3, func(ctx context.Context) bool { return j.renew(ctx, lease, r) })
	finished := g.await(r)
	dog.Stop()
	j.stand()
	if !finished {
		return j.givenUp(r, lease, &el.Entry)
	}
	ours, err := g.result(r, key)
	switch {
	case ours:
		return outcome[T]{lost: true}
	case err != nil && !r.e.NotFound:
		j.fail(lease, &el.Entry)
		g.background(j.q.wait, err)
		return gaveError[T](err)
	}
	g.background(j.q.wait, nil)
	g.usual.saw(r.took)
	j.learn(&el.Entry, &r.e)
	if !r.dated() {
		g.keep(r, m)
	}
	out := loaded(r, err, loadBegan)
	if r.said.dontStore || r.bad != nil {
		if r.bad != nil {
			g.events.emit(EventNotStored, key, 0, r.bad)
		}
		pass := Pass{For: max(passFor, r.said.pass), Unshared: r.said.dontShare}
		g.holds.put(key, el.Entry.Stamp, pass.For, false)
		j.release(lease, pass) // after ReleaseWaiters it finds the lease gone
		return out
	}
	now, committing := time.Now(), j.f.Mark()
	e := r.e // the commit may go on with its own
	e.Stamp, e.Left = lease, e.TTL+e.Window()
	verdict, vouched := j.commit(lease, r.e, func() bool { return j.vouched(&e, loadBegan) })
	switch verdict {
	case Accepted:
		if out.result.Stored = true; vouched {
			out.before = committing
		} else {
			now = r.begun // a copy is as old as what is known of its tags
		}
		g.local.put(key, &e, r.v, now, m, written)
	case Unknown:
		out.unsure = true
		fallthrough
	case NotStored: // it serves this pod while the store is in trouble
		g.local.put(key, &e, r.v, r.begun, m, unsure)
	}
	return out
}

// loaded makes an outcome of a run that ended well, for those who came before it began.
func loaded[T any](r *run[T], err error, began flight.Mark) outcome[T] {
	out := outcome[T]{kind: gotValue, err: err, before: began, private: r.said.dontShare, data: r.data,
		result: Result[T]{Value: r.v, From: FromLoad, Freshness: Fresh, FreshFor: r.e.TTL}}
	if r.said.dontStore || r.bad != nil {
		out.result.FreshFor = 0
	}
	return out
}

// passFor is how long after a load without a stored value elections are answered with "load, do not
// follow": longer than it takes a follower to subscribe, so that all who followed are told.
const passFor = 500 * time.Millisecond

// commit stores what was loaded. Those who wait do so no longer than their budget allows; the commit
// goes on. Meanwhile vouched is asked.
func (j *job[T]) commit(lease Stamp, e Entry, vouched func() bool) (Verdict, bool) {
	return j.store(vouched, func(ctx context.Context) (Verdict, error) {
		var v Verdict // Unknown
		err := calmly(func() (err error) { v, err = j.g.store.Commit(ctx, j.k, lease, e); return err })
		if v == Unknown { // do not let others wait for the end of a lease that is of no more use
			j.g.orphans.put(j.k.Key, attempt(lease.Token()), j.g.opts.Lease, false)
			j.release(lease, Pass{})
		}
		return v, err
	})
}

// commitMarked does so for a load that began under a marker.
func (j *job[T]) commitMarked(marker Stamp, e Entry, vouched func() bool) (Verdict, bool) {
	return j.store(vouched, func(ctx context.Context) (v Verdict, err error) {
		err = calmly(func() error { v, err = j.g.store.CommitMarked(ctx, j.k, marker, e); return err })
		return v, err
	})
}

func (j *job[T]) store(vouched func() bool, commit func(context.Context) (Verdict, error)) (Verdict, bool) {
	g, key := j.g, j.k.Key
	verdict := make(chan Verdict, 1)
	g.aside(key, func(ctx context.Context) error {
		v, err := commit(ctx)
		verdict <- v
		switch v {
		case Accepted:
			g.events.emit(EventCommitted, key, 0, nil)
		case Refused:
			g.events.emit(EventRefused, key, 0, nil)
		default:
			g.events.emit(EventNotStored, key, 0, err)
		}
		return err
	})
	timer := time.NewTimer(j.q.left)
	defer timer.Stop()
	yes := vouched()
	select {
	case v := <-verdict:
		return v, yes
	case <-timer.C:
		return Unknown, false
	}
}

// renew is called by the watchdog. The lease with another owner ends the load; an absent one does
// not, nor does no answer: not to know is not to have lost.
func (j *job[T]) renew(ctx context.Context, lease Stamp, r *run[T]) (more bool) {
	g, key := j.g, j.k.Key
	step := within(ctx, time.Now().Add(g.opts.Lease/3))
	defer step.release()
	var h Holding
	err := calmly(func() (err error) { h, err = g.store.Renew(step, j.k, lease, g.opts.Lease); return err })
	switch {
	case ctx.Err() != nil: // the load is over: what became of the lease does not matter
		return false
	case err != nil:
		g.events.emit(EventTrouble, key, 0, err)
	case h == Taken:
		g.flights.Look(key)
		g.events.emit(EventLeaseLost, key, 0, ErrLeaseLost)
		r.cancel(ErrLeaseLost)
		j.lostLease(ctx)
		return false
	case h == Absent:
		g.flights.Look(key)
		g.events.emit(EventLeaseGone, key, 0, nil)
		j.tellStored(ctx)
		j.lostLease(ctx)
		return false
	default:
		g.events.emit(EventLeaseRenewed, key, 0, nil)
	}
	return true
}

// lostLease looks after the callers of a load that has no lease any more, until ctx ends, which it does with the
// load: its loader may be deaf, or be about to bring what is not stored, and another pod's is stored meanwhile.
func (j *job[T]) lostLease(ctx context.Context) {
	j.g.life.more()
	defer j.g.life.leave()
	w := j.g.store.Watch(j.k)
	defer w.Close()
	j.lookOut(ctx, w)
}

// tellStored tells the callers of a flight that loads what somebody else has stored meanwhile.
func (j *job[T]) tellStored(ctx context.Context) {
	if j.f.Waiting() == 0 {
		return
	}
	asked := j.f.Mark()
	l := j.g.readCalmly(ctx, j.k.Key, &ask[T]{left: j.g.opts.StoreBudget})
	if l.err == nil && servable(&l.e) >= Stale {
		j.f.Tell(found(&l.e, l.r, asked))
	}
}

// release gives the lease back after a load whose value is not stored.
func (j *job[T]) release(lease Stamp, pass Pass) {
	j.end(lease, func(ctx context.Context) error { return j.g.store.Release(ctx, j.k, lease, pass) })
}

// fail gives the lease back after a load that failed.
func (j *job[T]) fail(lease Stamp, e *Entry) {
	b := j.g.opts.Policy.backoff()
	if b.First == 0 {
		pass := Pass{For: passFor}
		if servable(e) == Stale { // nobody waits: the next caller loads
			pass.For = 0
		}
		j.release(lease, pass)
		return
	}
	stale, began := e.Stamp, time.Now()
	j.g.holds.put(j.k.Key, stale, b.First, true)
	j.end(lease, func(ctx context.Context) error {
		d, err := j.g.store.Fail(ctx, j.k, lease, b)
		if d > b.First {
			j.g.holds.put(j.k.Key, stale, d-time.Since(began), true)
		}
		return err
	})
}

// end ends the lease. If the store does not answer, the lease may stand for as long as it has left: this
// pod knows that there is nobody to follow.
func (j *job[T]) end(lease Stamp, step func(context.Context) error) {
	j.g.aside(j.k.Key, func(ctx context.Context) error {
		err := step(ctx)
		if err != nil {
			j.g.orphans.put(j.k.Key, attempt(lease.Token()), j.g.opts.Lease, false)
		}
		return err
	})
}

// givenUp ends a load whose loader goes on. What it brings at last is dropped.
func (j *job[T]) givenUp(r *run[T], lease Stamp, e *Entry) outcome[T] {
	err := j.g.whyGivenUp(r)
	if errors.Is(err, ErrClosed) {
		j.release(lease, Pass{})
	} else {
		j.fail(lease, e)
	}
	return gaveError[T](err)
}

// loadAlone loads for the callers of this pod, without a lease. Under a marker, which an election was
// answered with, the first of such loads in the fleet is stored: as long as the marker stands, nothing
// was committed, deleted, set or expired since the load began.
func (j *job[T]) loadAlone(w *vigil, marker Stamp) outcome[T] {
	g, key := j.g, j.k.Key
	if out, ok := j.sit(w, false); !ok {
		return out
	}
	alone := j.letGo()
	about := &Load[T]{key: key, reason: j.q.reason, release: func(time.Duration) { j.f.Tell(alone) }}
	if marker != (Stamp{}) {
		j.date(about)
	}
	m := g.local.begin(key)
	j.f.Waitable(false, time.Time{}) // only who came before the load may have its value
	began := j.f.Mark()
	r, err := g.start(j.ctx, j.load, about, false)
	if err != nil {
		return gaveError[T](err)
	}
	out := g.unleased(r, j.q.wait, began, m)
	if marker == (Stamp{}) || out.kind != gotValue || r.said.dontStore || r.bad != nil {
		return out
	}
	if !r.dated() {
		g.events.emit(EventNotStored, key, 0, r.bad)
		return out
	}
	committing, e := j.f.Mark(), r.e
	verdict, vouched := j.commitMarked(marker, r.e, func() bool { return j.vouched(&e, began) })
	if out.result.Stored = verdict == Accepted; out.result.Stored && vouched {
		out.before = committing
	}
	return out
}

// unleased waits for the end of a load that has no lease. Its value is kept in this pod.
func (g *Guard[T]) unleased(r *run[T], wait bool, began flight.Mark, m mark) outcome[T] {
	if !g.await(r) {
		return gaveError[T](g.whyGivenUp(r))
	}
	key := r.about.key
	_, err := g.result(r, key)
	g.background(wait, err)
	if err != nil && !r.e.NotFound {
		return gaveError[T](err)
	}
	if !r.said.dontStore && r.bad == nil {
		g.keep(r, m)
	}
	return loaded(r, err, began)
}

// keep keeps a value that is not stored in this pod.
func (g *Guard[T]) keep(r *run[T], m mark) {
	r.e.Stamp, r.e.Left = NewStamp(), r.e.TTL+r.e.Window()
	g.local.put(r.about.key, &r.e, r.v, r.begun, m, unstored)
}

// aside does a step of the store that nobody waits for, on a ctx of its own.
func (g *Guard[T]) aside(key string, step func(context.Context) error) {
	g.life.more()
	go func() {
		defer g.life.leave()
		ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
		defer cancel()
		if err := calmly(func() error { return step(ctx) }); err != nil {
			g.events.emit(EventTrouble, key, 0, err)
		}
	}()
}

// background logs that loads behind fail, or do not any more: no caller can be told.
func (g *Guard[T]) background(wait bool, err error) {
	if wait {
		return
	}
	g.trouble.say(err != nil, func() {
		if err != nil {
			g.log(slog.LevelWarn, "stampede: loads behind fail", "guard", g.opts.Name, "error", err)
			return
		}
		g.log(slog.LevelInfo, "stampede: loads behind succeed again", "guard", g.opts.Name)
	})
}
