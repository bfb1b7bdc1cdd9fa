package stampede

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/herdgate/herdgate/internal/flight"
)

// This file is what a guard does with tags: what loads say of their values, who is expired, and when that is
// loaded anew. What a store keeps for it is in tagstore.go.
//
// Why nothing from before an ExpireTag is served as fresh after it. A load's number is read before the load begins,
// and ExpireTag gives the tag one that is higher than any that was read before it. So the number of a load that
// began before the ExpireTag, whenever it commits, is below that of the tag, from then on and for good. Whoever
// judges an entry asks for the tags' numbers after the step that brought it was sent; so for who came before that
// step the answer holds each ExpireTag that had returned when he came. Where the record was lost in between,
// the epochs differ; where the tag was forgotten, the floor is above the load's number. Numbers are compared for no
// more than this, and no clock takes part: the floor only expires too much.
//
// A load vouches for its value by its commit, as without tags, but for its tags only as of its beginning. So who
// joined since then gets the value if the tags were asked again after he came, and have not expired.
//
// A copy in memory is served without asking for as long as Local.TTL says, counted from when its tags were asked for. So
// that news of an ExpireTag makes it end sooner, the same is done in memory with a number of the pod's own: a step
// that may bring a copy notes it when it begins, and a drop gives the tag a higher one.
//
// Why a mass expiry is no stampede: what is expired by a tag and may be served stale is loaded anew at a moment
// that depends on its key and on the number of the expiry alone, within TagSpread from when the pod first saw
// that number. So all pods leave a key alone until it is its turn, and then the lease lets one of them load.

// tags is what a guard knows of tags.
type tags struct {
	store  TagStore // nil: the store keeps none
	spread spread
}

// Tags adds tags to the value, by which [Guard.ExpireTag] expires it; also where the loader returns ErrNotFound. They
// are those of this value alone: the one that takes its place, NotModified included, has those that its own load says.
// Duplicates count once.
//
// Where they cannot be kept, the value is given to those who wait for it, and is not stored: EventNotStored says
// why. It is ErrBadTag if one is empty or longer than MaxTagSize or there are more than MaxTags, ErrTagsOff
// without Options.Tags, and otherwise what the store met when it was to say as of when the tags hold.
func (l *Load[T]) Tags(tags ...string) {
	l.say(func(s *settings) {
		for _, tag := range tags {
			if len(s.tags) <= MaxTags && !slices.Contains(s.tags, tag) { // one too many shows that there are
				s.tags = append(s.tags, strings.Clone(tag))
			}
		}
	})
}

// checkTag returns an error for a tag that cannot be kept.
func checkTag(tag string) error {
	if tag == "" {
		return fmt.Errorf("%w: it is empty", ErrBadTag)
	}
	if len(tag) > MaxTagSize {
		return fmt.Errorf("%w: %.16q... has %d bytes, at most %d", ErrBadTag, tag, len(tag), MaxTagSize)
	}
	return nil
}

// tag adds what the loader said to the entry that is to be stored.
func (g *Guard[T]) tag(r *run[T]) {
	names := r.said.tags
	if len(names) == 0 || r.said.dontStore || r.bad != nil {
		return
	}
	size := 17 // see docs/protocol.md
	for _, tag := range names {
		size += 1 + len(tag)
		if r.bad = checkTag(tag); r.bad != nil {
			return
		}
	}
	most := g.opts.MaxValueSize
	switch {
	case !g.opts.Tags:
		r.bad = ErrTagsOff
	case len(names) > MaxTags:
		r.bad = fmt.Errorf("%w: more than %d", ErrBadTag, MaxTags)
	case g.encoded && most > 0 && len(r.e.Data)+size > most:
		r.bad = fmt.Errorf("%w: %d bytes with its tags, at most %d", ErrTooLarge, len(r.e.Data)+size, most)
	default:
		r.e.Tags = &Tags{AsOf: r.about.asOf, Names: names}
	}
}

