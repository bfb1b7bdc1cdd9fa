// Package flight collapses the callers of a key in one process, on top of x/sync/singleflight, and
// keeps the order in which they came.
//
// Singleflight gives one answer to all who wait. Here an answer may be right for some of them only:
// a value is as old as the command that vouches for it, and whoever came after that command was sent
// may have come after a Delete that the command did not see. So a flight makes a mark before each
// step that may vouch for a value, and each caller can tell whether it came before a mark.
package flight

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
)

// Group is a set of flights, at most one for a key at a time. The zero value is ready to use.
type Group[R any] struct {
	sf   singleflight.Group
	open atomic.Int64 // flights that are waitable; to spare JoinLooked the lock

	mu    sync.Mutex // protects what follows, and the fields of flights that say so
	m     map[string]*Flight[R]
	marks Mark // made so far, by all flights
}

// Mark is a moment in the life of a group, of one flight or another. It is never zero.
type Mark uint64

// Flight is what the callers of a key share.
type Flight[R any] struct {
	g       *Group[R]
	waiting int  // callers that joined and have not left; under g.mu
	last    Mark // when one last joined; under g.mu

	waitable bool      // all there is to do for who wants key is to wait; under g.mu
	looked   time.Time // when this was last seen; under g.mu
	guessed  bool      // it was not seen, but is likely; under g.mu
	changed  time.Time // when it was last said that things have changed; under g.mu

	lent atomic.Bool

	early *R            // under g.mu
	news  chan struct{} // closed when early changes; under g.mu
}

// Ticket is a caller's place in a flight.
type Ticket[R any] struct {
	f       *Flight[R]
	joined  Mark
	place   int
	starter bool
	guess   bool
	done    <-chan singleflight.Result
}

// Join joins the flight of key, or starts one that executes run in a goroutine of its own. The caller
// waits for what it needs in a select on Done and Early, and then calls Leave. It has looked at the given
// time and seen that all there is to do is to wait; the zero time if it has not.
func (g *Group[R]) Join(key string, looked time.Time, run func(*Flight[R]) R) Ticket[R] {
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.m[key]
	starter := f == nil
	var done <-chan singleflight.Result
	if starter {
		if f, done = g.start(key, run); !looked.IsZero() {
			f.wait(true, looked) // at once: the flight's own goroutine may take a while to begin
		}
	} else {
		done = g.sf.DoChan(key, nil) // one is under way for as long as f is in m
		f.saw(looked)
	}
	return f.join(starter, done)
}

// JoinUnseen starts a flight of key, and joins it, for a caller that has not looked. It does nothing if a flight is
// under way. Others may join it with JoinLooked if it is likely that all there is to do is to wait.
func (g *Group[R]) JoinUnseen(key string, likely bool, run func(*Flight[R]) R) (t Ticket[R], ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.m[key] != nil {
		return t, false
	}
	f, done := g.start(key, run)
	if f.guessed = true; likely {
		f.wait(true, time.Now())
	}
	return f.join(true, done), true
}

// join is called with g.mu held.
func (f *Flight[R]) join(starter bool, done <-chan singleflight.Result) Ticket[R] {
	f.waiting++
	f.last = f.g.marks + 1
	return Ticket[R]{f: f, joined: f.g.marks + 1, place: f.waiting, starter: starter, guess: f.guessed, done: done}
}

// JoinLooked joins the flight of key if there is one of which it was seen, no longer than within ago,
// that all there is to do is to wait, or it is likely.
func (g *Group[R]) JoinLooked(key string, within time.Duration) (t Ticket[R], ok bool) {
	if g.open.Load() == 0 {
		return t, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.m[key]
	if f == nil || !f.waitable || time.Since(f.looked) > within {
		return t, false
	}
	return f.join(false, g.sf.DoChan(key, nil)), true
}

// Waitable says whether all there is to do for who wants key is to wait for this flight, as was seen at
// the given time.
func (f *Flight[R]) Waitable(is bool, at time.Time) {
	f.g.mu.Lock()
	defer f.g.mu.Unlock()
	f.guessed = false
	f.wait(is, at)
}

// wait is called with g.mu held.
func (f *Flight[R]) wait(is bool, at time.Time) {
	if f.waitable != is {
		f.waitable = is
		if is {
			f.g.open.Add(1)
		} else {
			f.g.open.Add(-1)
		}
	}
	f.saw(at)
}

// saw is called with g.mu held.
func (f *Flight[R]) saw(at time.Time) {
	if at.After(f.looked) && at.After(f.changed) {
		f.looked = at
	}
}

// Look says that things have changed for key: who comes next has to look for itself.
func (g *Group[R]) Look(key string) {
	if g.open.Load() == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if f := g.m[key]; f != nil {
		f.changed, f.looked = time.Now(), time.Time{}
	}
}

// Start starts a flight that nobody waits for yet. It does nothing if one is under way.
func (g *Group[R]) Start(key string, run func(*Flight[R]) R) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.m[key] != nil {
		return false
	}
	g.start(key, run)
	return true
}

