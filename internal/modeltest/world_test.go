package modeltest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// world is one run: the store as it truly is, the pods, and all that is under way between them. Its
// fields belong to the scheduler, which touches them only while every pod's goroutine is blocked.
type world struct {
	cfg   config
	rng   *rand.Rand
	start time.Time
	step  int
	log   []note
	fault string // what was found wrong, the first time
	seen  [numSights]int

	keys    []*register
	nonces  uint64
	pods    []*pod     // in the order in which they came
	unrun   []*command // sent, not yet run by the store
	unsaid  []*command // run, not yet answered
	silent  []*command // lost, and the pod has not been told
	past    []*command // some that were run, for late duplicates
	calls   []*call    // not yet returned
	loads   []*load    // not yet ended
	all     []*load    // that ever began
	watches []*watch   // not yet closed
	movers  []*watch   // scratch
	values  []*value   // by number; 0 is nobody's
	hints   []hint     // drops that pods have not heard of

	record   record
	epochs   uint64
	expiries []expiry // of tags

	claims  stampede.MemoryStore
	emptied int // the last step at which the store lost everything
	callSeq int
	loadSeq int

	mu     sync.Mutex // protects what follows, and of each watch and command what says so
	inbox  inbox
	hedges []*call
}

// inbox is what the pods' goroutines have done since the scheduler last looked.
type inbox struct {
	commands []*command
	failed   []*command // the pod was told that they failed, or gave up
	watches  []*watch
	begun    []*load
	ended    []*load
	returned []*call
}

// note is a line of the history. It is put into words only if somebody wants to read it.
type note struct {
	step int
	at   time.Duration
	what string
	args [5]any
}

func (n note) String() string {
	args := n.args[:strings.Count(n.what, "%")]
	return fmt.Sprintf("%4d %8.3fs  ", n.step, n.at.Seconds()) + fmt.Sprintf(n.what, args...)
}

func (w *world) note(what string, args ...any) {
	n := note{step: w.step, at: w.now(), what: what}
	copy(n.args[:], args)
	w.log = append(w.log, n)
}

// fail keeps the first fault of a run; what follows from it is of no interest.
func (w *world) fail(format string, args ...any) {
	if w.fault == "" {
		w.fault = fmt.Sprintf(format, args...)
		w.note("FAULT: %s", w.fault)
	}
}

func (w *world) now() time.Duration { return time.Since(w.start) }

func (w *world) history() string {
	var b strings.Builder
	for _, n := range w.log {
		b.WriteString(n.String())
		b.WriteByte('\n')
	}
	return b.String()
}

// verdict is what came of a run.
type verdict struct {
	fault string
	log   func() string
	steps int
	seen  [numSights]int
}

// run is one run in a bubble of its own.
func run(t *testing.T, seed uint64, broken mutant) (v verdict) {
	w := &world{rng: rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))}
	w.cfg = newConfig(w.rng, broken)
	defer func() { // a goroutine that is left when the bubble ends makes it panic
		if p := recover(); p != nil {
			w.fault = fmt.Sprint("at the end: ", p)
		}
		v = verdict{w.fault, w.history, w.step, w.seen}
	}()
	synctest.Test(t, func(*testing.T) {
		w.start = time.Now()
		for i := range w.cfg.keys {
			w.keys = append(w.keys, &register{name: string(rune('a' + i)), n: i})
		}
		w.values = make([]*value, 1, 64)
		for range w.cfg.pods {
			w.newPod()
		}
		for w.step < w.cfg.steps && w.fault == "" {
			w.act()
		}
		if w.fault == "" {
			w.finish()
		}
		w.tearDown()
	})
	return v
}

// settleStep ends a step: every goroutine goes as far as it can, then the scheduler looks at what they did.
func (w *world) settleStep() {
	w.yield()
	synctest.Wait()
	w.collect()
	w.step++
}

// yield makes what the scheduler did known to goroutines that no more than the time will wake.
func (w *world) yield() {
	w.mu.Lock()
	defer w.mu.Unlock() //nolint:gocritic // there is nothing to do under it
}

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	w.note("%v pass", d)
	w.yield()
	time.Sleep(d)
}

