package lock_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// The protocol of fencing numbers on several servers, as the package's documentation argues it, with each step of
// each client and each server in random order: servers forget at any moment, clients stop anywhere, and
// requests arrive late. The numbers must grow all the same. Mutants of the protocol must not pass, else this
// test would say nothing.

// fenceServer is what a server knows. Locks play no part in the order of numbers, so there are none.
type fenceServer struct {
	epoch  int // 0: no marker
	claim  int // 0: none
	number int
}

// fenceRules are what a mutant leaves out.
type fenceRules struct {
	strict  bool // a server accepts only what is above its own
	confirm bool // step 3
	claims  bool // a marker needs a claim that stands
	marker  bool // a server that forgot counts as down
	reask   bool // the majority is asked after the claim
	most    bool // a majority has to accept
	sure    bool // who raises the numbers looks whether all that were raised still know
}

var theRules = fenceRules{true, true, true, true, true, true, true}

// fenceWorld is a run.
type fenceWorld struct {
	rules   fenceRules
	raises  bool // there are raisers
	rnd     *rand.Rand
	servers []fenceServer
	ids     int
	done    []granted
	raised  []granted // what all that is given later must be above
	highest int       // number that anybody has asked for
	now     int
	history []string
}

// granted is an acquisition: numbers of one must be above those of all that ended before it began.
type granted struct{ began, ended, number int }

func (w *fenceWorld) quorum() int { return len(w.servers)/2 + 1 }

func (w *fenceWorld) id() int { w.ids++; return w.ids }

func (w *fenceWorld) note(format string, args ...any) {
	w.history = append(w.history, fmt.Sprintf("%d: %s", w.now, fmt.Sprintf(format, args...)))
}

// agent does one step at a time, and reports whether it goes on.
type agent func() bool

// acquirer acquires once.
func (w *fenceWorld) acquirer() agent {
	name, began := w.id(), w.now
	type known struct{ server, epoch, number int }
	var joined, accepted []known
	order := w.rnd.Perm(len(w.servers))
	number, confirmed, phase := 0, 0, 0
	return func() bool {
		switch phase {
		case 0: // join
			i := order[0]
			order = order[1:]
			if s := w.servers[i]; s.epoch != 0 || !w.rules.marker {
				joined = append(joined, known{i, s.epoch, s.number})
				number = max(number, s.number+1)
			}
			if len(joined) == w.quorum() {
				phase = 1
				w.rnd.Shuffle(len(joined), func(i, j int) { joined[i], joined[j] = joined[j], joined[i] })
			}
			return phase == 1 || len(order) > 0
		case 1: // accept
			k := joined[len(accepted)]
			s := &w.servers[k.server]
			if s.epoch != k.epoch && w.rules.marker {
				return false
			}
			if w.rules.strict && number <= s.number {
				number, accepted = s.number+1, nil
				return true
			}
			s.number = max(s.number, number)
			w.highest = max(w.highest, number)
			w.note("%d has %d accepted by %d", name, number, k.server)
			accepted = append(accepted, k)
			if len(accepted) == w.quorum() || !w.rules.most {
				phase = 2
			}
			return true
		}
		if w.rules.confirm {
			k := accepted[confirmed]
			if s := w.servers[k.server]; s.epoch != k.epoch || s.number < number {
				return false
			}
			if confirmed++; confirmed < len(accepted) {
				return true
			}
		}
		w.note("%d is given %d", name, number)
		w.done = append(w.done, granted{began, w.now, number})
		return false
	}
}

// seeder gives servers that have forgotten their numbers again.
func (w *fenceWorld) seeder() agent {
	claim := w.id()
	var claimed, asked []int
	top := 0
	phase, next := 0, 0
	order := w.rnd.Perm(len(w.servers))
	ask := func(i int) {
		if s := w.servers[i]; s.epoch != 0 {
			asked = append(asked, i)
			top = max(top, s.number)
		}
	}
	return func() bool {
		switch phase {
		case 0: // claim, one after the other
			i := order[next]
			if s := &w.servers[i]; s.epoch == 0 {
				s.claim = claim
				claimed = append(claimed, i)
			} else if !w.rules.reask {
				ask(i)
			}
			if next++; next == len(order) {
				phase, next = 1, 0
				if !w.rules.reask {
					phase = 2
				}
			}
			return true
		case 1: // ask a majority
			ask(order[next])
			if next++; next == len(order) {
				phase = 2
			}
			return true
		}
		if len(asked) < w.quorum() || len(claimed) == 0 {
			return false
		}
		i := claimed[0]
		claimed = claimed[1:]
		s := &w.servers[i]
		if s.epoch == 0 && (s.claim == claim || !w.rules.claims) {
			*s = fenceServer{epoch: w.id(), number: top}
			w.note("%d is given %d as its number", i, top)
		}
		return len(claimed) > 0
	}
}

