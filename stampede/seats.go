package stampede

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"
)

// This file bounds how many loads run at a time: in a pod (MaxLoads) and in the fleet (FleetLoads).
//
// A flight takes its seat before it stands for election and gives it back before it follows another pod's
// load, so nobody holds a lease, on which others wait, while he waits for a seat. While it waits it
// watches its key: what another pod stores meanwhile is seen at once.
//
// A load that another load of the guard asks for needs no seat: that one holds one, and waits.
//
// A seat in the fleet is a lease like that of a key, of a key that stands for the seat: a pod that died
// keeps its seats for one Lease. When the store does not answer there is no bound: a cache in trouble must
// not stop its service.

// seat is the right to run a load.
type seat struct {
	inPod   bool
	inFleet *claim // of a key that stands for the seat; nil: none was needed
}

// sit takes a seat for the load of a flight. If it gets none, out is what becomes of the flight.
func (j *job[T]) sit(w *vigil, inFleet bool) (out outcome[T], ok bool) {
	if j.seat != nil || partOfLoad(j.ctx, j.g.place) || j.load.batch.seated() {
		return out, true
	}
	s := &seat{}
	for p := (pause{}); !j.trySeat(s, inFleet, w.watch == nil); p.more() {
		if out, ok = j.awaitSeat(w, s, p); !ok {
			j.g.leaveSeat(s)
			return out, false
		}
	}
	j.seat = s
	return out, true
}

// stand gives the seat back.
func (j *job[T]) stand() {
	if j.seat != nil {
		j.g.leaveSeat(j.seat)
		j.seat = nil
	}
}

// takeSeat takes a seat for a load outside of a flight, for a caller who has waited since then.
func (g *Guard[T]) takeSeat(ctx context.Context, key string, since time.Time, soft <-chan time.Time, inFleet bool) (*seat, error) {
	s := &seat{}
	if g.seats == nil && (!inFleet || g.opts.FleetLoads == 0) || partOfLoad(ctx, g.place) {
		return s, nil
	}
	j := &job[T]{g: g, ctx: context.WithoutCancel(ctx), k: Key{g.space, key}, q: ask[T]{left: g.opts.StoreBudget}}
	var err error
	for p := (pause{}); !j.trySeat(s, inFleet, true); p.more() {
		rest := g.opts.WaitTimeout - time.Since(since)
		if rest <= 0 {
			err = g.overloaded(key)
		} else {
			switch g.pauseForSeat(s, min(p.next(), rest), &vigil{}, ctx.Done(), soft) {
			case callerLeft:
				err = ctx.Err()
			case softTimeout:
				err = g.overloaded(key)
			case closed:
				err = ErrClosed
			}
		}
		if err != nil {
			g.leaveSeat(s)
			return nil, err
		}
	}
	return s, nil
}

func (g *Guard[T]) overloaded(key string) error {
	g.events.emit(EventOverloaded, key, 0, nil)
	return fmt.Errorf("%w: %q has waited for %v", ErrOverloaded, key, g.opts.WaitTimeout)
}

func (g *Guard[T]) leaveSeat(s *seat) {
	if s.inPod {
		<-g.seats
	}
	g.unclaim(s.inFleet)
}

func (j *job[T]) trySeat(s *seat, inFleet, onBudget bool) bool {
	g := j.g
	if g.seats != nil && !s.inPod {
		select {
		case g.seats <- struct{}{}:
			s.inPod = true
		default:
			return false
		}
	}
	return !inFleet || g.opts.FleetLoads == 0 || j.trySeatInFleet(s, onBudget)
}

// probes is how many seats of the fleet are tried before a pause.
const probes = 4

// seatSpace makes a space of its own of a guard's: neither a name nor a version holds such characters.
const seatSpace = "@@seats"

func (j *job[T]) trySeatInFleet(s *seat, onBudget bool) bool {
	n := j.g.opts.FleetLoads
	first := rand.IntN(n)
	for i := range min(probes, n) {
		c, err := j.claim(Key{j.g.space + seatSpace, strconv.Itoa((first + i) % n)}, onBudget)
		if c != nil || err != nil { // without an answer there is no bound
			s.inFleet = c
			return true
		}
	}
	return false
}

// awaitSeat waits until it is time to try again. It returns false if there is something else to do.
func (j *job[T]) awaitSeat(w *vigil, s *seat, p pause) (out outcome[T], ok bool) {
	g, q, key := j.g, &j.q, j.k.Key
	rest := g.opts.WaitTimeout - time.Since(q.since)
	switch {
	case !q.wait: // what is stale is served on
		g.events.emit(EventOverloaded, key, 0, nil)
		g.holds.put(key, q.seen, checkEvery+rand.N(checkEvery), false)
		return outcome[T]{}, false
	case rest <= 0:
		return gaveError[T](g.overloaded(key)), false
	case j.f.Waiting() == 0:
		return outcome[T]{}, false
	}
	if !q.trouble { // another pod may have a seat, and bring what is waited for here
		w.subscribe(g.store, j.k)
	}
	switch g.pauseForSeat(s, min(p.next(), rest), w, nil, nil) {
	case keyWatched: // what was stored before that is not told
		asked := j.f.Mark()
		if l := g.read(j.ctx, key, &ask[T]{left: g.opts.StoreBudget}); l.err == nil && servable(&l.e) >= Stale {
			return found(&l.e, l.r, asked), false
		}
	case keyChanged:
		return outcome[T]{}, false
	case closed:
		return gaveError[T](ErrClosed), false
	}
	return out, true
}

// pause is how long to wait between tries: longer each time, at random.
type pause struct{ tries uint }

func (p *pause) more() { p.tries++ }

func (p *pause) next() time.Duration {
	d := min(maxPoll, minPoll<<min(p.tries, 10))
	return d/2 + rand.N(d)
}

// wakeUp is why a pause ended.
type wakeUp uint8

const (
	tryAgain wakeUp = iota
	keyWatched
	keyChanged
	callerLeft
	softTimeout
	closed
)

// pauseForSeat waits for a seat in the pod, or for as long as d.
func (g *Guard[T]) pauseForSeat(s *seat, d time.Duration, w *vigil, left <-chan struct{}, soft <-chan time.Time) wakeUp {
	seats := g.seats
	if s.inPod {
		seats = nil
	}
	var ready, watched <-chan struct{}
	var changed <-chan Change
	if w.watch != nil {
		ready, changed = w.watch.Ready(), w.watch.C()
		if watched = ready; ready == w.stands {
			watched = nil
		}
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case seats <- struct{}{}:
		s.inPod = true
	case <-timer.C:
	case <-watched:
		w.stands = ready
		return keyWatched
	case <-changed:
		return keyChanged
	case <-left:
		return callerLeft
	case <-soft:
		return softTimeout
	case <-g.life.quit:
		return closed
	}
	return tryAgain
}
