package middleware

import (
	"context"
	"sync"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// passes are the keys that this pod has marked as not to be waited for, so that it can take the mark back when
// a response comes that can be shared after all. To forget one costs no more than the rest of its time.
type passes struct {
	mu sync.Mutex // protects m
	m  map[string]time.Time
}

const maxPasses = 4096

func (p *passes) put(name string, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.m == nil || len(p.m) >= maxPasses {
		p.m = make(map[string]time.Time)
	}
	p.m[name] = time.Now().Add(d)
}

// take forgets a key and says whether it was marked.
func (p *passes) take(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	until, ok := p.m[name]
	delete(p.m, name)
	return ok && time.Now().Before(until)
}

// shareable is told of a load that has brought a response which could be stored. If the key is marked, the
// load was not elected and its response is not stored; the next one's will be.
func (c *Cache) shareable(ctx context.Context, l *stampede.Load[*stored]) {
	if l.Leased() || !c.passes.take(l.Key()) {
		return
	}
	c.drop(ctx, l.Key())
}

// drop removes entries, within the time that a request may be kept waiting for it.
func (c *Cache) drop(ctx context.Context, names ...string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTimeout)
	defer cancel()
	_ = c.guard.Delete(ctx, names...) // the guard tells its Observer
}

const dropTimeout = 250 * time.Millisecond
