package stampede

import (
	"math/rand/v2"
	"slices"
	"time"
)

// vigil is a flight's wait for another pod's load. One subscription serves it, whatever the number of
// callers, and however often the lease changes hands.
type vigil struct {
	watch    Watch
	begun    time.Time
	stands   <-chan struct{} // the subscription, as of which an election was begun
	poll     time.Duration
	polls    int
	followed []Stamp   // leases of the loads that it waited for
	since    time.Time // it waits for the last of them
	hedged   Stamp     // beside which a load of its own has failed
	told     bool      // one of them ended without a stored value
	stored   *Entry    // what the last one stored, if that was told
}

// Polling, for as long as the store does not confirm that it will tell: from minPoll up to maxPoll, at
// random, so that pods do not move in step.
const (
	minPoll = 20 * time.Millisecond
	maxPoll = 250 * time.Millisecond
)

// follow sleeps until it makes sense to elect again; it returns false if it does not any more, because
// nobody waits or because of WaitTimeout.
//
// It subscribes first, and returns as soon as that is confirmed: the election after that sees what has
// happened until then, and whatever happens later is told. Only then it sleeps for as long as the lease
// has left.
//
// What was committed may come with the message. It was committed after the election that found its lease
// held, and so vouches for whoever came before that election was sent.
func (j *job[T]) follow(w *vigil, el *Election) (again bool) {
	g := j.g
	w.subscribe(g.store, j.k)
	if !slices.Contains(w.followed, el.Lease) {
		w.followed, w.since = append(w.followed, el.Lease), time.Now()
	}
	rest := g.opts.WaitTimeout - time.Since(j.q.since)
	if rest <= 0 {
		return false
	}
	ready := w.watch.Ready()
	sleep := el.Left + rand.N(g.opts.Lease/20)
	confirmed := ready
	if w.stands == ready {
		confirmed = nil // an election was held since
		j.stand()
	} else {
		if w.polls++; w.polls > 1 { // else there is an election in a moment, which needs the seat again
			j.stand()
		}
		sleep = w.poll
		w.poll = min(maxPoll, minPoll+rand.N(3*w.poll-minPoll))
	}
	if d, ok := j.untilHedge(w, el); ok && d > 0 {
		sleep = min(sleep, d)
	}
	timer := time.NewTimer(min(sleep, rest))
	defer timer.Stop()
	select {
	case <-confirmed:
		w.stands = ready
	case c := <-w.watch.C():
		w.told = w.told || slices.Contains(w.followed, c.Unstored)
		if c.Stored != nil && c.Stored.Stamp == el.Lease {
			w.stored = c.Stored
		}
	case <-timer.C:
	case <-g.life.quit:
		return false
	}
	return j.f.Waiting() > 0
}

func (w *vigil) subscribe(store Store, key Key) {
	if w.watch == nil {
		w.watch, w.begun, w.poll = store.Watch(key), time.Now(), minPoll
	}
}

// end ends the subscription; it returns how long the wait was.
func (w *vigil) end() time.Duration {
	if w.watch == nil {
		return 0
	}
	w.watch.Close()
	return time.Since(w.begun)
}
