package stampedetest

import (
	"context"
	"sync"
)

// Gate holds up whoever comes to it until it is opened. The zero Gate is closed, and ready to use.
type Gate struct {
	mu sync.Mutex // protects all that follows

	open    chan struct{}
	reached chan struct{}
	isOpen  bool
	count   int // who came so far
	waiting int
}

// channels makes the channels at first use, so that a Gate belongs to the bubble that uses it. The
// mutex is held.
func (g *Gate) channels() {
	if g.open == nil {
		g.open, g.reached = make(chan struct{}), make(chan struct{})
	}
}

// Open lets all pass who wait and who come later. It may be called again.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.channels()
	if !g.isOpen {
		g.isOpen = true
		close(g.open)
	}
}

// Reached returns a channel that is closed as soon as the first one has come to the gate.
func (g *Gate) Reached() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.channels()
	return g.reached
}

// Waiting returns how many wait at the gate.
func (g *Gate) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting
}

// wait passes the gate, or returns when ctx ends. The nil Gate holds up nobody.
func (g *Gate) wait(ctx context.Context) error {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	g.channels()
	open := g.open
	if g.count++; g.count == 1 {
		close(g.reached)
	}
	g.waiting++
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		g.waiting--
		g.mu.Unlock()
	}()
	select {
	case <-open:
		return nil
	default: // an open gate lets also those pass whose ctx has ended
	}
	select {
	case <-open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
