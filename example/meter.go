package main

import (
	"sync"
	"time"
)

// meter counts loads of the report, from inside the loader.
type meter struct {
	ttl time.Duration

	mu       sync.Mutex // protects what follows
	loads    int
	now      int // under way
	most     int // under way at once
	expiries int
	ended    time.Time // when the first load of the last expiry to succeed did
}

// begin counts a load. The loader calls end when it is done.
func (m *meter) begin() (end func(error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loads++
	m.now++
	m.most = max(m.most, m.now)
	// Loads belong to the same expiry until one of them has brought a value, and while those which
	// came too late to see it start. The next expiry is most of a TTL away.
	if m.expiries == 0 || !m.ended.IsZero() && time.Since(m.ended) > m.ttl/4 {
		m.expiries++
		m.ended = time.Time{}
	}
	return m.end
}

func (m *meter) end(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now--
	if err == nil && m.ended.IsZero() {
		m.ended = time.Now()
	}
}

// loadCounts are a meter's numbers.
type loadCounts struct{ loads, now, most, expiries int }

// reset starts to count anew. Nothing may be under way.
func (m *meter) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loads, m.most, m.expiries, m.ended = 0, 0, 0, time.Time{}
}

func (m *meter) counts() loadCounts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return loadCounts{m.loads, m.now, m.most, m.expiries}
}