// raiser is somebody who wants numbers to be above one. Where no majority knows any, that number must be above
// all that were given.
func (w *fenceWorld) raiser() agent {
	epoch, began := w.id(), w.now
	above := w.highest + w.rnd.IntN(20)
	var claimed []int
	var seen []fenceServer
	top, marked, know := above, 0, 0
	phase, next := 0, 0
	order := w.rnd.Perm(len(w.servers))
	step := func(i int) {
		s := &w.servers[i]
		switch phase {
		case 0: // claim
			if s.epoch == 0 {
				s.claim = epoch
				claimed = append(claimed, i)
			}
		case 1: // ask
			seen = append(seen, *s)
			if s.epoch != 0 {
				marked++
				top = max(top, s.number)
			}
			if len(seen) == len(order) && marked < w.quorum() {
				above = w.highest + 20
				top = max(top, above)
			}
		case 2: // raise, or seed; some requests are lost
			if was := seen[next].epoch; was != 0 && s.epoch == was || s.epoch == 0 && s.claim == epoch && slices.Contains(claimed, i) {
				if w.rnd.IntN(3) == 0 {
					break
				}
				*s = fenceServer{epoch: epoch, number: max(s.number, top)}
				w.note("%d is raised to %d", i, s.number)
				if !w.rules.sure {
					know++
				}
			}
		case 3: // look again
			if s.epoch == epoch {
				know++
			}
		}
	}
	return func() bool {
		if next == len(order) {
			phase, next = phase+1, 0
		}
		if phase == 4 || phase == 3 && !w.rules.sure {
			if know >= w.quorum() {
				w.note("all is above %d", above)
				w.raised = append(w.raised, granted{began, w.now, above})
			}
			return false
		}
		step(order[next])
		next++
		return true
	}
}

// run returns what is wrong with the numbers, "" if nothing is.
func (w *fenceWorld) run(steps, forgetful int) string {
	for i := range w.servers {
		w.servers[i] = fenceServer{epoch: w.id()}
	}
	var agents []agent
	busy := 0 // which of them, mostly: the others are paused
	for w.now = range steps {
		switch {
		case w.rnd.IntN(forgetful) == 0:
			// Also when a majority has forgotten: then nothing more is given out, unless somebody knows better.
			i := w.rnd.IntN(len(w.servers))
			w.servers[i] = fenceServer{}
			w.note("%d forgets", i)
		case len(agents) < 4:
			switch kind := w.rnd.IntN(4); {
			case kind == 0 && w.raises:
				agents = append(agents, w.raiser())
			case kind < 2:
				agents = append(agents, w.seeder())
			default:
				agents = append(agents, w.acquirer())
			}
		default:
			if busy >= len(agents) || w.rnd.IntN(3) == 0 {
				busy = w.rnd.IntN(len(agents))
			}
			if !agents[busy]() || w.rnd.IntN(60) == 0 {
				agents = append(agents[:busy], agents[busy+1:]...)
			}
		}
	}
	for i, a := range w.done {
		for _, r := range w.raised {
			if r.ended < a.began && a.number <= r.number {
				return fmt.Sprintf("%d was given from %d on, when all was to be above %d since %d", a.number, a.began, r.number, r.ended)
			}
		}
		for j, b := range w.done {
			if i != j && a.number == b.number {
				return fmt.Sprintf("%d was given twice", a.number)
			}
			if a.ended < b.began && a.number >= b.number {
				return fmt.Sprintf("%d was given until %d, and %d from %d on", a.number, a.ended, b.number, b.began)
			}
		}
	}
	return ""
}

func explore(rules fenceRules, raises bool, seed uint64, runs int) (wrong string, history []string, grants int) {
	for i := range runs {
		w := &fenceWorld{
			rules: rules, raises: raises, rnd: rand.New(rand.NewPCG(seed, uint64(i))), servers: make([]fenceServer, 3+2*(i%2)),
		}
		forgetful := []int{10, 15, 60}[i%3]
		if wrong := w.run(150, forgetful); wrong != "" {
			return fmt.Sprintf("run %d: %s", i, wrong), w.history, grants
		}
		grants += len(w.done)
	}
	return "", nil, grants
}

func TestFencesOnSeveralServersGrowInEveryOrderOfSteps(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	for _, raises := range []bool{false, true} {
		wrong, history, grants := explore(theRules, raises, seed, 5000)
		if wrong != "" {
			t.Fatalf("seed %d, raised %v: %s\n%q", seed, raises, wrong, history)
		}
		t.Logf("seed %d, raised %v: %d numbers", seed, raises, grants)
		if grants < 4000 {
			t.Errorf("only %d numbers were given out", grants)
		}
	}
}

func TestMutantsOfTheFenceProtocolAreFound(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]struct {
		mutate func(*fenceRules)
		raises bool
	}{
		"a server accepts what is not above its own": {func(r *fenceRules) { r.strict = false }, false},
		"nobody confirms":                                 {func(r *fenceRules) { r.confirm = false }, false},
		"a marker needs no claim":                         {func(r *fenceRules) { r.claims = false }, false},
		"a server that forgot counts":                     {func(r *fenceRules) { r.marker = false }, false},
		"the majority is asked while servers are claimed": {func(r *fenceRules) { r.reask = false }, false},
		"one server is enough":                            {func(r *fenceRules) { r.most = false }, false},
		"who raises does not look again":                  {func(r *fenceRules) { r.sure = false }, true},
	} {
		rules := theRules
		m.mutate(&rules)
		if wrong, _, _ := explore(rules, m.raises, 0, 100_000); wrong == "" {
			t.Errorf("%s: not found", name)
		} else {
			t.Logf("%s: %s", name, wrong)
		}
	}
}