// collect takes in what the pods have done, in an order that does not depend on which of their
// goroutines happened to run first.
func (w *world) collect() {
	w.mu.Lock()
	in := w.inbox
	w.inbox = inbox{}
	w.mu.Unlock()
	w.expire()
	if len(in.commands) > 1 {
		slices.SortStableFunc(in.commands, (*command).compare)
	}
	for _, c := range in.failed {
		c.pod.failedAt[c.keys[0].n] = w.step
		c.keys[0].lost = w.step
		if c.op == opElect {
			c.pod.lost = append(c.pod.lost, c.ballot.Token)
		}
		if c.unread {
			w.saw(sawUnreadLost)
		}
		if c.err == context.Canceled && (c.op == opElect || c.op == opCommit || c.op == opFail || c.op == opRelease) {
			w.fail("P6: the %v of %s was cancelled", c.op, c.keys[0].name)
		}
		w.endStep(c)
	}
	w.unrun = append(w.unrun, in.commands...)
	for _, c := range in.commands {
		w.sent(c)
	}
	w.watches = append(w.watches, in.watches...)
	w.watches = slices.DeleteFunc(w.watches, func(x *watch) bool { return x.isClosed() })
	w.unrun = slices.DeleteFunc(w.unrun, func(c *command) bool { return c.op.reads() && c.orphan })
	w.unsaid = slices.DeleteFunc(w.unsaid, func(c *command) bool { return c.orphan })
	slices.SortStableFunc(in.begun, func(a, b *load) int { return a.call.id - b.call.id })
	for _, l := range in.begun {
		w.loadBegan(l)
	}
	for _, l := range in.ended {
		w.loadEnded(l)
	}
	slices.SortStableFunc(in.returned, func(a, b *call) int { return a.id - b.id })
	for _, c := range in.returned {
		w.returned(c)
	}
	w.checkLoads()
	w.checkCalls()
	for _, c := range w.calls {
		if c.mustLoad {
			w.fail("P3: call %d follows another load, after one that it was told has ended without a stored value", c.id)
		}
	}
	for _, l := range w.loads {
		if l.taken && context.Cause(l.ctx) == nil {
			w.fail("P8: load %d has lost its lease to another pod, and its ctx goes on", l.n)
		}
	}
}

// pod is a guard and its view of the store.
type pod struct {
	w        *world
	n        int
	guard    *stampede.Guard[int]
	held     bool          // nothing that it sends or waits for moves
	crash    chan struct{} // closed when it crashes
	gone     chan struct{} // closed when the run ends: what it left behind may end
	crashed  bool
	failedAt []int // by key: the last step at which a command of it failed
	dropped  []int // by key: the last step at which a Delete, Set or Expire of its own returned
	toldAt   []int // by key: the last step at which it heard of a load without a stored value
	slowAt   []int // by key: the last step at which a commit of its own was answered late
	hush     []int // by key: the last step at which it may have got a reason not to load behind
	hushAt   []time.Duration
	drops    func(string)
	tagDrops func(string)
	lost     []stampede.Token // of elections that were not answered
	expired  []ownExpiry
}

func (w *world) newPod() {
	n := len(w.keys)
	p := &pod{w: w, n: len(w.pods), crash: make(chan struct{}), gone: make(chan struct{}),
		failedAt: make([]int, n), toldAt: make([]int, n), slowAt: make([]int, n), dropped: make([]int, n), hush: make([]int, n), hushAt: make([]time.Duration, n)}
	for i := range n {
		p.failedAt[i], p.toldAt[i], p.slowAt[i], p.dropped[i], p.hush[i] = -1, -1, -1, -1, -1
	}
	g, err := stampede.New[int](p, &w.cfg.opts)
	if err != nil {
		panic(err)
	}
	p.guard = g
	if w.cfg.guesses {
		p.warm()
	}
	w.pods = append(w.pods, p)
}

// quieten notes that the pod may have got a reason not to load key behind for a while.
func (p *pod) quieten(k *register) { p.hush[k.n], p.hushAt[k.n] = p.w.step, p.w.now() }

// hint is what the store tells pods that keep copies.
type hint struct {
	pod *pod
	key *register
	tag string // instead of a key
}

func (w *world) alive() (list []*pod) {
	for _, p := range w.pods {
		if !p.crashed {
			list = append(list, p)
		}
	}
	return list
}

// tearDown lets everything end that still runs.
func (w *world) tearDown() {
	for _, c := range w.calls {
		c.cancel()
	}
	for _, p := range w.pods {
		if !p.crashed {
			p.crashed = true
			close(p.crash)
		}
		close(p.gone)
	}
	for _, p := range w.pods {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		_ = p.guard.Close(ctx)
		cancel()
	}
	time.Sleep(10 * time.Second)
	synctest.Wait()
}