// date reads the number of the load that is about to begin.
func (j *job[T]) date(about *Load[T]) {
	g := j.g
	if !g.opts.Tags {
		return
	}
	begun := time.Now()
	step := within(j.ctx, begun.Add(j.q.left))
	defer step.release()
	if about.asOf, about.undated = g.tags.store.TagTime(step, g.space); about.undated != nil {
		about.asOf = TagTime{}
		g.events.emit(EventTrouble, j.k.Key, 0, about.undated)
	}
	j.q.spend(begun)
}

// dated says whether the value of a load may be stored, as far as tags are concerned.
func (r *run[T]) dated() bool {
	if r.bad == nil && !r.said.dontStore && r.e.Tags != nil && r.about.undated != nil {
		r.bad = fmt.Errorf("stampede: it is not known as of when its tags hold: %w", r.about.undated)
		return false
	}
	return true
}

// vouched says whether the tags of a value hold for who joined since its load began, too.
func (j *job[T]) vouched(e *Entry, began flight.Mark) bool {
	if e.Tags == nil {
		return true
	}
	return j.f.JoinedSince(began) && j.judge(e, true) == nil && !e.Expired
}

// judge is judge for what a step of the flight has brought.
func (j *job[T]) judge(e *Entry, first bool) error {
	g := j.g
	left := g.opts.StoreBudget
	if first {
		left = j.q.left
	}
	begun := time.Now()
	step := within(j.ctx, begun.Add(left))
	defer step.release()
	_, err := g.judge(step, j.k.Key, e)
	if err != nil {
		g.events.emit(EventTrouble, j.k.Key, 0, err)
	}
	if first {
		j.q.spend(begun)
	}
	return err
}

// judge makes an entry stale if one of its tags has expired. later says that it is not yet its turn to be loaded
// behind.
func (g *Guard[T]) judge(ctx context.Context, key string, e *Entry) (later bool, err error) {
	if !judged(e) {
		return false, nil
	}
	if g.tags.store == nil { // whoever wrote it has reached this store in another way
		expire(e)
		return false, nil
	}
	state, err := g.tags.store.Tags(ctx, g.space, e.Tags.Names...)
	if err != nil {
		return false, err
	}
	return g.tags.judge(key, e, &state, func(n int) int { return n }), nil
}

// judgeMany does so for what a read of many keys has brought, with one question to the store.
func (g *Guard[T]) judgeMany(ctx context.Context, keys []string, reads []lookup[T]) {
	var names []string
	at := make(map[string]int)
	for i := range reads {
		if reads[i].err != nil || !judged(&reads[i].e) {
			continue
		}
		for _, tag := range reads[i].e.Tags.Names {
			if _, ok := at[tag]; !ok {
				at[tag] = len(names)
				names = append(names, tag)
			}
		}
	}
	if len(names) == 0 {
		return
	}
	var state TagState
	var err error
	if g.tags.store != nil {
		state, err = g.tags.store.Tags(ctx, g.space, names...)
	}
	for i := range reads {
		l := &reads[i]
		switch {
		case l.err != nil || !judged(&l.e):
		case err != nil:
			l.err = err
		default:
			l.later = g.tags.judge(keys[i], &l.e, &state, func(n int) int { return at[l.e.Tags.Names[n]] })
		}
	}
}

// judged says whether an entry's tags decide what it may be used for.
func judged(e *Entry) bool { return e.Tags != nil && e.Freshness() == Fresh }

// judge is told by at which of the numbers of s is that of the n-th tag.
func (t *tags) judge(key string, e *Entry, s *TagState, at func(n int) int) (later bool) {
	number, expired := s.expired(e.Tags, at)
	if !expired {
		return false
	}
	expire(e)
	return servable(e) == Stale && !t.spread.due(key, s.Epoch, number)
}

// expired says whether an entry with these tags was loaded before an expiry of one of them, as far as can be told. The
// number returned is that of the expiry, the first one where there are several; that of the floor, or 0 for
// another epoch, where this is not known.
func (s *TagState) expired(t *Tags, at func(n int) int) (number uint64, expired bool) {
	if s.Epoch != t.AsOf.Epoch || s.Epoch == 0 {
		return 0, true
	}
	if t.AsOf.Number < s.Floor {
		return s.Floor, true
	}
	for i := range t.Names {
		if n := s.Numbers[at(i)]; n > t.AsOf.Number && (!expired || n < number) {
			number, expired = n, true
		}
	}
	return number, expired
}

