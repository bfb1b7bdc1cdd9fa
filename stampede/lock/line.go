package lock

import (
	"sync"

	"github.com/herdgate/herdgate/internal/subs"
)

// lines are where those of this process stand who wait for a lock.
type lines struct {
	mu  sync.Mutex // protects what follows, and the fields of each line
	all map[string]*line
}

// line is the one for a lock. Only its first waiter asks Redis. It exists while somebody stands in it.
type line struct {
	waiters []*waiter // the first is at its turn
	holder  *Lock     // acquired from this line, and perhaps held still; nil if not known
	topic   *subs.Topic
	ear     *ear // listens to releases elsewhere; nil until somebody had to
}

type waiter struct {
	first bool          // it was at its turn when it came
	turn  chan struct{} // closed when it is at its turn
	wake  chan struct{} // a lock of this process was released or lost
}

// join puts a new waiter at the end of the line.
func (ls *lines) join(name string) (*line, *waiter) {
	w := &waiter{turn: make(chan struct{}), wake: make(chan struct{}, 1)}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln := ls.all[name]
	if ln == nil {
		ln = &line{}
		ls.all[name] = ln
	}
	ln.waiters = append(ln.waiters, w)
	w.first = len(ln.waiters) == 1
	return ln, w
}

// leave takes w out; got is the lock that it has acquired, if any. The line's ear is returned when nobody
// needs it any more.
func (ls *lines) leave(name string, ln *line, w *waiter, got *Lock) (idle *subs.Topic, ear *ear) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for i, x := range ln.waiters {
		if x == w {
			ln.waiters = append(ln.waiters[:i:i], ln.waiters[i+1:]...)
			if i == 0 && len(ln.waiters) > 0 {
				close(ln.waiters[0].turn)
			}
			break
		}
	}
	if got != nil {
		ln.holder = got
	}
	if len(ln.waiters) == 0 {
		delete(ls.all, name)
		return ln.topic, ln.ear
	}
	return nil, nil
}

// standing says whether anybody waits for name in this process.
func (ls *lines) standing(name string) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.all[name] != nil
}

// poke wakes the first waiter: a lock of this process has ended.
func (ls *lines) poke(name string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ln := ls.all[name]; ln != nil {
		ln.holder = nil
		poke(ln.waiters[0].wake)
	}
}

// held returns the lock that was acquired from this line last, if it is still held.
func (ls *lines) held(ln *line) *Lock {
	ls.mu.Lock()
	holder := ln.holder
	ls.mu.Unlock()
	if holder == nil || holder.Validity() <= 0 {
		return nil
	}
	return holder
}

func (ls *lines) ear(ln *line) (*subs.Topic, *ear) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ln.topic, ln.ear
}

func (ls *lines) setEar(ln *line, t *subs.Topic, e *ear) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln.topic, ln.ear = t, e
}

// ear listens to a lock's channel.
type ear struct{ heard chan struct{} }

// Message implements [subs.Listener].
func (e *ear) Message(string) { poke(e.heard) }

// Lost implements [subs.Listener].
func (e *ear) Lost() { poke(e.heard) }

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
