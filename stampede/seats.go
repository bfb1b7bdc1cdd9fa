package stampede

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/herdgate/herdgate/internal/renew"
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
	inPod bool
	key   Key   // that stands for the seat in the fleet
	lease Stamp // of that; zero: none was needed
	dog   *renew.Watchdog
}

// sit takes a seat for the load of a flight. If it gets none, out is what becomes of the flight.
func (j *job[T]) sit(w *vigil, inFleet bool) (out outcome[T], ok bool) {
	if j.seat != nil || partOfLoad(j.ctx, j.g.place) || j.load.batch.seated() {
		return out, true
	}
	s := &seat{}
	for poll := minPoll; !j.trySeat(w, s, inFleet); poll = min(maxPoll, 2*poll) {
		if out, ok = j.awaitSeat(w, s, poll/2+rand.N(poll)); !ok {
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

func (j *job[T]) trySeat(w *vigil, s *seat, inFleet bool) bool {
	g := j.g
	if g.seats != nil && !s.inPod {
		select {
		case g.seats <- struct{}{}:
			s.inPod = true
		default:
			return false
		}
	}
	return !inFleet || g.opts.FleetLoads == 0 || j.trySeatInFleet(w, s)
}

// probes is how many seats of the fleet are tried before a pause.
const probes = 4

func (j *job[T]) trySeatInFleet(w *vigil, s *seat) bool {
	g, n := j.g, j.g.opts.FleetLoads
	first := rand.IntN(n)
	for i := range min(probes, n) {
		seat := &job[T]{g: g, ctx: j.ctx, k: Key{g.space + seatSpace, strconv.Itoa((first + i) % n)}, q: ask[T]{left: j.q.left}}
		el, err := seat.elect(w.watch == nil)
		j.q.left = seat.q.left
		switch {
		case err != nil:
			return true
		case el.Role == RoleLeader:
			s.key, s.lease = seat.k, el.Lease
			s.dog = renew.Start(j.ctx, g.opts.Lease/3, func(ctx context.Context) bool {
				step := within(ctx, time.Now().Add(g.opts.Lease/3))
				defer step.release()
				h, err := g.store.Renew(step, s.key, s.lease, g.opts.Lease)
				return err != nil || h == Held
			})
			return true
		}
	}
	return false
}

// seatSpace makes a space of its own of a guard's: neither a name nor a version holds such characters.
const seatSpace = "@@seats"

// awaitSeat waits for a seat in the pod, or until it is time to try again. It returns false if there is
// something else to do.
func (j *job[T]) awaitSeat(w *vigil, s *seat, d time.Duration) (out outcome[T], ok bool) {
	g, q, key := j.g, &j.q, j.k.Key
	rest := g.opts.WaitTimeout - time.Since(q.since)
	switch {
	case !q.wait: // what is stale is served on
		g.events.emit(EventOverloaded, key, 0, nil)
		g.holds.put(key, q.seen, checkEvery+rand.N(checkEvery), false)
		return outcome[T]{}, false
	case rest <= 0:
		g.events.emit(EventOverloaded, key, 0, nil)
		return gaveError[T](fmt.Errorf("%w: %q has waited for %v", ErrOverloaded, key, g.opts.WaitTimeout)), false
	case j.f.Waiting() == 0:
		return outcome[T]{}, false
	}
	var changed <-chan Change
	if !q.trouble { // another pod may have a seat, and bring what is waited for here
		w.subscribe(g.store, j.k)
		changed = w.watch.C()
	}
	seats := g.seats
	if s.inPod {
		seats = nil
	}
	timer := time.NewTimer(min(d, rest))
	defer timer.Stop()
	select {
	case seats <- struct{}{}:
		s.inPod = true
	case <-changed:
		return outcome[T]{}, false
	case <-g.life.quit:
		return gaveError[T](ErrClosed), false
	case <-timer.C:
	}
	return out, true
}

// takeSeat takes a seat for a load outside of a flight, for a caller who has waited since then.
func (g *Guard[T]) takeSeat(ctx context.Context, key string, since time.Time, soft <-chan time.Time, inFleet bool) (*seat, error) {
	s := &seat{}
	if g.seats == nil && (!inFleet || g.opts.FleetLoads == 0) || partOfLoad(ctx, g.place) {
		return s, nil
	}
	j := &job[T]{g: g, ctx: context.WithoutCancel(ctx), k: Key{g.space, key}, q: ask[T]{left: g.opts.StoreBudget}}
	var w vigil
	timeout := time.NewTimer(max(g.opts.WaitTimeout-time.Since(since), 0))
	defer timeout.Stop()
	for poll := minPoll; !j.trySeat(&w, s, inFleet); poll = min(maxPoll, 2*poll) {
		seats := g.seats
		if s.inPod {
			seats = nil
		}
		err := func() error {
			pause := time.NewTimer(poll/2 + rand.N(poll))
			defer pause.Stop()
			select {
			case seats <- struct{}{}:
				s.inPod = true
				return nil
			case <-pause.C:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			case <-g.life.quit:
				return ErrClosed
			case <-soft:
			case <-timeout.C:
			}
			g.events.emit(EventOverloaded, key, 0, nil)
			return fmt.Errorf("%w: %q has waited for %v", ErrOverloaded, key, g.opts.WaitTimeout)
		}()
		if err != nil {
			g.leaveSeat(s)
			return nil, err
		}
	}
	return s, nil
}

func (g *Guard[T]) leaveSeat(s *seat) {
	if s.inPod {
		<-g.seats
	}
	if s.lease == (Stamp{}) {
		return
	}
	s.dog.Stop()
	g.aside(s.key.Key, func(ctx context.Context) error { return g.store.Release(ctx, s.key, s.lease, Pass{}) })
}
