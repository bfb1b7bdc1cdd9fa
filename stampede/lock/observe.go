package lock

import (
	"sync"
	"sync/atomic"
	"time"
)

// EventKind says what an [Event] is about.
type EventKind uint8

// The kinds of events.
const (
	EventAcquired    EventKind = iota // a lock was acquired; Took is how long that took, waiting included
	EventHeld                         // a try found the lock held by another
	EventGivenUp                      // Acquire or Do ended without the lock; see Err
	EventRenewed                      // the watchdog renewed a lock, or Extend extended it
	EventNotRenewed                   // a renewal got no answer, or too few; see Err
	EventLost                         // a lock was lost, or is renewed no more; once for each lock; Err is a *LostError
	EventReleased                     // a lock was released; Took is how long it was held
	EventNotReleased                  // a release found the lock not held, or got no answer; see Err
	EventTrouble                      // a server did not answer; see Node and Err
	EventLateGrant                    // a grant that nobody waited for any more was given back
	EventFenceAgain                   // a fencing number was refused by a server that knew a higher one, or the like
	EventReseeded                     // a server that had forgotten its fencing numbers was given new ones; see Node

	numEvents
)

var eventNames = [numEvents]string{
	"acquired", "held", "given_up", "renewed", "not_renewed", "lost", "released", "not_released",
	"trouble", "late_grant", "fence_again", "reseeded",
}

// String returns the kind in snake case, for metric labels.
func (k EventKind) String() string {
	if k >= numEvents {
		return "unknown"
	}
	return eventNames[k]
}

// Event is something that happened to a lock. Which fields are set depends on the kind; more fields and
// kinds may come.
type Event struct {
	Kind   EventKind
	Locker string // Options.Name
	Lock   string // the lock's name
	Node   int    // which of the clients given to New, from 0
	Took   time.Duration
	Err    error
}

// Observer is told of what happens, as it happens, on the goroutine where it happens: many call it at once,
// even while there is a single caller. It must be quick and must not call the locker or its locks; a panic in
// it is swallowed. It is not called after Close has returned.
type Observer interface {
	Observe(Event)
}

// ObserverFunc makes an Observer of a function.
type ObserverFunc func(Event)

// Observe calls f.
func (f ObserverFunc) Observe(e Event) { f(e) }

// Stats are the counts of events since the locker was made.
type Stats struct {
	// Acquired locks; tries that found them Held; calls that have GivenUp.
	Acquired, Held, GivenUp uint64
	// Renewed and NotRenewed count renewals; Lost counts locks.
	Renewed, NotRenewed, Lost uint64
	// Released, NotReleased: see EventReleased, EventNotReleased.
	Released, NotReleased uint64
	// Trouble counts requests without an answer, LateGrants what was given back because of that.
	Trouble, LateGrants uint64
	// FenceAgain and Reseeded: see the events.
	FenceAgain, Reseeded uint64
}

// events counts what happens and passes it on.
type events struct {
	name   string
	obs    Observer
	counts [numEvents]atomic.Uint64

	mu      sync.Mutex     // orders tell and end
	ended   bool           // the observer is not called any more
	telling sync.WaitGroup // calls of the observer
}

func (ev *events) emit(e Event) {
	ev.counts[e.Kind].Add(1)
	if ev.obs != nil {
		e.Locker = ev.name
		ev.tell(e)
	}
}

// tell shields the lock from its observer.
func (ev *events) tell(e Event) {
	ev.mu.Lock()
	if ev.ended {
		ev.mu.Unlock()
		return
	}
	ev.telling.Add(1)
	ev.mu.Unlock()
	defer func() {
		_ = recover()
		ev.telling.Done()
	}()
	ev.obs.Observe(e)
}

// end returns when the observer is not called any more.
func (ev *events) end() {
	ev.mu.Lock()
	ev.ended = true
	ev.mu.Unlock()
	ev.telling.Wait()
}

// Stats returns the counts so far.
func (lk *Locker) Stats() Stats {
	if lk == nil {
		return Stats{}
	}
	n := func(k EventKind) uint64 { return lk.events.counts[k].Load() }
	return Stats{
		Acquired: n(EventAcquired), Held: n(EventHeld), GivenUp: n(EventGivenUp),
		Renewed: n(EventRenewed), NotRenewed: n(EventNotRenewed), Lost: n(EventLost),
		Released: n(EventReleased), NotReleased: n(EventNotReleased),
		Trouble: n(EventTrouble), LateGrants: n(EventLateGrant),
		FenceAgain: n(EventFenceAgain), Reseeded: n(EventReseeded),
	}
}
