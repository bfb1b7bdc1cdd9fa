package stampede

import (
	"hash/maphash"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// copies are the values that a pod keeps for when the store does not answer, and for nothing else. A
// copy is served until its own end, counted on this pod's monotonic clock from before it was read. A nil
// *copies keeps none.
type copies[T any] struct {
	mu    sync.Mutex // protects what follows
	lru   *simplelru.LRU[string, *pocket[T]]
	bytes int64
	bound int64
	keep  bool // the encoded form, too
	seed  maphash.Seed
	drops [1024]uint32 // by a hash of the key: how often something was dropped
}

type pocket[T any] struct {
	stamp Stamp
	value T
	data  []byte // nil unless kept

	notFound bool
	unstored bool // it never was in the store
	size     int64
	stale    time.Time     // fresh until then
	end      time.Time     // served until then
	ttl      time.Duration // of the entry
	reload   time.Time     // no load for it, while the store does not answer, before then; zero: not yet drawn
}

func newCopies[T any](bound Copies, keepData bool) *copies[T] {
	c := &copies[T]{bound: bound.Bytes, keep: keepData, seed: maphash.MakeSeed()}
	if c.bound == 0 {
		c.bound = math.MaxInt64
	}
	c.lru, _ = simplelru.NewLRU(bound.Entries, func(_ string, p *pocket[T]) { c.bytes -= p.size }) // fails on a size of 0 only
	return c
}

// begin is what a read knows before it starts: whether a copy is there, and how often something was
// dropped by then. A read that began before a drop must not put back what the drop was about.
func (c *copies[T]) begin(key string) (has bool, drops uint32) {
	if c == nil {
		return false, 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.lru.Peek(key)
	return ok && time.Now().Before(p.end), *c.dropped(key)
}

func (c *copies[T]) dropped(key string) *uint32 {
	return &c.drops[maphash.String(c.seed, key)%uint64(len(c.drops))]
}

// put keeps what a step brought that began at the given time, with that many drops before.
func (c *copies[T]) put(key string, e *Entry, v T, begun time.Time, drops uint32) {
	c.keepOne(key, e, v, begun, drops, false)
}

// putUnstored keeps what a load without a lease brought. It was not stored: as long as the store does
// not answer, the next load of the key is as far away as after any other.
func (c *copies[T]) putUnstored(key string, e *Entry, v T, begun time.Time, drops uint32) {
	c.keepOne(key, e, v, begun, drops, true)
}

func (c *copies[T]) keepOne(key string, e *Entry, v T, begun time.Time, drops uint32, unstored bool) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if *c.dropped(key) != drops {
		return
	}
	var reload time.Time
	if unstored {
		rare := rarely(e.TTL)
		reload = begun.Add(rare + rand.N(rare))
	}
	if p, ok := c.lru.Get(key); ok {
		if p.stamp == e.Stamp && p.reload.IsZero() {
			return
		}
		if unstored && p.reload.After(begun) {
			reload = p.reload // set when this load was started
		}
		c.lru.Remove(key) // so that its bytes are counted off
	}
	p := &pocket[T]{stamp: e.Stamp, value: v, notFound: e.NotFound, unstored: unstored, size: int64(len(e.Data) + pocketSize), ttl: e.TTL, reload: reload,
		stale: begun.Add(e.FreshFor()), end: begun.Add(e.Left)}
	if p.size > c.bound {
		return
	}
	if c.keep {
		p.data = e.Data
	}
	c.bytes += p.size
	c.lru.Add(key, p)
	for c.bytes > c.bound {
		c.lru.RemoveOldest()
	}
}

// pocketSize is about what a copy costs beside its value.
const pocketSize = 256

// get returns a copy to serve because the store does not answer, and whether this is the time to load
// it behind: rarely, since without the store each pod loads for itself, and not all keys at once.
func (c *copies[T]) get(key string) (p pocket[T], reload, ok bool) {
	if c == nil {
		return p, false, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.lru.Get(key)
	if !ok {
		return p, false, false
	}
	now := time.Now()
	if !now.Before(found.end) {
		c.lru.Remove(key)
		return p, false, false
	}
	if rare := rarely(found.ttl); now.After(found.stale) {
		switch {
		case found.reload.IsZero():
			found.reload = now.Add(rand.N(rare))
		case now.After(found.reload):
			found.reload, reload = now.Add(rare), true
		}
	}
	return *found, reload, true
}

// reloadEvery is how many TTLs pass between loads of a key in a pod that the store does not answer.
const reloadEvery = 4

func rarely(ttl time.Duration) time.Duration {
	return reloadEvery * min(max(ttl, time.Millisecond), maxTTL)
}

// gone forgets a copy of something that was stored and is not any more. It returns whether there is one left,
// of something that never was.
func (c *copies[T]) gone(key string) (has bool) {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p, has := c.lru.Peek(key)
	if has && !p.unstored {
		c.lru.Remove(key)
		return false
	}
	return has
}

func (c *copies[T]) drop(key string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	*c.dropped(key)++
	c.lru.Remove(key)
}

func (p *pocket[T]) result() Result[T] {
	fresh := time.Until(p.stale)
	r := Result[T]{Value: p.value, From: FromCopy, Freshness: Fresh, FreshFor: fresh, Shared: true, Age: max(p.ttl-fresh, 0)}
	if fresh <= 0 {
		r.Freshness = Stale
	}
	return r
}
