package modeltest

import (
	"context"
	"slices"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// record is what the store holds of tags, written down once more.
type record struct {
	epoch, number, floor uint64
	numbers              map[string]uint64
}

// mostTags is of how many tags the record remembers the last expiry: of fewer than there are.
const mostTags = 2

var allTags = []string{"x", "y", "z"}

// expiry is an ExpireTag that the store has run.
type expiry struct {
	tag  string
	step int
	at   time.Duration
}

// ownExpiry is an ExpireTag of a pod that has returned.
type ownExpiry struct {
	tag             string
	begun, returned int
}

// pickTags are the tags that a load gives to its value.
func (w *world) pickTags(l *load) (tags []string) {
	if !w.cfg.opts.Tags || l.about == nil {
		return nil
	}
	for _, tag := range allTags {
		if w.rng.IntN(2) == 0 {
			tags = append(tags, tag)
		}
	}
	return tags
}

// tagTime makes a record where there is none.
func (w *world) tagTime() stampede.TagTime {
	if w.record.epoch == 0 {
		w.epochs++
		w.record = record{epoch: w.epochs, number: 1, numbers: map[string]uint64{}}
	}
	return stampede.TagTime{Epoch: w.record.epoch, Number: w.record.number}
}

func (w *world) tagState(tags []string) stampede.TagState {
	s := stampede.TagState{Epoch: w.record.epoch, Floor: w.record.floor}
	for _, tag := range tags {
		s.Numbers = append(s.Numbers, w.record.numbers[tag])
	}
	return s
}

func (w *world) expireTag(tag string) {
	w.expiries = append(w.expiries, expiry{tag, w.step, w.now()})
	w.saw(sawExpireTag)
	for _, p := range w.alive() {
		if p.tagDrops != nil && !w.cfg.unheard {
			w.hints = append(w.hints, hint{pod: p, tag: tag})
		}
	}
	r := &w.record
	if r.epoch == 0 {
		return
	}
	if w.cfg.broken != tagKeepsNumber {
		r.number++
	}
	r.numbers[tag] = r.number
	if len(r.numbers) <= mostTags {
		return
	}
	oldest := ""
	for t, n := range r.numbers {
		if oldest == "" || n < r.numbers[oldest] {
			oldest = t
		}
	}
	if w.cfg.broken != tagsForgotten {
		r.floor = max(r.floor, r.numbers[oldest])
	}
	delete(r.numbers, oldest)
}

// forget loses the record, as an eviction does.
func (w *world) forget() {
	w.note("store: loses its record of %s", "tags")
	if w.cfg.broken == sameEpoch && w.record.epoch != 0 {
		w.record = record{epoch: w.record.epoch, number: 1, numbers: map[string]uint64{}}
		return
	}
	w.record = record{}
}

// judged returns an entry as who reads it has to take it.
func (w *world) judged(e stampede.Entry) stampede.Entry {
	if e.Tags == nil || e.Freshness() != stampede.Fresh {
		return e
	}
	r := &w.record
	if at := e.Tags.AsOf; r.epoch != 0 && at.Epoch == r.epoch && at.Number >= r.floor &&
		!slices.ContainsFunc(e.Tags.Names, func(tag string) bool { return r.numbers[tag] > at.Number }) {
		return e
	}
	if e.Expired = true; e.Window() == 0 {
		e.Left = 0
	}
	return e
}

// checkTags is P9 for tags: what a load has brought is not fresh for calls that begin after one of its tags
// has expired, if that was after the load began. A copy in memory may lag behind by Local.TTL, or while the store
// does not answer, but not behind the pod's own.
func (w *world) checkTags(c *call, loads []*load) {
	if c.what != doFetch || len(loads) == 0 {
		return
	}
	for _, l := range loads {
		if !w.tagExpired(l, c) {
			return
		}
	}
	// A load that says "not modified" brings what a Set may have stored, without tags.
	if slices.ContainsFunc(c.key.past, func(x *version) bool { return x.load == nil && x.value == c.result.Value }) {
		return
	}
	if c.result.Freshness != stampede.Fresh {
		w.saw(sawTagStale)
		return
	}
	w.fail("P9: call %d got, as fresh, what load %d has brought, with tags %v that have expired since", c.id, loads[0].n, loads[0].tags)
}

func (w *world) tagExpired(l *load, c *call) bool {
	var lag time.Duration
	own := false
	switch c.result.From {
	case stampede.FromLocal:
		lag = w.cfg.opts.Local.TTL
	case stampede.FromCopy:
		own = true
	}
	if own || lag > 0 {
		for _, x := range c.pod.expired {
			if slices.Contains(l.tags, x.tag) && x.begun > l.begun && x.returned < c.begun {
				return true
			}
		}
	}
	for _, x := range w.expiries {
		if !own && slices.Contains(l.tags, x.tag) && x.step > l.begun && x.step < c.begun && x.at+lag <= c.begunAt {
			return true
		}
	}
	return false
}

// The methods of stampede.TagStore. What is sent for a call bears the key of that.

func (p *pod) tagCommand(ctx context.Context, c *command) *command {
	c.keys = p.w.keys[:1]
	if call, ok := ctx.Value(callKey{}).(*call); ok {
		c.keys = []*register{call.key}
	}
	return c
}

func (p *pod) TagTime(ctx context.Context, _ string) (stampede.TagTime, error) {
	a := p.do(ctx, p.tagCommand(ctx, &command{op: opTagTime}))
	return a.tagTime, a.err
}

func (p *pod) Tags(ctx context.Context, _ string, tags ...string) (stampede.TagState, error) {
	a := p.do(ctx, p.tagCommand(ctx, &command{op: opTags, tags: tags}))
	return a.tags, a.err
}

func (p *pod) ExpireTag(ctx context.Context, _, tag string) error {
	return p.do(ctx, p.tagCommand(ctx, &command{op: opExpireTag, tags: []string{tag}})).err
}

func (p *pod) TagDrops(_ string, fn func(string)) (stop func()) {
	p.tagDrops = fn
	return func() {}
}
