package stampede

import (
	"hash/maphash"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"
)

// local is a pod's memory tier: copies of what is in the store. A copy is served without asking the
// store for Local.TTL from the read that brought it, and until its own end when the store does not
// answer. A nil *local keeps nothing.
//
// Why nothing that was dropped comes back. A step that may bring a copy notes the count of drops for
// its key before it begins, and its copy is refused when that has changed. The count goes up before
// the key is removed; the copy is compared and put, and the key removed, under the cache's lock for
// the key. So either the put sees the new count, or the removal comes after the put.
//
// It is not generic: each type of value would have the compiler make a cache of its own.
//
// Every time in here is counted from base, on this pod's monotonic clock. A copy's times are counted
// from before the step was sent that brought it, so no copy outlives what it is a copy of.
type local struct {
	cache *otter.Cache[string, *pocket]
	base  time.Time
	ttl   time.Duration // Local.TTL; zero: copies are for outages only
	keep  bool          // the encoded form, too
	early *earlyRefresh
	bound uint64 // of weight, or zero

	seed  maphash.Seed
	lost  atomic.Uint32       // how often news of drops may have been missed
	drops [1024]atomic.Uint32 // by a hash of the key: how often something was dropped

	tags     bool                // drops of tags are heard of
	tagCount atomic.Uint64       // drops of tags
	tagDrops [1024]atomic.Uint64 // by a hash of the tag: the count at its last drop
}

// pocket is a copy. But for the atomics it never changes.
type pocket struct {
	stamp    Stamp
	value    any
	data     []byte // nil unless kept
	size     uint32 // of data, kept or not
	standing standing
	notFound bool
	mark     mark
	tags     []uint16 // hashes; nil: it has none

	read  time.Duration // when the step began that brought it
	stale time.Duration // fresh until then
	until time.Duration // served without asking the store until then
	end   time.Duration // served at all until then
	check time.Duration // the store is asked behind from then on
	load  time.Duration // it is time for a load from then on
	ttl   time.Duration // of the entry

	checked atomic.Int64 // when that was last done
	reload  atomic.Int64 // no load for it, while the store does not answer, before then; zero: not yet drawn
}

// standing says what is known of a copy's original.
type standing uint8

const (
	stored   standing = iota // it was in the store, and the value was decoded from what was read
	written                  // it was put into the store: the value is the loader's own
	unsure                   // it may have been: its commit was not answered, or could not be done
	unstored                 // it never was
)

func (s standing) inStore() bool { return s <= written }

// mark is what a step knows of the drops before it begins.
type mark struct {
	drops, lost uint32
	tags        uint64
}

func newLocal(o *Options, early *earlyRefresh) *local {
	b := o.Local
	if b.Entries == 0 {
		return nil
	}
	c := &local{base: time.Now(), ttl: b.TTL, keep: o.CopyOnRead, tags: o.Tags, early: early, seed: maphash.MakeSeed()}
	opts := &otter.Options[string, *pocket]{MaximumSize: b.Entries}
	if b.Bytes > 0 { // one bound for both: nothing counts for less than its share
		c.bound = uint64(b.Bytes)
		least := min(c.bound/uint64(b.Entries), math.MaxUint32)
		opts.MaximumSize, opts.MaximumWeight = 0, c.bound
		opts.Weigher = func(key string, p *pocket) uint32 { return uint32(max(weight(key, p), least)) }
	}
	c.cache = otter.Must(opts)
	return c
}

// weight is about what a copy costs in bytes.
func weight(key string, p *pocket) uint64 {
	const beside = 256 // the pocket, and what the cache needs for it
	return min(uint64(len(key))+uint64(p.size)+beside, math.MaxUint32)
}

func (c *local) now() time.Duration { return time.Since(c.base) }

func (c *local) dropsOf(key string) *atomic.Uint32 {
	return &c.drops[maphash.String(c.seed, key)%uint64(len(c.drops))]
}

// hit returns a copy to serve without asking the store, and the time.
func (c *local) hit(key string) (p *pocket, now time.Duration) {
	if c == nil || c.ttl == 0 {
		return nil, 0
	}
	p, ok := c.cache.GetIfPresent(key)
	if !ok {
		return nil, 0
	}
	now = c.now()
	if now >= p.until || p.mark.lost != c.lost.Load() || c.tagDropped(p) {
		return nil, 0
	}
	return p, now
}

// checkEvery is how often a pod asks the store behind for a key of which it has a copy to serve.
const checkEvery = 20 * time.Millisecond

// due says whether to ask the store behind now, and takes it that this is done.
func (p *pocket) due(now time.Duration) bool {
	if now < p.check {
		return false
	}
	last := p.checked.Load()
	return (last == 0 || now-time.Duration(last) >= checkEvery) && p.checked.CompareAndSwap(last, int64(now))
}

// begin is called before a step that may bring a copy of key; put is given what it returns.
func (c *local) begin(key string) mark {
	if c == nil {
		return mark{}
	}
	return mark{c.dropsOf(key).Load(), c.lost.Load(), c.tagCount.Load()}
}

// peek returns a copy, if there is one, however old it is.
func (c *local) peek(key string) *pocket {
	if c == nil {
		return nil
	}
	if p, ok := c.cache.GetEntryQuietly(key); ok {
		return p.Value
	}
	return nil
}

// has says whether there is a copy that could be served if the store did not answer.
func (c *local) has(key string) bool { return c.serves(c.peek(key)) }

// serves says whether a copy could be served if the store did not answer.
func (c *local) serves(p *pocket) bool { return p != nil && c.now() < p.end }

