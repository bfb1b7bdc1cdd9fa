package stampede

import (
	"context"
	"sync"
	"sync/atomic"
)

// lifecycle knows what is under way in a guard, and ends it.
type lifecycle struct {
	loading   atomic.Int64 // loads under way
	abandoned atomic.Int64 // loaders that were given up and still run

	quit chan struct{} // closed when what is under way has to end
	once sync.Once     // closes it

	mu      sync.Mutex     // protects what follows
	hung    map[string]int // abandoned, by key
	ended   bool           // by Close: nothing starts any more
	running int            // flights, and commits that outlast theirs
	idle    chan struct{}
	stops   []func()
}

// enter says that something begins; it must not if the guard is closed.
func (l *lifecycle) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	l.running++
	return true
}

// more says that something begins which is part of what is under way.
func (l *lifecycle) more() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running++
}

func (l *lifecycle) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running--; l.running == 0 && l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}

// mayLoad says whether a load of key may start: not while as many loaders are abandoned as the bound
// says (not above zero: none). One key may not use it up: an eighth is for the others.
func (l *lifecycle) mayLoad(key string, bound int) bool {
	n := l.abandoned.Load()
	if n == 0 || bound <= 0 {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return n < int64(bound) && l.hung[key] < bound-bound/8
}

// abandon counts a loader of key that was given up, or, with -1, that has ended since.
func (l *lifecycle) abandon(key string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.abandoned.Add(int64(n))
	if l.hung == nil {
		l.hung = make(map[string]int)
	}
	if l.hung[key] += n; l.hung[key] == 0 {
		delete(l.hung, key)
	}
}

// onClose registers what Close stops.
func (l *lifecycle) onClose(stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stops = append(l.stops, stop)
}

// close lets nothing start any more and returns a channel that is closed when nothing is under way.
func (l *lifecycle) close() <-chan struct{} {
	l.mu.Lock()
	l.ended = true
	stops := l.stops
	l.stops = nil
	if l.idle == nil {
		l.idle = make(chan struct{})
	}
	idle := l.idle
	if l.running == 0 {
		close(l.idle)
		l.idle = nil
	}
	l.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
	return idle
}

func (l *lifecycle) shutdown(ctx context.Context) error {
	idle := l.close()
	select {
	case <-idle: // whatever has become of ctx
		return nil
	default:
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
	}
	l.once.Do(func() { close(l.quit) })
	return ctx.Err()
}

func (l *lifecycle) quitting() bool {
	select {
	case <-l.quit:
		return true
	default:
		return false
	}
}
