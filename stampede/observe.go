package stampede

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/herdgate/herdgate/internal/tally"
)

// EventKind says what an [Event] is about.
type EventKind uint8

// The kinds of events.
const (
	EventHit          EventKind = iota // served a fresh value from the store
	EventStale                         // served a stale value from the store, at once
	EventLocalHit                      // served a fresh copy from memory, without asking the store: Local.TTL
	EventCopy                          // served a copy from memory: the store did not answer
	EventMiss                          // the store held nothing that could be served at once
	EventIfError                       // served a value kept for StaleIfError: the load failed, was slow or is backed off
	EventWaited                        // a caller got the value of a load that another caller of this pod started
	EventWaitedForPod                  // a caller's pod waited for another pod's load; Took is how long
	EventAgain                         // a caller could not take what its flight brought, and went round again
	EventLoad                          // a load started
	EventLoaded                        // a load ended with a value or ErrNotFound; Took is how long
	EventLoadFailed                    // a load ended with an error
	EventLoadPanicked                  // a load panicked or called runtime.Goexit
	EventLoadTimedOut                  // a load was given up at LoadTimeout
	EventAbandoned                     // a loader that was given up ended at last; Took is how long it ran
	EventLeaseWon                      // this pod was elected to load
	EventLeaseHeld                     // another pod holds the lease
	EventLeaseRenewed                  // the lease of a load was renewed
	EventLeaseLost                     // the lease of a load was found with another owner
	EventLeaseGone                     // the lease of a load was found absent (a Delete, say)
	EventCommitted                     // a loaded value was stored
	EventRefused                       // a loaded value was not stored: the lease was not held any more
	EventNotStored                     // a loaded value was not stored: the store could not, or gave no answer; see Err
	EventBackOff                       // no load was started, because one failed a short while ago
	EventOverloaded                    // no load was started, or not waited for, because of MaxLoads, FleetLoads, MaxAbandoned or MaxWaiters
	EventBadEntry                      // what the store holds cannot be used; see Err
	EventTrouble                       // the store did not do its part; see Err
	EventBypass                        // a caller was not served from the store or from memory: see Bypass
	EventHedge                         // a load started beside another pod's that takes long: see Options.Hedge; Took is how long it was waited for
	EventShortTTL                      // TTL is short for what loads take, told once: see Policy.Beta; Took is the load's usual duration
	EventStoreDown                     // a store stopped asking a server that does not answer (from the store; Guard is empty)
	EventStoreUp                       // the server answers again (from the store; Guard is empty)

	numEvents
)

var eventNames = [numEvents]string{
	"hit", "stale", "local_hit", "copy", "miss", "if_error", "waited", "waited_for_pod", "again",
	"load", "loaded", "load_failed", "load_panicked", "load_timed_out", "abandoned",
	"lease_won", "lease_held", "lease_renewed", "lease_lost", "lease_gone",
	"committed", "refused", "not_stored", "back_off", "overloaded", "bad_entry", "trouble",
	"bypass", "hedge", "short_ttl",
	"store_down", "store_up",
}

// String returns the kind in snake case, for metric labels.
func (k EventKind) String() string {
	return word(k, eventNames[:]...)
}

// Event is something that happened in a guard. Which fields are set depends on the kind; more fields
// and kinds may come.
type Event struct {
	Kind  EventKind
	Guard string // Options.Name
	Key   string
	Took  time.Duration
	Err   error
}

// Observer is told of what happens in guards, as it happens, on the goroutine where it happens: many call
// it at once, even while there is a single caller, and one may do so after that caller has its answer. It
// must be quick, must not call the guard, and must not end the goroutine; a panic in it is swallowed.
// A background load's error and panic reach the Observer and, when that changes, the Logger.
type Observer interface {
	Observe(Event)
}

// ObserverFunc makes an Observer of a function.
type ObserverFunc func(Event)

// Observe calls f.
func (f ObserverFunc) Observe(e Event) { f(e) }

// Stats are the counts of events since the guard was made, and what is under way.
type Stats struct {
	// Hits, LocalHits, Stale, Copies, Misses: see EventHit, EventLocalHit, EventStale, EventCopy, EventMiss.
	Hits, LocalHits, Stale, Copies, Misses uint64
	// IfError: values served within StaleIfError.
	IfError uint64
	// Waited: callers served by a load that another caller of the pod started. WaitedForPod: waits of
	// the pod for another pod's load. Again: rounds made twice.
	Waited, WaitedForPod, Again uint64
	// Loads started, and how they ended.
	Loads, Loaded, LoadsFailed, LoadsPanicked, LoadsTimedOut uint64
	// Leases.
	LeasesWon, LeasesHeld, LeasesRenewed, LeasesLost, LeasesGone uint64
	// Commits.
	Committed, Refused, NotStored uint64
	// BackOffs and Overloaded: loads not started.
	BackOffs, Overloaded uint64
	// BadEntries could not be used; Trouble counts what the store failed to do.
	BadEntries, Trouble uint64
	// Bypassed: callers in Bypass. Hedges: loads beside another pod's. ShortTTL: 1 after EventShortTTL.
	Bypassed, Hedges, ShortTTL uint64

	// Loading is the number of loads under way now; Abandoned the number of loaders that were given
	// up and still run.
	Loading, Abandoned int
}

// events counts what happens and passes it on.
type events struct {
	name   string
	obs    Observer
	counts [numEvents]atomic.Uint64 // but for local hits
	local  tally.Counter            // the only one that would be felt
}

func (ev *events) emit(kind EventKind, key string, took time.Duration, err error) {
	if kind == EventLocalHit {
		ev.local.Inc()
	} else {
		ev.counts[kind].Add(1)
	}
	if ev.obs != nil {
		ev.tell(Event{Kind: kind, Guard: ev.name, Key: key, Took: took, Err: err})
	}
}

// tell shields the guard from its observer: a panic there must not cost a caller its value.
func (ev *events) tell(e Event) {
	defer func() { _ = recover() }()
	ev.obs.Observe(e)
}

// log shields it in the same way from the handler of its logger.
func (g *Guard[T]) log(level slog.Level, msg string, args ...any) {
	defer func() { _ = recover() }()
	g.opts.Logger.Log(context.Background(), level, msg, args...)
}

func (ev *events) stats() Stats {
	n := func(k EventKind) uint64 { return ev.counts[k].Load() }
	return Stats{
		Hits: n(EventHit), LocalHits: ev.local.Load(), Stale: n(EventStale), Copies: n(EventCopy), Misses: n(EventMiss), IfError: n(EventIfError),
		Waited: n(EventWaited), WaitedForPod: n(EventWaitedForPod), Again: n(EventAgain),
		Loads: n(EventLoad), Loaded: n(EventLoaded), LoadsFailed: n(EventLoadFailed),
		LoadsPanicked: n(EventLoadPanicked), LoadsTimedOut: n(EventLoadTimedOut),
		LeasesWon: n(EventLeaseWon), LeasesHeld: n(EventLeaseHeld), LeasesRenewed: n(EventLeaseRenewed),
		LeasesLost: n(EventLeaseLost), LeasesGone: n(EventLeaseGone),
		Committed: n(EventCommitted), Refused: n(EventRefused), NotStored: n(EventNotStored),
		BackOffs: n(EventBackOff), Overloaded: n(EventOverloaded),
		BadEntries: n(EventBadEntry), Trouble: n(EventTrouble),
		Bypassed: n(EventBypass), Hedges: n(EventHedge), ShortTTL: n(EventShortTTL),
	}
}
