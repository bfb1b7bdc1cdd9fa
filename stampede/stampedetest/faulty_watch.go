package stampedetest

import (
	"sync"

	"github.com/herdgate/herdgate/stampede"
)

// Watch tells of what happens to key, unless the Faulty is down, hanging or mute. With Fault.Err, this
// one watch never becomes ready and is told nothing.
func (f *Faulty) Watch(key stampede.Key) stampede.Watch {
	fault := f.arrive(&Call{Step: StepWatch, Key: key})
	w := &faultyWatch{f: f, dead: fault.Err != nil, never: make(chan struct{}), changes: make(chan stampede.Change, 8), quit: make(chan struct{})}
	if w.dead {
		return w
	}
	w.inner = f.store.Watch(key)
	f.mu.Lock()
	f.executed[StepWatch]++
	f.watches[w] = true
	f.mu.Unlock()
	w.done.Go(w.forward)
	return w
}

// Drops tells of changed keys, unless the Faulty is down, hanging or mute.
func (f *Faulty) Drops(space string, fn func(key string)) (stop func()) {
	f.arrive(&Call{Step: StepDrops, Key: stampede.Key{Space: space}})
	return f.store.Drops(space, func(key string) {
		if f.pushes() {
			fn(key)
		}
	})
}

// pushes reports whether pushes arrive.
func (f *Faulty) pushes() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.down == nil && !f.hanging && !f.mute
}

func tellAll(watches []*faultyWatch) {
	for _, w := range watches {
		w.tell(stampede.Change{})
	}
}

type faultyWatch struct {
	f       *Faulty
	inner   stampede.Watch
	dead    bool
	never   chan struct{}
	changes chan stampede.Change
	quit    chan struct{}
	once    sync.Once
	done    sync.WaitGroup
}

// Ready returns the channel of the watch behind; that of the store's return while it is down.
func (w *faultyWatch) Ready() <-chan struct{} {
	if w.dead {
		return w.never
	}
	w.f.mu.Lock()
	up := w.f.up
	w.f.mu.Unlock()
	if up != nil {
		return up
	}
	return w.inner.Ready()
}

func (w *faultyWatch) C() <-chan stampede.Change { return w.changes }

func (w *faultyWatch) Close() {
	w.once.Do(func() {
		if w.dead {
			return
		}
		w.f.mu.Lock()
		delete(w.f.watches, w)
		w.f.mu.Unlock()
		close(w.quit)
		w.done.Wait()
		w.inner.Close()
	})
}

func (w *faultyWatch) forward() {
	for {
		select {
		case change := <-w.inner.C():
			if w.f.pushes() {
				w.tell(change)
			}
		case <-w.quit:
			return
		}
	}
}

// tell waits for nobody: the oldest change makes room.
func (w *faultyWatch) tell(change stampede.Change) {
	for {
		select {
		case w.changes <- change:
			return
		default:
		}
		if change.Unstored == (stampede.Stamp{}) {
			return // who has so many changes to hear of is awake
		}
		select {
		case <-w.changes:
		default:
		}
	}
}
