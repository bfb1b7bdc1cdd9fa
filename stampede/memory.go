package stampede

import (
	"context"
	"encoding/binary"
	"hash/maphash"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// MemoryStore is a [Store] in the memory of one process: for services of a single pod, and for tests.
// It keeps decoded values as they are, without a codec, so what it returns is shared and read-only.
// The zero value is ready to use; it must not be copied after its first use.
//
// It starts no goroutine and no timer: what has expired is noticed, and removed, when it is looked
// at, when newer entries push it out, or in a sweep that each doubling of the contents pays for. It
// never returns an error, and no step waits for anything, so it does not look at ctx.
type MemoryStore struct {
	// MaxEntries bounds the number of entries; the least recently used ones go first. Zero means
	// 10,000, negative means no bound. From 1,024 on the entries live in 16 shards, each of which
	// gets its part of the bound, so a shard may push out entries a little before all are full.
	// Leases and markers are not counted: there are as many as loads run and have failed lately. It
	// is read once, at the first use.
	MaxEntries int
	// MaxTags bounds of how many tags of a space the last expiry is remembered. When there are more, entries
	// from before the oldest of these expiries count as expired, if they have tags. Zero, and negative:
	// DefaultMaxTags. It is read when a space's first load that may have tags begins.
	MaxTags int

	once   sync.Once
	start  time.Time // what now counts from
	seed   maphash.Seed
	shards []*memoryShard
	grants atomic.Uint64 // leases granted so far: the nonces of their stamps

	drops memoryDrops
	tags  memoryTags
}

const (
	memoryEntries = 10_000 // MaxEntries when it is zero
	memoryShards  = 16
	memorySplit   = 1_024 // fewer entries than this are not worth more than one shard
	memorySweep   = 64    // contents from which on a shard looks for what has expired
	watchBuffer   = 8
)

var (
	_ Store    = (*MemoryStore)(nil)
	_ TagStore = (*MemoryStore)(nil)
)

func (s *MemoryStore) init() {
	bound, n := s.MaxEntries, memoryShards
	if bound == 0 {
		bound = memoryEntries
	}
	if bound > 0 && bound < memorySplit {
		n = 1
	}
	s.start = time.Now()
	s.seed = maphash.MakeSeed()
	s.shards = make([]*memoryShard, n)
	for i := range s.shards {
		size := math.MaxInt
		if bound > 0 {
			size = bound / n
			if i < bound%n {
				size++
			}
		}
		s.shards[i] = newMemoryShard(size)
	}
}

func (s *MemoryStore) shard(key Key) *memoryShard {
	s.once.Do(s.init)
	if len(s.shards) == 1 {
		return s.shards[0]
	}
	return s.shards[maphash.String(s.seed, key.Key)%memoryShards]
}

// now is the store's clock: monotonic, and in a synctest bubble that of the bubble.
func (s *MemoryStore) now() time.Duration { return time.Since(s.start) }

// grant makes the stamp of a new lease. The counter makes it differ from that of any other lease,
// also from one that the same token was granted before.
func (s *MemoryStore) grant(token Token) (lease Stamp) {
	n := copy(lease[:], token[:])
	binary.BigEndian.PutUint64(lease[n+8:], s.grants.Add(1))
	return lease
}

// Encoded reports false: entries hold values.
func (s *MemoryStore) Encoded() bool { return false }

// Read returns what is stored for key. It does not allocate.
func (s *MemoryStore) Read(_ context.Context, key Key) (Entry, error) {
	sh := s.shard(key)
	sh.mu.RLock()
	now := s.now()
	item, ok := sh.entries.Peek(key)
	if !ok {
		sh.mu.RUnlock()
		return Entry{}, nil
	}
	promote := sh.sunken(item)
	sh.mu.RUnlock()
	if item.until <= now {
		sh.mu.Lock()
		sh.entry(key, now)
		sh.mu.Unlock()
		return Entry{}, nil
	}
	if promote {
		sh.mu.Lock()
		sh.promote(key, item)
		sh.mu.Unlock()
	}
	return item.at(now), nil
}

// Elect asks for the lease of key.
func (s *MemoryStore) Elect(_ context.Context, key Key, ballot Ballot) (Election, error) {
	sh := s.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := s.now()
	var el Election
	if item := sh.entry(key, now); item != nil {
		el.Entry = item.at(now)
		if el.Entry.Freshness() == Fresh && el.Entry.Stamp != ballot.Seen {
			el.Role = RoleFresh
			return el, nil
		}
	}
	lease, ok := sh.lease(key, now)
	left := lease.until - lease.memory - now
	switch {
	case !ok || left <= 0: // nothing stands there, or only the memory of loads that failed
		lease.stamp = s.grant(ballot.Token)
		sh.setLease(key, memoryLease{stamp: lease.stamp, others: RoleFollower, failures: lease.failures,
			until: later(now, atLeastMilli(ballot.Length))}, now)
		el.Role, el.Lease = RoleLeader, lease.stamp
	case lease.others == RoleFollower && lease.stamp.Token() == ballot.Token:
		el.Role, el.Lease = RoleLeader, lease.stamp
	default:
		el.Role, el.Left = lease.others, left
		el.Lease, el.Unshared = lease.stamp, lease.unshared
	}
	return el, nil
}

// Commit writes e if lease is still held, and ends the lease.
func (s *MemoryStore) Commit(_ context.Context, key Key, lease Stamp, e Entry) (Verdict, error) {
	sh := s.shard(key)
	sh.mu.Lock()
	now := s.now()
	if !sh.held(key, lease, now) {
		item := sh.entry(key, now)
		sh.mu.Unlock()
		if item != nil && item.entry.Stamp == lease {
			return Accepted, nil
		}
		return Refused, nil
	}
	item := newMemoryItem(e, lease, now)
	sh.setEntry(key, item, now)
	delete(sh.leases, key)
	watches := sh.watches[key]
	sh.mu.Unlock()
	var change Change
	if item != nil && len(watches) > 0 {
		e = item.at(now)
		change.Stored = &e
	}
	tell(watches, change)
	return Accepted, nil
}

// CommitMarked writes e if a marker or a lease of this stamp still stands, and removes it.
func (s *MemoryStore) CommitMarked(_ context.Context, key Key, stands Stamp, e Entry) (Verdict, error) {
	sh := s.shard(key)
	sh.mu.Lock()
	now := s.now()
	if l, ok := sh.lease(key, now); !ok || l.stamp != stands {
		sh.mu.Unlock()
		return Refused, nil
	}
	sh.setEntry(key, newMemoryItem(e, NewStamp(), now), now)
	delete(sh.leases, key)
	watches := sh.watches[key]
	sh.mu.Unlock()
	tell(watches, Change{})
	return Accepted, nil
}

// Renew lets lease end length from now, if it is still held.
func (s *MemoryStore) Renew(_ context.Context, key Key, lease Stamp, length time.Duration) (Holding, error) {
	sh := s.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := s.now()
	held, ok := sh.lease(key, now)
	switch {
	case !ok || held.others != RoleFollower: // a marker is nobody's lease
		return Absent, nil
	case held.stamp != lease:
		return Taken, nil
	}
	held.until = later(now, atLeastMilli(length))
	sh.leases[key] = held
	return Held, nil
}

// Fail ends lease, if it is still held, and leaves a back-off marker.
func (s *MemoryStore) Fail(_ context.Context, key Key, lease Stamp, backoff Backoff) (time.Duration, error) {
	sh := s.shard(key)
	sh.mu.Lock()
	now := s.now()
	if stands, ok := sh.lease(key, now); ok && stands.others == RoleBackOff && stands.stamp == lease {
		sh.mu.Unlock()
		return max(0, stands.until-stands.memory-now), nil
	}
	if !sh.held(key, lease, now) {
		sh.mu.Unlock()
		return 0, nil
	}
	marker := memoryLease{stamp: lease, others: RoleBackOff}
	d := atLeastMilli(backoff.First)
	if most := wholeMillis(backoff.Max); most > d {
		for range sh.leases[key].failures {
			if d = later(d, d); d >= most {
				d = most
				break
			}
		}
		marker.failures, marker.memory = sh.leases[key].failures+1, most
	}
	marker.until = later(later(now, d), marker.memory)
	sh.leases[key] = marker
	watches := sh.watches[key]
	sh.mu.Unlock()
	tell(watches, Change{Unstored: lease})
	return d, nil
}

// Release ends lease, if it is still held, and leaves a pass marker if pass asks for one.
func (s *MemoryStore) Release(_ context.Context, key Key, lease Stamp, pass Pass) error {
	var change Change
	sh := s.shard(key)
	sh.mu.Lock()
	now := s.now()
	if !sh.held(key, lease, now) {
		sh.mu.Unlock()
		return nil
	}
	if pass.For > 0 {
		change.Unstored = lease
		sh.leases[key] = memoryLease{stamp: lease, others: RolePass, unshared: pass.Unshared, until: later(now, atLeastMilli(pass.For))}
	} else {
		delete(sh.leases, key)
	}
	watches := sh.watches[key]
	sh.mu.Unlock()
	tell(watches, change)
	return nil
}

// Set writes e under a new stamp.
func (s *MemoryStore) Set(_ context.Context, key Key, e Entry) error {
	stamp := NewStamp()
	sh := s.shard(key)
	sh.mu.Lock()
	now := s.now()
	sh.setEntry(key, newMemoryItem(e, stamp, now), now)
	s.changed(sh, key)
	return nil
}

// Delete removes the entries of keys.
func (s *MemoryStore) Delete(_ context.Context, keys ...Key) error {
	for _, key := range keys {
		sh := s.shard(key)
		sh.mu.Lock()
		sh.entries.Remove(key)
		s.changed(sh, key)
	}
	return nil
}

// Expire makes the entries of keys stale.
func (s *MemoryStore) Expire(_ context.Context, keys ...Key) error {
	for _, key := range keys {
		stamp := NewStamp()
		sh := s.shard(key)
		sh.mu.Lock()
		now := s.now()
		if item := sh.entry(key, now); item != nil {
			sh.setEntry(key, item.expired(stamp, now), now)
		}
		s.changed(sh, key)
	}
	return nil
}

// changed ends any lease or marker of key, lets go of the shard's mutex, and tells everybody.
func (s *MemoryStore) changed(sh *memoryShard, key Key) {
	delete(sh.leases, key)
	watches := sh.watches[key]
	sh.mu.Unlock()
	tell(watches, Change{})
	s.drops.call(key)
}

// Watch tells of what happens to key from now on. It is ready at once, and never lost.
func (s *MemoryStore) Watch(key Key) Watch {
	w := &memoryWatch{sh: s.shard(key), key: key, ready: make(chan struct{}), changes: make(chan Change, watchBuffer)}
	close(w.ready)
	w.sh.mu.Lock()
	w.sh.watches[key] = append(slices.Clone(w.sh.watches[key]), w)
	w.sh.mu.Unlock()
	return w
}

// Drops calls fn for each key of space that Delete, Set or Expire change, on the goroutine of who
// changes it. A call under way when stop is called may end after it.
func (s *MemoryStore) Drops(space string, fn func(key string)) (stop func()) {
	return s.drops.add(space, fn)
}

// Health returns nil.
func (s *MemoryStore) Health(context.Context) error { return nil }

// memoryItem is an entry with its end. Nothing but moved changes once it is in a shard.
type memoryItem struct {
	entry Entry
	until time.Duration // by the store's clock
	moved uint64        // the shard's moves when it was last made the most recently used
}

// newMemoryItem returns nil if e would be dead at once.
func newMemoryItem(e Entry, stamp Stamp, now time.Duration) *memoryItem {
	e.Stamp, e.Expired, e.Left, e.Fault = stamp, false, 0, nil
	e.Took, e.TTL = wholeMillis(e.Took), wholeMillis(e.TTL)
	e.StaleFor, e.StaleIfError = wholeMillis(e.StaleFor), wholeMillis(e.StaleIfError)
	life := later(e.TTL, e.Window())
	if life <= 0 {
		return nil
	}
	return &memoryItem{entry: e, until: later(now, life)}
}

// at returns the entry as of now.
func (i *memoryItem) at(now time.Duration) Entry {
	e := i.entry
	e.Left = i.until - now
	return e
}

// expired returns what Expire makes of the item, nil if it has no stale window.
func (i *memoryItem) expired(stamp Stamp, now time.Duration) *memoryItem {
	window := i.entry.Window()
	if window == 0 {
		return nil
	}
	x := &memoryItem{entry: i.entry, until: min(i.until, later(now, window))}
	x.entry.Stamp, x.entry.Expired = stamp, true
	return x
}

// memoryLease is what stands in the place of a key's lease: the lease, or a marker.
type memoryLease struct {
	stamp    Stamp         // of a lease
	others   Role          // what others are told: RoleFollower, RoleBackOff or RolePass
	unshared bool          // of a pass marker
	failures int           // loads that failed in a row before it
	memory   time.Duration // of a back-off marker: how long it stands beyond the back-off, to remember failures
	until    time.Duration // by the store's clock
}

// memoryShard holds a part of the keys.
type memoryShard struct {
	mu sync.RWMutex // protects all that follows

	entries *simplelru.LRU[Key, *memoryItem]
	size    uint64 // bound of entries
	moves   uint64 // how often some entry was made the most recently used one
	sweepAt int    // number of entries at which to look for expired ones

	leases       map[Key]memoryLease
	sweepLeaseAt int

	watches map[Key][]*memoryWatch // the slices are never changed, only replaced
}

func newMemoryShard(size int) *memoryShard {
	entries, err := simplelru.NewLRU[Key, *memoryItem](size, nil)
	if err != nil {
		panic("stampede: " + err.Error()) // only for a size that is not positive
	}
	return &memoryShard{
		entries: entries, size: uint64(size), sweepAt: memorySweep,
		leases: make(map[Key]memoryLease), sweepLeaseAt: memorySweep,
		watches: make(map[Key][]*memoryWatch),
	}
}

// sunken reports whether so many others were used since the item was last promoted that it may soon
// be among the least recently used. As long as it cannot be, a hit needs no exclusive lock: that is
// what lets many goroutines read one popular key. A shard of less than 8 entries is exact.
func (sh *memoryShard) sunken(item *memoryItem) bool {
	return sh.moves-item.moved > sh.size/8
}

// promote makes item the most recently used one, if it is still there.
func (sh *memoryShard) promote(key Key, item *memoryItem) {
	if now, ok := sh.entries.Get(key); ok && now == item {
		sh.moves++
		item.moved = sh.moves
	}
}

// entry returns the item of key and promotes it; it removes an expired one.
func (sh *memoryShard) entry(key Key, now time.Duration) *memoryItem {
	item, ok := sh.entries.Peek(key)
	if !ok {
		return nil
	}
	if item.until <= now {
		sh.entries.Remove(key)
		return nil
	}
	sh.promote(key, item)
	return item
}

// setEntry writes item, nil to remove what is there.
func (sh *memoryShard) setEntry(key Key, item *memoryItem, now time.Duration) {
	if item == nil {
		sh.entries.Remove(key)
		return
	}
	sh.moves++
	item.moved = sh.moves
	sh.entries.Add(key, item)
	if sh.entries.Len() < sh.sweepAt {
		return
	}
	for _, key := range sh.entries.Keys() {
		if item, ok := sh.entries.Peek(key); ok && item.until <= now {
			sh.entries.Remove(key)
		}
	}
	sh.sweepAt = max(memorySweep, 2*sh.entries.Len())
}

// lease returns what stands in the place of key's lease; it removes what has expired.
func (sh *memoryShard) lease(key Key, now time.Duration) (memoryLease, bool) {
	lease, ok := sh.leases[key]
	if ok && lease.until <= now {
		delete(sh.leases, key)
		return memoryLease{}, false
	}
	return lease, ok
}

// held reports whether the lease of key is this one. A marker is not, whatever the stamp.
func (sh *memoryShard) held(key Key, lease Stamp, now time.Duration) bool {
	held, ok := sh.lease(key, now)
	return ok && held.others == RoleFollower && held.stamp == lease
}

// setLease adds a lease. Each doubling of their number pays for a sweep, and for the move to a new
// map, since maps do not shrink: so there are never more than twice as many as were alive at once.
func (sh *memoryShard) setLease(key Key, lease memoryLease, now time.Duration) {
	sh.leases[key] = lease
	if len(sh.leases) < sh.sweepLeaseAt {
		return
	}
	alive := make(map[Key]memoryLease)
	for key, lease := range sh.leases {
		if lease.until > now {
			alive[key] = lease
		}
	}
	sh.leases = alive
	sh.sweepLeaseAt = max(memorySweep, 2*len(alive))
}

// memoryWatch is a Watch. Its channel of changes is never closed.
type memoryWatch struct {
	sh      *memoryShard
	key     Key
	ready   chan struct{} // closed from the beginning
	changes chan Change
}

func (w *memoryWatch) Ready() <-chan struct{} { return w.ready }

func (w *memoryWatch) C() <-chan Change { return w.changes }

func (w *memoryWatch) Close() {
	w.sh.mu.Lock()
	defer w.sh.mu.Unlock()
	watches := slices.DeleteFunc(slices.Clone(w.sh.watches[w.key]), func(other *memoryWatch) bool { return other == w })
	if len(watches) == 0 {
		delete(w.sh.watches, w.key)
	} else {
		w.sh.watches[w.key] = watches
	}
}

// tell hands change to all watches, and waits for none of them.
func tell(watches []*memoryWatch, change Change) {
	for _, w := range watches {
		w.tell(change)
	}
}

// tell hands over change. Who has a full channel will wake up anyway, so a change without a lease
// tells it nothing more; one with a lease takes the place of the oldest.
func (w *memoryWatch) tell(change Change) {
	for {
		select {
		case w.changes <- change:
			return
		default:
		}
		if change.Unstored == (Stamp{}) {
			return
		}
		select {
		case <-w.changes:
		default:
		}
	}
}

// memoryDrops knows who wants to hear of changed keys.
type memoryDrops struct {
	mu sync.RWMutex // protects by

	by map[string][]*memoryDrop // by space; the slices are never changed, only replaced
}

type memoryDrop struct{ fn func(key string) }

func (d *memoryDrops) add(space string, fn func(key string)) (stop func()) {
	drop := &memoryDrop{fn: fn}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.by == nil {
		d.by = make(map[string][]*memoryDrop)
	}
	d.by[space] = append(slices.Clone(d.by[space]), drop)
	return func() { d.remove(space, drop) }
}

func (d *memoryDrops) remove(space string, drop *memoryDrop) {
	d.mu.Lock()
	defer d.mu.Unlock()
	drops := slices.DeleteFunc(slices.Clone(d.by[space]), func(other *memoryDrop) bool { return other == drop })
	if len(drops) == 0 {
		delete(d.by, space)
	} else {
		d.by[space] = drops
	}
}

func (d *memoryDrops) call(key Key) {
	d.mu.RLock()
	drops := d.by[key.Space]
	d.mu.RUnlock()
	for _, drop := range drops {
		drop.fn(key.Key)
	}
}

// wholeMillis rounds d down to whole milliseconds, of which there are none below zero.
func wholeMillis(d time.Duration) time.Duration { return max(0, d.Truncate(time.Millisecond)) }

// atLeastMilli is wholeMillis for what must last.
func atLeastMilli(d time.Duration) time.Duration { return max(time.Millisecond, wholeMillis(d)) }

// later returns t + d, both not negative, or the end of time.
func later(t, d time.Duration) time.Duration {
	if d > math.MaxInt64-t {
		return math.MaxInt64
	}
	return t + d
}