// decoded returns what was decoded from the entry with that stamp, if p is a copy of it. The loader's own value is
// another one: it may hold what the codec drops, and who loaded it may still change it.
func (c *local) decoded(p *pocket, stamp Stamp) (v any, ok bool) {
	if p == nil || p.stamp != stamp || p.standing != stored || p.notFound || c.keep { // then each caller gets its own
		return nil, false
	}
	return p.value, true
}

// asGood says whether a copy is as good as a new one of what was read.
func (c *local) asGood(p *pocket, e *Entry) bool {
	return p != nil && p.stamp == e.Stamp && p.standing == stored && c.ttl == 0 && // all that it is for is an outage
		p.reload.Load() == 0 && (e.Tags == nil || !e.Expired && !c.tagDropped(p))
}

// put keeps what a step brought that began at the given time.
func (c *local) put(key string, e *Entry, v any, begun time.Time, m mark, how standing) {
	if c == nil {
		return
	}
	p := c.pocket(e, v, begun.Sub(c.base), m, how)
	fits := c.bound == 0 || weight(key, p) <= c.bound
	c.cache.Compute(key, func(old *pocket, found bool) (*pocket, otter.ComputeOp) {
		switch {
		case c.dropsOf(key).Load() != m.drops:
			return nil, otter.CancelOp
		case !fits:
			return nil, otter.InvalidateOp
		case !found:
			return p, otter.WriteOp
		case how.inStore() && old.standing.inStore() && old.read > p.read:
			return nil, otter.CancelOp // a later step has been here
		}
		p.checked.Store(old.checked.Load())
		if how == unstored { // it may have been set when this load was started
			p.reload.Store(max(p.reload.Load(), old.reload.Load()))
		}
		return p, otter.WriteOp
	})
}

func (c *local) pocket(e *Entry, v any, read time.Duration, m mark, how standing) *pocket {
	p := &pocket{stamp: e.Stamp, value: v, size: uint32(min(len(e.Data), math.MaxUint32)), standing: how, notFound: e.NotFound,
		mark: m, read: read, stale: read + e.FreshFor(), end: read + e.Left, ttl: e.TTL}
	if c.keep {
		p.data = e.Data
	}
	if how == unstored { // as long as the store does not answer, its next load is as far away as any other's
		rare := rarely(e.TTL)
		p.reload.Store(int64(read + rare + rand.N(rare)))
	}
	if e.Tags != nil {
		p.tags = c.tagsOf(e.Tags)
	}
	if how.inStore() && c.ttl > 0 && (e.Tags == nil || c.tags) {
		servable := p.stale
		if !e.NotFound {
			servable += e.StaleFor
		}
		p.until = min(read+c.ttl, servable)
		p.load = p.stale - c.early.gap(e)
		p.check = min(read+17*c.ttl/20+rand.N(c.ttl/9+1), p.load) // before anybody has to wait for it
	}
	return p
}

// get returns a copy to serve because the store does not answer, and whether this is the time to load
// it behind: rarely, since without the store each pod loads for itself, and not all keys at once.
func (c *local) get(key string) (p *pocket, reload bool) {
	if c == nil {
		return nil, false
	}
	p, ok := c.cache.GetIfPresent(key)
	if !ok {
		return nil, false
	}
	now := c.now()
	if now >= p.end {
		return nil, false
	}
	if rare := rarely(p.ttl); now > p.stale || c.tagDropped(p) {
		switch at := p.reload.Load(); {
		case at == 0:
			p.reload.CompareAndSwap(0, int64(now+rand.N(rare)+1))
		case now > time.Duration(at):
			reload = p.reload.CompareAndSwap(at, int64(now+rare))
		}
	}
	return p, reload
}

// reloadEvery is how many TTLs pass between loads of a key in a pod that the store does not answer.
const reloadEvery = 4

func rarely(ttl time.Duration) time.Duration {
	return reloadEvery * min(max(ttl, time.Millisecond), maxTTL)
}

// gone forgets a copy of something that is not in the store any more.
func (c *local) gone(key string) {
	if c == nil {
		return
	}
	c.cache.ComputeIfPresent(key, func(old *pocket) (*pocket, otter.ComputeOp) {
		if old.standing == unstored {
			return nil, otter.CancelOp
		}
		return nil, otter.InvalidateOp
	})
}

// drop forgets a copy because its key has changed.
func (c *local) drop(key string) {
	if c == nil {
		return
	}
	c.dropsOf(key).Add(1)
	c.cache.Invalidate(key)
}

// tagDropped says whether a tag of a copy was dropped since the step began that brought it.
func (c *local) tagDropped(p *pocket) bool {
	for _, tag := range p.tags {
		if c.tagDrops[tag].Load() > p.mark.tags {
			return true
		}
	}
	return false
}

func (c *local) tagsOf(t *Tags) []uint16 {
	slots := make([]uint16, len(t.Names))
	for i, tag := range t.Names {
		slots[i] = c.tagOf(tag)
	}
	return slots
}

func (c *local) tagOf(tag string) uint16 {
	return uint16(maphash.String(c.seed, tag) % uint64(len(c.tagDrops)))
}

// dropTag makes copies stale because one of their tags has expired. The count goes up first: who begins between the
// two asks the store after the expiry.
func (c *local) dropTag(tag string) {
	if c == nil {
		return
	}
	count, slot := c.tagCount.Add(1), &c.tagDrops[c.tagOf(tag)]
	for {
		was := slot.Load()
		if was >= count || slot.CompareAndSwap(was, count) {
			return
		}
	}
}

// missed is called when keys may have changed without a word: until the store has been asked again, no
// copy is served unless the store does not answer.
func (c *local) missed() {
	if c != nil {
		c.lost.Add(1)
	}
}
