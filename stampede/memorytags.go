package stampede

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// memoryTags are the records of tags of a MemoryStore.
type memoryTags struct {
	mu     sync.Mutex // protects spaces
	spaces map[string]*tagRecord
	drops  memoryDrops
}

// DefaultMaxTags is of how many tags of a space the last expiry is remembered, unless a store's option says
// otherwise.
const DefaultMaxTags = 100_000

// tagRecord is what is known of the tags of a space.
type tagRecord struct {
	TagTime
	floor   uint64
	numbers *simplelru.LRU[string, uint64] // the one that is used least recently has the lowest number
}

func newTagRecord(most int) *tagRecord {
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	r := &tagRecord{TagTime: TagTime{Epoch: binary.BigEndian.Uint64(random[:]) | 1, Number: 1}}
	numbers, err := simplelru.NewLRU(most, func(_ string, n uint64) { r.floor = n })
	if err != nil {
		panic("stampede: " + err.Error()) // only for a size that is not positive
	}
	r.numbers = numbers
	return r
}

// TagTime implements [TagStore].
func (s *MemoryStore) TagTime(_ context.Context, space string) (TagTime, error) {
	m := &s.tags
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.spaces[space]
	if r == nil {
		if m.spaces == nil {
			m.spaces = make(map[string]*tagRecord)
		}
		most := s.MaxTags
		if most <= 0 {
			most = DefaultMaxTags
		}
		r = newTagRecord(most)
		m.spaces[space] = r
	}
	return r.TagTime, nil
}

// Tags implements [TagStore].
func (s *MemoryStore) Tags(_ context.Context, space string, tags ...string) (TagState, error) {
	state := TagState{Numbers: make([]uint64, len(tags))}
	m := &s.tags
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.spaces[space]
	if r == nil {
		return state, nil
	}
	state.Epoch, state.Floor = r.Epoch, r.floor
	for i, tag := range tags {
		state.Numbers[i], _ = r.numbers.Peek(tag)
	}
	return state, nil
}

// ExpireTag implements [TagStore].
func (s *MemoryStore) ExpireTag(_ context.Context, space, tag string) error {
	m := &s.tags
	m.mu.Lock()
	if r := m.spaces[space]; r != nil {
		r.Number++
		r.numbers.Add(tag, r.Number)
	}
	m.mu.Unlock()
	m.drops.call(Key{space, tag})
	return nil
}

// TagDrops implements [TagStore]. A call of fn that is under way when stop is called may end after it.
func (s *MemoryStore) TagDrops(space string, fn func(tag string)) (stop func()) {
	return s.tags.drops.add(space, fn)
}
