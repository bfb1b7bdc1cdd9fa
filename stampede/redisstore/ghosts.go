package redisstore

import (
	"context"
	"sync"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

const (
	// maxGhosts bounds what is remembered. What falls out ends with its lease.
	maxGhosts = 1024
	// ghostPause is between two attempts, while Redis does not answer, and between the two releases of
	// a ghost: the first may overtake the elect that it follows, which waits in another connection.
	ghostPause = 50 * time.Millisecond
)

// ghost is the lease of an elect whose answer nobody got. Redis may have run it, or may still: one that
// was stopped runs what it had been sent when it goes on.
type ghost struct {
	lease, channel string
	token          stampede.Token
	released       int
}

// ghosts gives such leases back. It bounds nothing: their expiry does. It only makes the next load of
// the key wait less.
type ghosts struct {
	store *Store

	mu    sync.Mutex // protects what follows
	queue []ghost
	busy  bool // a worker runs
}

func (g *ghosts) add(x ghost) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.queue) >= maxGhosts {
		g.queue = g.queue[1:]
	}
	g.queue = append(g.queue, x)
	if !g.busy {
		g.busy = g.store.spawn(g.work)
	}
}

// work lives as long as there are ghosts.
func (g *ghosts) work() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-g.store.ctx.Done():
			return
		}
		timer.Reset(ghostPause)
		g.mu.Lock()
		round := g.queue
		g.queue = nil
		if len(round) == 0 {
			g.busy = false
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
		for i, x := range round {
			if !g.release(&x) {
				g.again(round[i:])
				break
			}
			if x.released < 2 {
				g.again([]ghost{x})
			} else {
				g.store.stats.ghosts.Add(1)
			}
		}
	}
}

// release reports whether Redis answered.
func (g *ghosts) release(x *ghost) bool {
	s := g.store
	l := s.lanes.of(x.lease)
	if l.breaker.allow() != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.opt.Timeout)
	defer cancel()
	_, err := s.release(ctx, x.lease, x.channel, x.token[:], stampede.Pass{})
	s.report(l, x.lease, err)
	if err != nil && !answered(err) {
		return false
	}
	x.released++
	return true
}

// again puts ghosts back, in front of newer ones.
func (g *ghosts) again(some []ghost) {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := append(append([]ghost(nil), some...), g.queue...)
	if over := len(all) - maxGhosts; over > 0 {
		all = all[over:]
	}
	g.queue = all
}