// Flying says whether a flight for key is under way.
func (g *Group[R]) Flying(key string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.m[key] != nil
}

// start is called with g.mu held.
func (g *Group[R]) start(key string, run func(*Flight[R]) R) (*Flight[R], <-chan singleflight.Result) {
	f := &Flight[R]{g: g, news: make(chan struct{})}
	if g.m == nil {
		g.m = make(map[string]*Flight[R])
	}
	g.m[key] = f
	done := g.sf.DoChan(key, func() (any, error) {
		// Both maps forget the key in one step, before the answer is given: nobody can join a flight
		// in one of them only.
		defer func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			if f.waitable {
				g.open.Add(-1)
			}
			delete(g.m, key)
			g.sf.Forget(key)
		}()
		r := run(f)
		return &r, nil
	})
	return f, done
}

// Mark makes a mark. Whoever has joined by now came before it.
func (f *Flight[R]) Mark() Mark {
	f.g.mu.Lock()
	defer f.g.mu.Unlock()
	f.g.marks++
	return f.g.marks + 1
}

// Waiting is the number of callers that wait.
func (f *Flight[R]) Waiting() int {
	f.g.mu.Lock()
	defer f.g.mu.Unlock()
	return f.waiting
}

// JoinedSince says whether anybody has joined since m was made.
func (f *Flight[R]) JoinedSince(m Mark) bool {
	f.g.mu.Lock()
	defer f.g.mu.Unlock()
	return f.last >= m
}

// Tell tells all who wait, and those who will, something before the flight ends. It replaces what was
// told before.
func (f *Flight[R]) Tell(r R) {
	f.g.mu.Lock()
	defer f.g.mu.Unlock()
	f.early = &r
	close(f.news)
	f.news = make(chan struct{})
}

// Early returns what the flight has told so far, nil if nothing, and a channel that is closed when it
// tells something else.
func (t *Ticket[R]) Early() (*R, <-chan struct{}) {
	t.f.g.mu.Lock()
	defer t.f.g.mu.Unlock()
	return t.f.early, t.f.news
}

// Lend lets the flight do what the caller has the right to do: it waits for the flight, and does not use it meanwhile.
func (t *Ticket[R]) Lend() { t.f.lent.Store(true) }

// Lent says whether a caller has done so.
func (f *Flight[R]) Lent() bool { return f.lent.Load() }

// Done gets the result of the flight; Result makes an R of it.
func (t *Ticket[R]) Done() <-chan singleflight.Result { return t.done }

// Result returns what the flight's function returned.
func Result[R any](r singleflight.Result) *R { return r.Val.(*R) }

// Leave ends the caller's part in the flight, which goes on.
func (t *Ticket[R]) Leave() {
	t.f.g.mu.Lock()
	defer t.f.g.mu.Unlock()
	t.f.waiting--
}

// Joined is when the caller joined: less than each mark that was made after that, and not less than
// those from before. This holds for the marks of later flights, too.
func (t *Ticket[R]) Joined() Mark { return t.joined }

// Place is the number of callers that waited when the caller joined, itself included.
func (t *Ticket[R]) Place() int { return t.place }

// Guess says whether nobody had looked when the caller joined: see JoinUnseen.
func (t *Ticket[R]) Guess() bool { return t.guess }

// Starter says whether the caller started the flight.
func (t *Ticket[R]) Starter() bool { return t.starter }