// expire makes of an entry what Expire makes of it, but for its end.
func expire(e *Entry) {
	e.Expired = true
	if e.Window() == 0 {
		e.Left = 0
	}
}

// ExpireTag makes all entries stale whose loads have given them tag, fleet-wide and at once, however many there
// are: each is served for its stale windows, but not beyond its own end, while one caller loads, which happens
// at the next Get. So are those whose loads have begun before and commit later. What has no stale window is not served
// any more. Loads that could be served stale meanwhile do not come all at once: see Policy.TagSpread.
//
// Errors and time limit are as for Delete; it is ErrBadTag for a tag that no entry can have, and ErrTagsOff without
// Options.Tags. It may be repeated.
func (g *Guard[T]) ExpireTag(ctx context.Context, tag string) error {
	if err := g.checkGuard(ctx); err != nil {
		return err
	}
	if !g.opts.Tags {
		return fmt.Errorf("%w: expire tag %q", ErrTagsOff, tag)
	}
	if err := checkTag(tag); err != nil {
		return err
	}
	step, cancel := forWrite(ctx, 1)
	defer cancel()
	defer g.tagDropped(tag)
	return g.wrote(ctx, "expire tag", tag, g.tags.store.ExpireTag(step, g.space, tag))
}

// tagDropped is called when ExpireTag was called for tag, on any pod, and without a tag when that may have happened
// unheard.
func (g *Guard[T]) tagDropped(tag string) {
	if tag == "" {
		g.local.missed()
		return
	}
	g.local.dropTag(tag)
}

// useTags prepares the guard for tags. Judging entries that have some needs no preparation.
func (g *Guard[T]) useTags() error {
	g.tags.store, _ = g.store.(TagStore)
	g.tags.spread.over = g.opts.Policy.TagSpread
	if g.opts.Tags && g.tags.store == nil {
		return errors.New("stampede: Options.Tags with a store that keeps no tags")
	}
	return nil
}

// maxSpread is how many expiries a pod remembers.
const maxSpread = 1024

// spread says when what has been expired by a tag is loaded anew. It remembers when the pod first saw a number.
type spread struct {
	over time.Duration // zero: off

	mu        sync.Mutex // protects what follows
	epoch     uint64     // of the record that the numbers are of
	first     map[uint64]time.Time
	forgotten uint64 // the highest of the numbers that were dropped
}

// due says whether it is the turn of a key that the expiry with this number has expired.
func (s *spread) due(key string, epoch, number uint64) bool {
	if s.over == 0 {
		return true
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first == nil || s.epoch != epoch {
		s.epoch, s.forgotten, s.first = epoch, 0, make(map[uint64]time.Time)
	}
	first, ok := s.first[number]
	switch {
	case ok:
	case number > 0 && number <= s.forgotten:
		return true
	default:
		first = now
		s.first[number] = now
		s.trim()
	}
	return now.Sub(first) >= time.Duration(turn(key, number)*float64(s.over))
}

// trim is called with mu held. What it drops counts as due.
func (s *spread) trim() {
	if len(s.first) <= maxSpread {
		return
	}
	lowest := uint64(0)
	for n := range s.first {
		if n > 0 && (lowest == 0 || n < lowest) {
			lowest = n
		}
	}
	delete(s.first, lowest)
	s.forgotten = max(s.forgotten, lowest)
}

// turn is a key's place among those that an expiry has expired, from 0 to 1, the same in all pods.
func turn(key string, number uint64) float64 {
	h := uint64(14695981039346656037) ^ number // FNV-1a
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 1099511628211
	}
	h = (h ^ h>>32) * 0x9e3779b97f4a7c15 // its high bits hardly depend on the last bytes
	h = (h ^ h>>29) * 0xbf58476d1ce4e5b9
	return float64((h^h>>32)>>11) / (1 << 53)
}
