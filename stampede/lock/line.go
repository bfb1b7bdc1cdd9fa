package lock

import (
	"slices"
	"sync"
	"time"

	"github.com/herdgate/herdgate/internal/subs"
)

// lines are where those of this process stand who wait for a lock.
type lines struct {
	mu  sync.Mutex // protects what follows, and the first fields of each line
	all map[string]*line
}

// line is the one for a lock. Only its first waiter asks Redis. It exists while somebody stands in it.
type line struct {
	waiters []*waiter     // the first is at its turn
	holder  *Lock         // acquired from this line, and perhaps held still; nil if not known
	wake    chan struct{} // to look at news
	news    news

	// What follows belongs to the first waiter.
	topic *subs.Topic
	ear   *ear      // listens to releases elsewhere; nil until somebody had to
	ends  time.Time // when the lease of another ends, as far as is known
}

// news is what the first waiter of a line has not looked at yet.
type news struct {
	free    bool // the lock may be had
	standby bool // it was passed on to another process, and this one is there in case that does not take it
}

type waiter struct {
	first bool          // it was at its turn when it came
	turn  chan struct{} // closed when it is at its turn
}

// join puts a new waiter at the end of the line.
func (ls *lines) join(name string) (*line, *waiter) {
	w := &waiter{turn: make(chan struct{})}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln := ls.all[name]
	if ln == nil {
		ln = &line{wake: make(chan struct{}, 1)}
		ls.all[name] = ln
	}
	ln.waiters = append(ln.waiters, w)
	w.first = len(ln.waiters) == 1
	return ln, w
}

// leave takes w out; got is the lock that it has acquired, if any. If w was first and has not found out who holds the
// lock, the next one asks at once. leave reports whether the line is over.
func (ls *lines) leave(name string, ln *line, w *waiter, got *Lock, known bool) (over bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	i := slices.Index(ln.waiters, w)
	ln.waiters = slices.Delete(ln.waiters, i, i+1)
	if got != nil {
		ln.holder = got
	}
	if len(ln.waiters) == 0 {
		delete(ls.all, name)
		return true
	}
	if i == 0 {
		if !known {
			ln.news.free = true
		}
		close(ln.waiters[0].turn)
	}
	return false
}

// standing says whether anybody waits for name in this process.
func (ls *lines) standing(name string) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.all[name] != nil
}

// free tells those who wait that a lock of this process has ended, and whether they may have it: else it was
// passed on to another process.
func (ls *lines) free(name string, ours bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ln := ls.all[name]; ln != nil {
		ln.holder = nil
		ln.tell(news{free: ours})
	}
}

// tell wakes the first waiter. The caller holds mu.
func (ln *line) tell(n news) {
	ln.news.free = ln.news.free || n.free
	ln.news.standby = ln.news.standby || n.standby
	select {
	case ln.wake <- struct{}{}:
	default:
	}
}

// told returns the news, once.
func (ls *lines) told(ln *line) news {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	select {
	case <-ln.wake:
	default:
	}
	n := ln.news
	ln.news = news{}
	return n
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

// listen makes sure that somebody of ln listens to releases elsewhere. It returns what is closed once the
// subscription stands; nil where there is none.
func (lk *Locker) listen(k *keys, ln *line) (stands <-chan struct{}) {
	if lk.hub == nil {
		return nil
	}
	if ln.topic == nil {
		ln.ear = &ear{lk, ln}
		ln.topic = lk.hub.Join(k.channel.(string), ln.ear)
	}
	return lk.hub.Ready(ln.topic)
}

// listens says whether the subscription of ln stands.
func (lk *Locker) listens(ln *line) bool {
	if ln.topic == nil {
		return false
	}
	select {
	case <-lk.hub.Ready(ln.topic):
		return true
	default:
		return false
	}
}

// ear listens to a lock's channel for a line.
type ear struct {
	lk *Locker
	ln *line
}

// Message implements [subs.Listener]. See scripts/pass.lua for what is said; where nobody is named, anybody may
// have the lock.
func (e *ear) Message(m string) {
	n := news{free: true}
	if len(m) > processSize {
		n.free = m[1:1+processSize] == e.lk.process
		n.standby = m[1+processSize:] == e.lk.process
	}
	if n != (news{}) {
		e.tell(n)
	}
}

// Lost implements [subs.Listener].
func (e *ear) Lost() { e.tell(news{free: true}) }

func (e *ear) tell(n news) {
	e.lk.lines.mu.Lock()
	defer e.lk.lines.mu.Unlock()
	e.ln.tell(n)
}
