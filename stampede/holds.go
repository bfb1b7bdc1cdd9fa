package stampede

import (
	"sync"
	"time"
)

// holds is what a pod remembers about stale entries that somebody else is taking care of: no election
// for this one before then. Without it a pod would run one election per request for as long as another
// pod loads.
//
// The memory belongs to the stamp with which it was learnt: another entry under the same key is another
// matter. It holds back only loads that nobody waits for.
type holds struct {
	mu sync.Mutex // protects m
	m  map[string]hold
}

type hold struct {
	stamp   Stamp
	until   time.Time
	backOff bool // a load failed: who could be served if a load fails need not wait for one
}

// maxHolds is when to look for what has passed. To forget too much costs an election each.
const maxHolds = 10_000

func (h *holds) put(key string, stamp Stamp, d time.Duration, backOff bool) {
	if stamp == (Stamp{}) {
		return // nothing is stored: who comes has to wait, and is never held back
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if len(h.m) >= maxHolds {
		for k, v := range h.m {
			if now.After(v.until) {
				delete(h.m, k)
			}
		}
	}
	if h.m == nil || len(h.m) >= maxHolds {
		h.m = make(map[string]hold)
	}
	h.m[key] = hold{stamp, now.Add(d), backOff}
}

// active says whether a load behind should not be started now.
func (h *holds) active(key string, stamp Stamp) bool {
	_, ok := h.get(key, stamp)
	return ok
}

// backedOff says whether that is because a load failed.
func (h *holds) backedOff(key string, stamp Stamp) bool {
	v, _ := h.get(key, stamp)
	return v.backOff
}

func (h *holds) get(key string, stamp Stamp) (v hold, ok bool) {
	if stamp == (Stamp{}) {
		return v, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if v, ok = h.m[key]; !ok {
		return v, false
	}
	if v.stamp == stamp && time.Now().Before(v.until) {
		return v, true
	}
	delete(h.m, key)
	return hold{}, false
}

// attempt stands for whatever lease the attempt with that token may have been granted.
func attempt(t Token) (s Stamp) {
	copy(s[:], t[:])
	return s
}

func (h *holds) drop(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.m, key)
}
