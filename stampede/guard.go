package stampede

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/herdgate/herdgate/internal/budget"
	"github.com/herdgate/herdgate/internal/flight"
	"github.com/herdgate/herdgate/internal/kept"
)

// Guard keeps a stampede away from a source of values of type T. It is made by [New] and safe for
// concurrent use; its methods return ErrNoGuard on the zero value. What a pod shares, like the
// connections to Redis, lives in the Store, so a guard per type of value is cheap.
type Guard[T any] struct {
	store   Store
	opts    Options
	space   string
	place   place
	typ     uint64 // check of T and the codec
	encoded bool   // entries hold bytes

	flights   flight.Group[outcome[T]]
	holds     holds
	orphans   holds  // attempts of this pod whose lease, if there is one, the store did not take back
	local     *local // nil: there is none
	early     earlyRefresh
	short     shortTTL
	tags      tags
	usual     usual
	blindly   bool // callers may stand for election without having read
	odds      odds
	life      lifecycle
	seats     chan struct{} // taken by loads; nil: they need none
	mode      mode[T]
	events    events
	trouble   quiet // what was last logged about background loads
	strangers quiet // and about entries of another type
}

// New makes a guard over store. opts may not be nil, since Options.Name is required. All faults are
// returned at once, joined. T must survive the codec where the store needs one: a channel, a
// function, or a struct without an exported field is refused.
func New[T any](store Store, opts *Options) (*Guard[T], error) {
	if opts == nil {
		opts = new(Options)
	}
	errs := []error{opts.validate()}
	o := opts.withDefaults()
	t := reflect.TypeFor[T]()
	g := &Guard[T]{life: lifecycle{quit: make(chan struct{})}, store: store, opts: o, space: o.space(), early: newEarlyRefresh(o.Policy.Beta)}
	if isNil(store) {
		errs = append(errs, errors.New("stampede: store is nil"))
	} else {
		g.encoded = store.Encoded() || o.CopyOnRead
		g.typ = typeCheck(t, o.Codec, g.encoded)
		g.place.space = g.space
		if reflect.TypeOf(store).Comparable() {
			g.place.store = store
		}
		if checker, ok := o.Codec.(interface{ Check(reflect.Type) error }); ok && g.encoded {
			errs = append(errs, checker.Check(t))
		}
		errs = append(errs, g.useTags())
		if store.Encoded() {
			g.local = newLocal(&g.opts, &g.early)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if o.MaxLoads > 0 {
		g.seats = make(chan struct{}, o.MaxLoads)
	}
	g.blindly = g.mayGoBlind()
	g.odds.trust()
	g.events.name, g.events.obs = o.Name, o.Observer
	g.life.onClose(store.Drops(g.space, g.dropped))
	if o.Tags {
		g.life.onClose(g.tags.store.TagDrops(g.space, g.tagDropped))
	}
	return g, nil
}

// isNil sees a nil pointer in an interface, too.
func isNil(store Store) bool {
	v := reflect.ValueOf(store)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// Get returns the value for key. In this order:
//
//   - A copy in memory that is not older than Local.TTL is returned, if that is on.
//   - A fresh value in the store is returned.
//   - A stale one (within Policy.StaleFor) is returned at once, and one caller in the fleet loads
//     behind.
//   - Otherwise the caller waits for the load: its own, or that of whoever was elected to load.
//
// load is run at most once at a time per key and pod, and, while the store answers, in the fleet. It
// runs on a goroutine of its own with a ctx that has ctx's values but not its end; it must give up
// when that ctx ends. All loaders of a key must agree: the value that one caller may see is given to
// all. Values may be shared with other callers and are read-only; see Options.CopyOnRead.
//
// The error is that of load, untouched, or one of this package; that the store is in trouble is no
// error. When ctx ends first, its error is returned. A value comes only with a nil error.
func (g *Guard[T]) Get(ctx context.Context, key string, load func(ctx context.Context) (T, error)) (T, error) {
	if load != nil {
		if v, ok := g.glance(ctx, key); ok {
			return v, nil
		}
	}
	r, err := g.get(ctx, key, loader[T]{plain: load})
	return r.Value, err
}

// Fetch is Get for loaders that want to know or to say more, see [Load], and for callers that want
// to know where the value is from.
func (g *Guard[T]) Fetch(ctx context.Context, key string, load func(ctx context.Context, l *Load[T]) (T, error)) (Result[T], error) {
	return g.get(ctx, key, loader[T]{full: load})
}

// Result is a value and where it is from. After Expire and ExpireTag, Age counts from TTL on: when the value was stored
// is then not known any more.
type Result[T any] struct {
	Value T

	From      Source
	Freshness Freshness     // Fresh, Stale or OnlyIfError
	FreshFor  time.Duration // still fresh for so long; negative: stale for so long
	Age       time.Duration // since it was stored, by the policy under which it was
	Shared    bool          // it is from a load that another caller, here or elsewhere, has started
	Stored    bool          // it was in the store when this result was made
	Behind    bool          // this call has started something behind that may run its loader
}

// Source says where a value is from.
type Source uint8

// Where a value is from.
const (
	FromStore Source = iota + 1 // read from the store
	FromCopy                    // from this pod's memory, since the store did not answer
	FromLoad                    // from a load that this pod has just done
	FromLocal                   // from this pod's memory, see Local.TTL
)

// String returns a word for logs and headers.
func (s Source) String() string { return word(s, "none", "store", "copy", "load", "local") }

// get is the read path. What happens to who cannot be served at once is in recompute.go.
func (g *Guard[T]) get(ctx context.Context, key string, load loader[T]) (Result[T], error) {
	if err := g.check(ctx, key, load); err != nil {
		return Result[T]{}, err
	}
	if g.mode.now() == Bypass {
		return g.bypass(ctx, key, load)
	}
	if p, now := g.local.hit(key); p != nil {
		if r, err := g.hit(ctx, key, load, p, now); err == nil || is(err, ErrNotFound) {
			return r, err
		}
	}
	c := caller[T]{g: g, ctx: ctx, key: key, load: load, q: ask[T]{wait: true}}
	if t, ok := c.joinUnread(); ok {
		r, again, err := c.wait(&t)
		if !again {
			c.missed()
			return r, err
		}
		c.blind = false
		g.events.emit(EventAgain, key, 0, nil)
	}
	return c.rounds(nil)
}

// rounds reads, unless that was done, and goes on until there is an answer.
func (c *caller[T]) rounds(was *lookup[T]) (Result[T], error) {
	g, ctx, key, load, q := c.g, c.ctx, c.key, c.load, &c.q
	var l lookup[T]
	if was != nil {
		l = *was
	} else {
		l = g.read(ctx, key, q)
		g.odds.saw(q.expected, &l.e, l.err)
	}
	for {
		if r, ok, err := g.served(ctx, key, load, &l); ok {
			return r, err
		}
		if c.failed != nil {
			return c.instead(&l)
		}
		switch {
		case l.err != nil && over(ctx) != nil:
			return Result[T]{}, over(ctx)
		case l.err != nil: // the store is in trouble: a copy, or a load without asking it again
			if out, ok := g.copied(ctx, key, load); ok {
				return out.result, out.err
			}
			q.trouble, q.looked = true, time.Time{}
		default:
			c.missed()
			q.seen, q.trouble, q.alt, q.looked = l.e.Stamp, false, nil, l.begun
			if servable(&l.e) == OnlyIfError {
				q.looked = time.Time{} // who comes may be served with it
				alt := l.r             // a copy, so that l stays off the heap
				q.reason, q.alt = WentStale, &alt
				if g.holds.backedOff(key, l.e.Stamp) {
					return c.ifError(), nil
				}
			}
		}
		if isLoading(ctx, g.place, key) { // by itself: leave no flight behind
			return Result[T]{}, fmt.Errorf("%w: %q", ErrReentrant, key)
		}
		if q.since.IsZero() {
			q.since = l.begun
		}
		t := c.join(&g.flights)
		r, again, err := c.wait(&t)
		if !again {
			return r, err
		}
		g.events.emit(EventAgain, key, 0, nil)
		l = g.read(ctx, key, q)
	}
}

// served serves what was read, if that can be done at once, and has it loaded behind if it is time.
func (g *Guard[T]) served(ctx context.Context, key string, load loader[T], l *lookup[T]) (r Result[T], ok bool, err error) {
	switch fr := servable(&l.e); {
	case l.err != nil || fr < Stale:
		return r, false, l.err
	case fr == Stale:
		g.events.emit(EventStale, key, 0, nil)
		if !l.later {
			l.r.Behind = g.reload(ctx, key, load, ask[T]{reason: WentStale, seen: l.e.Stamp})
		}
	default:
		g.events.emit(EventHit, key, 0, nil)
		if g.early.due(&l.e) {
			l.r.Behind = g.reload(ctx, key, load, ask[T]{reason: NearlyStale, seen: l.e.Stamp})
		}
	}
	if l.e.NotFound {
		return r, true, ErrNotFound
	}
	return l.r, true, nil
}

// lookup is what a read brought.
type lookup[T any] struct {
	e     Entry
	r     Result[T]
	err   error
	begun time.Time
	later bool // it is not yet time to load it behind: see Policy.TagSpread
}

// servable is the freshness of an entry to who might serve it. That there is no such thing is an answer
// only while it is fresh, whatever windows another program has written with it. What is only kept is none.
func servable(e *Entry) Freshness {
	if fr := e.Freshness(); fr == Fresh || !e.NotFound && !e.onlyKept {
		return fr
	}
	return Dead
}

// lookEvery is how often the callers of a pod look for a key for which all there is to do is to wait:
// between that, they just join those who wait. That there is something after all, a Set, is told.
const lookEvery = 50 * time.Millisecond

// read reads key within what is left of the caller's budget. An entry that cannot be used comes back
// with its Fault set, and is a miss.
func (g *Guard[T]) read(ctx context.Context, key string, q *ask[T]) (l lookup[T]) {
	p := g.local.peek(key)
	g.account(ctx, p, q)
	m := g.local.begin(key)
	l.begun = time.Now()
	step := within(ctx, l.begun.Add(q.left))
	if l.e, l.err = g.store.Read(step, Key{g.space, key}); l.err == nil {
		l.later, l.err = g.judge(step, key, &l.e)
	}
	step.release()
	g.odds.took(q.spend(l.begun))
	g.learn(ctx, key, p, &l, m)
	if l.err == nil {
		g.lengthen(key, q)
	}
	return l
}

// readCalmly is read on a goroutine of the guard's own.
func (g *Guard[T]) readCalmly(ctx context.Context, key string, q *ask[T]) (l lookup[T]) {
	if err := calmly(func() error { l = g.read(ctx, key, q); return nil }); err != nil {
		g.events.emit(EventTrouble, key, 0, err)
		return lookup[T]{err: err}
	}
	return l
}

// lengthen gives a call the time of who has no copy, when it turns out that it has none any more: else the pods whose
// election comes too late would all load.
func (g *Guard[T]) lengthen(key string, q *ask[T]) {
	if q.brief && !g.local.has(key) {
		q.brief, q.left = false, q.left+max(g.opts.StoreBudget-g.opts.CopyBudget, 0)
	}
}

// account sets the budget for the steps of a call, before the first of them.
func (g *Guard[T]) account(ctx context.Context, copied *pocket, q *ask[T]) {
	if q.left != 0 {
		return
	}
	q.left, q.brief = g.opts.StoreBudget, g.local.serves(copied)
	if q.brief {
		q.left = g.opts.CopyBudget
	}
	q.shared = budget.Of(ctx)
	q.left = q.shared.Left(q.left)
}

// learn makes a result of what was read, and remembers it. There was a copy before, or nil.
func (g *Guard[T]) learn(ctx context.Context, key string, copied *pocket, l *lookup[T], m mark) {
	if l.err != nil {
		if l.e = (Entry{}); over(ctx) == nil { // else it is the caller's own end that was met
			g.events.emit(EventTrouble, key, 0, l.err)
		}
		return
	}
	l.r = g.open(key, copied, &l.e)
	switch {
	case servable(&l.e) == Dead:
		g.local.gone(key) // a copy of what the store does not have any more, whoever removed it
	case !g.local.asGood(copied, &l.e):
		g.local.put(key, &l.e, l.r.Value, l.begun, m, stored)
	}
}

// open makes a result of an entry. What cannot be used gets its Fault set, which makes it a miss. If there is a copy
// of the entry, it need not be decoded again.
func (g *Guard[T]) open(key string, copied *pocket, e *Entry) (r Result[T]) {
	if e.Stamp == (Stamp{}) && e.Fault == nil {
		return r // nothing is stored
	}
	if e.Fault == nil && e.Type != g.typ {
		e.Fault = errType
		g.strangers.say(true, func() {
			g.log(slog.LevelWarn, "stampede: entries of another type; do two guards have the same name?", "guard", g.opts.Name, "key", key)
		})
	}
	if e.Fault == nil && !e.NotFound {
		r.Value, e.Fault = g.value(copied, e)
	}
	if e.Fault != nil {
		g.events.emit(EventBadEntry, key, 0, e.Fault)
		return Result[T]{}
	}
	r.From, r.Stored, r.Shared = FromStore, true, true
	r.Freshness, r.FreshFor = e.Freshness(), e.FreshFor()
	r.Age = max(e.TTL-r.FreshFor, 0)
	if r.Freshness == OnlyIfError {
		v, ok := any(r.Value).(kept.Value)
		e.onlyKept = ok && -r.FreshFor > time.Duration(v.ServesFor())
	}
	return r
}

var errType = errors.New("stampede: entry of another type or codec")

// value is what an entry holds.
func (g *Guard[T]) value(copied *pocket, e *Entry) (T, error) {
	if g.encoded {
		if had, ok := g.local.decoded(copied, e.Stamp); ok {
			v, _ := had.(T) // a nil interface is none
			return v, nil
		}
		return decode[T](g.opts.Codec, e.Data)
	}
	v, ok := e.Value.(T)
	if !ok && e.Value != nil { // a nil interface is a T, too, where T is one
		return v, errType
	}
	return v, nil
}

// hit serves a copy without asking the store, and asks it behind when that is due.
func (g *Guard[T]) hit(ctx context.Context, key string, load loader[T], p *pocket, now time.Duration) (Result[T], error) {
	r, err := g.ofCopy(p, now, FromLocal)
	if r.Freshness == Stale {
		g.events.emit(EventStale, key, 0, nil)
	} else {
		g.events.emit(EventLocalHit, key, 0, nil)
	}
	if p.due(now) {
		if r.Behind = g.reloadUnread(ctx, key, load, p, now); !r.Behind {
			r.Behind, _ = g.look(ctx, key, load, false) // a closed guard serves on
		}
	}
	return r, err
}

// glance is get for a copy that is only to be handed over, which most hits in memory are. A Result and a
// loader that are carried about cost as much as the look into memory does.
func (g *Guard[T]) glance(ctx context.Context, key string) (v T, ok bool) {
	if g.checkKey(ctx, key) != nil || g.mode.now() == Bypass || g.opts.CopyOnRead {
		return v, false
	}
	p, now := g.local.hit(key)
	if p == nil || p.notFound || now >= p.check { // it is fresh until then
		return v, false
	}
	g.events.emit(EventLocalHit, key, 0, nil)
	v, _ = p.value.(T) // a nil interface is none
	return v, true
}

// copied serves a copy because the store does not answer.
func (g *Guard[T]) copied(ctx context.Context, key string, load loader[T]) (out outcome[T], ok bool) {
	p, reload := g.local.get(key)
	if p == nil {
		return out, false
	}
	r, err := g.ofCopy(p, g.local.now(), FromCopy)
	if err != nil && !is(err, ErrNotFound) {
		return out, false
	}
	g.events.emit(EventCopy, key, 0, nil)
	if reload {
		r.Behind = g.reload(ctx, key, load, ask[T]{reason: WentStale, trouble: true})
	}
	return outcome[T]{kind: gotValue, result: r, err: err, before: everyone, data: p.data}, true
}

// ofCopy makes a caller's result of a copy.
func (g *Guard[T]) ofCopy(p *pocket, now time.Duration, from Source) (r Result[T], err error) {
	if p.notFound {
		return r, ErrNotFound
	}
	fresh := p.stale - now
	if g.local.tagDropped(p) {
		fresh = min(fresh, 0)
	}
	r = Result[T]{From: from, Freshness: Fresh, FreshFor: fresh, Shared: true, Stored: from == FromLocal, Age: max(p.ttl-fresh, 0)}
	if fresh <= 0 {
		r.Freshness = Stale
	}
	if g.opts.CopyOnRead {
		r.Value, err = decode[T](g.opts.Codec, p.data)
	} else {
		r.Value, _ = p.value.(T) // a nil interface is none
	}
	return r, err
}

// reload starts a load behind, unless one is under way or known to be somebody else's business.
func (g *Guard[T]) reload(ctx context.Context, key string, load loader[T], q ask[T]) (started bool) {
	if g.mode.now() != Normal || g.flights.Flying(key) || g.holds.active(key, q.seen) {
		return false
	}
	q.left = g.opts.StoreBudget
	started, _ = g.behind(key, load.batch, func(f *flight.Flight[outcome[T]]) outcome[T] {
		return g.recompute(ctx, f, key, load, q)
	})
	return started
}

// look reads key behind, and loads it if it is not fresh any more, or soon will not be, or in any case.
func (g *Guard[T]) look(ctx context.Context, key string, load loader[T], inAnyCase bool) (started bool, err error) {
	return g.behind(key, load.batch, func(f *flight.Flight[outcome[T]]) outcome[T] {
		q := ask[T]{reason: Asked, left: g.opts.StoreBudget}
		l := g.readCalmly(context.WithoutCancel(ctx), key, &q)
		fr := servable(&l.e)
		switch {
		case l.err != nil:
			return outcome[T]{}
		case inAnyCase:
		case fr == Fresh && g.early.due(&l.e):
			q.reason = NearlyStale
		case fr != Stale || l.later || g.holds.active(key, l.e.Stamp):
			return outcome[T]{}
		default:
			q.reason = WentStale
		}
		q.seen = l.e.Stamp
		return g.recompute(ctx, f, key, load, q)
	})
}

// behind starts a flight that nobody waits for.
func (g *Guard[T]) behind(key string, b *batch[T], run func(*flight.Flight[outcome[T]]) outcome[T]) (started bool, err error) {
	if !g.life.enter() {
		return false, ErrClosed
	}
	b.expect(key)
	if started = g.flights.Start(key, func(f *flight.Flight[outcome[T]]) outcome[T] {
		defer g.life.leave()
		defer b.settle(key)
		return run(f)
	}); !started {
		b.settle(key)
		g.life.leave()
	}
	return started, nil
}

// Peek returns what is stored for key, without loading anything. ok is false when there is nothing
// that Get would serve at once; a remembered ErrNotFound is returned as that error.
func (g *Guard[T]) Peek(ctx context.Context, key string) (r Result[T], ok bool, err error) {
	if err := g.checkKey(ctx, key); err != nil {
		return r, false, err
	}
	if g.mode.now() == Bypass {
		return r, false, nil
	}
	shared := budget.Of(ctx)
	l := g.read(ctx, key, &ask[T]{left: shared.Left(g.opts.StoreBudget), shared: shared})
	switch {
	case l.err != nil && over(ctx) != nil:
		return Result[T]{}, false, over(ctx)
	case l.err != nil:
		return Result[T]{}, false, fmt.Errorf("stampede: peek %q: %w", key, l.err)
	case servable(&l.e) < Stale:
		return Result[T]{}, false, nil
	case l.e.NotFound:
		return Result[T]{}, false, ErrNotFound
	}
	return l.r, true, nil
}

// Refresh starts a load of key behind, even if what is stored is fresh, and does not wait for it. In
// the fleet one pod loads. It does nothing, and returns nil, when a load is under way, when the last one
// failed and its ErrorBackoff has not passed, or when the store does not answer.
func (g *Guard[T]) Refresh(ctx context.Context, key string, load func(ctx context.Context) (T, error)) error {
	l := loader[T]{plain: load}
	if err := g.check(ctx, key, l); err != nil || g.mode.now() != Normal {
		return err
	}
	_, err := g.look(ctx, key, l, true)
	return err
}

// Stats returns the counts since the guard was made.
func (g *Guard[T]) Stats() Stats {
	if g == nil {
		return Stats{}
	}
	s := g.events.stats()
	s.Loading, s.Abandoned = int(g.life.loading.Load()), int(g.life.abandoned.Load())
	return s
}

// Close ends loading. Loads under way may end until ctx does, then they are cancelled. What can be
// served without a load still is, so that requests can drain; other callers get ErrClosed. The store
// stays open. Close returns nil if all loads ended in time, else ctx's error.
func (g *Guard[T]) Close(ctx context.Context) error {
	if g == nil || g.store == nil {
		return ErrNoGuard
	}
	return g.life.shutdown(ctx)
}

func (g *Guard[T]) checkGuard(ctx context.Context) error {
	if g == nil || g.store == nil {
		return ErrNoGuard
	}
	return ctx.Err()
}

func (g *Guard[T]) checkKey(ctx context.Context, key string) error {
	if key == "" && g != nil && g.store != nil {
		return ErrBadKey
	}
	return g.checkGuard(ctx)
}

func (g *Guard[T]) check(ctx context.Context, key string, load loader[T]) error {
	if err := g.checkKey(ctx, key); err != nil {
		return err
	}
	if load.isNil() {
		return ErrNilLoader
	}
	return nil
}

// quiet logs changes of a state, not each time that it is seen.
type quiet struct{ bad atomic.Bool }

func (q *quiet) say(bad bool, log func()) {
	if q.bad.Load() != bad && q.bad.Swap(bad) != bad {
		log()
	}
}
