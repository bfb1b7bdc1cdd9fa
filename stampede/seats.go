package stampede

import (
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
	fleet   bool   // nor does it lack one in the fleet
	inFleet *claim // of the key that stands for that; nil: the store did not answer

	of    *seat              // it is a part of this one
	leave func() (last bool) // gives the part back
}

// bounded says whether loads need seats.
func (g *Guard[T]) bounded(inFleet bool) bool {
	return g.seats != nil || inFleet && g.opts.FleetLoads > 0
}

// sit takes a seat for the load of a flight. If it gets none, out is what becomes of the flight. That of a key
// which a load of the guard waits for needs none.
func (j *job[T]) sit(w *vigil, inFleet bool) (out outcome[T], ok bool) {
	if j.seat != nil || !j.g.bounded(inFleet) || j.q.wait && partOfLoad(j.ctx, j.g.place) {
		return out, true
	}
	for p := (pause{}); !j.f.Lent(); p.more() {
		part, again := j.load.batch.share(j.k.Key)
		switch {
		case part != nil:
			j.seat = part
			return out, true
		case again == nil:
			return j.take(w, inFleet)
		}
		if out, ok = j.awaitSeat(w, nil, again, p, inFleet); !ok {
			return out, false
		}
	}
	return out, true
}

// take takes a seat that is the flight's own, or that of its batch.
func (j *job[T]) take(w *vigil, inFleet bool) (out outcome[T], ok bool) {
	s := &seat{}
	defer func() {
		if !ok { // or a store has panicked
			j.g.leaveSeat(s)
			s = nil
		}
		j.seat = j.load.batch.took(s)
	}()
	for p := (pause{}); !j.f.Lent() && !j.trySeat(s, inFleet, w.watch == nil); p.more() {
		if out, ok = j.awaitSeat(w, s, nil, p, inFleet); !ok {
			return out, false
		}
	}
	return out, true
}

// stand gives the seat back.
func (j *job[T]) stand() {
	if j.seat != nil {
		j.g.leaveSeat(j.seat)
		j.seat = nil
	}
}

// takeSeat takes a seat of the pod for the load of a caller, or a part in that of its batch. The caller has waited
// since then.
func (g *Guard[T]) takeSeat(c *caller[T]) (*seat, error) {
	if g.seats == nil || partOfLoad(c.ctx, g.place) {
		return &seat{}, nil
	}
	b := c.load.batch
	for {
		part, again := b.share(c.key)
		if part != nil {
			return part, nil
		}
		s := &seat{}
		if again != nil { // who takes it has the same time
			s = nil
		}
		err := g.waitForSeat(c, s, again)
		if again == nil {
			if err != nil {
				s = nil
			}
			s = b.took(s)
		}
		if err != nil || s != nil {
			return s, err
		}
	}
}

// waitForSeat waits for a seat in the pod, or without s until again is closed.
func (g *Guard[T]) waitForSeat(c *caller[T], s *seat, again <-chan struct{}) error {
	d := max(g.opts.WaitTimeout-time.Since(c.q.since), 0)
	if s == nil {
		d = maxTTL
	} else {
		select {
		case g.seats <- struct{}{}:
			s.inPod = true
			return nil
		default:
		}
	}
	switch g.pauseForSeat(s, d, again, &vigil{}, c.ctx.Done(), c.soft) {
	case callerLeft:
		return c.ctx.Err()
	case closed:
		return ErrClosed
	case softTimeout:
		return g.overloaded(c.key)
	}
	if s != nil && !s.inPod {
		return g.overloaded(c.key)
	}
	return nil
}

func (g *Guard[T]) overloaded(key string) error {
	g.events.emit(EventOverloaded, key, 0, nil)
	return fmt.Errorf("%w: %q has waited for %v", ErrOverloaded, key, g.opts.WaitTimeout)
}

func (g *Guard[T]) leaveSeat(s *seat) {
	if s.of != nil {
		if s.leave() {
			g.leaveSeat(s.of)
		}
		return
	}
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
	return s.fleet || !inFleet || g.opts.FleetLoads == 0 || j.trySeatInFleet(s, probes, onBudget)
}

// probes is how many seats of the fleet are tried before a pause, and lastProbes before a caller is refused.
const (
	probes     = 4
	lastProbes = 256
)

// seatSpace makes a space of its own of a guard's: neither a name nor a version holds such characters.
const seatSpace = "@@seats"

func (j *job[T]) trySeatInFleet(s *seat, most int, onBudget bool) bool {
	n := j.g.opts.FleetLoads
	first := rand.IntN(n)
	for i := range min(most, n) {
		c, err := j.claim(Key{j.g.space + seatSpace, strconv.Itoa((first + i) % n)}, onBudget)
		if c != nil || err != nil { // without an answer there is no bound
			s.fleet, s.inFleet = true, c
			return true
		}
	}
	return false
}

// awaitSeat waits until it is time to try again for s; without s, until again is closed. It returns false if there is
// something else to do.
func (j *job[T]) awaitSeat(w *vigil, s *seat, again <-chan struct{}, p pause, inFleet bool) (out outcome[T], ok bool) {
	g, q, key := j.g, &j.q, j.k.Key
	d := p.next()
	switch rest := g.opts.WaitTimeout - time.Since(q.since); {
	case again != nil && (!q.wait || rest <= 0): // the other flight will not wait either
	case !q.wait: // what is stale is served on
		g.events.emit(EventOverloaded, key, 0, nil)
		g.holds.put(key, q.seen, checkEvery+rand.N(checkEvery), false)
		return outcome[T]{}, false
	case rest <= 0 && s != nil && (s.inPod || g.seats == nil) && inFleet && j.trySeatInFleet(s, lastProbes, false):
		return out, true
	case rest <= 0:
		return outcome[T]{kind: gotError, err: g.overloaded(key), waited: true}, false
	case j.f.Waiting() == 0:
		return outcome[T]{}, false
	default:
		d = min(d, rest)
	}
	if !q.trouble && q.wait { // another pod may have a seat, and bring what is waited for here
		w.subscribe(g.store, j.k)
	}
	switch g.pauseForSeat(s, d, again, w, nil, nil) {
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

// pauseForSeat waits for a seat in the pod, if s needs one, or for as long as d.
func (g *Guard[T]) pauseForSeat(s *seat, d time.Duration, again <-chan struct{}, w *vigil, left <-chan struct{}, soft <-chan time.Time) wakeUp {
	var seats chan struct{}
	if s != nil && !s.inPod {
		seats = g.seats
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
	case <-again:
	case <-timer.C:
	case <-soft:
		return softTimeout
	case <-watched:
		w.stands = ready
		return keyWatched
	case <-changed:
		return keyChanged
	case <-left:
		return callerLeft
	case <-g.life.quit:
		return closed
	}
	return tryAgain
}
