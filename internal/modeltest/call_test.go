package modeltest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// call is one call of a method of a guard.
type call struct {
	id     int
	pod    *pod
	key    *register
	more   *register // of a Delete of two keys
	what   method
	ctx    context.Context
	cancel context.CancelFunc
	obeys  bool // its loader does what its ctx says
	value  int  // of a Set
	tag    string

	begun      int // step
	begunAt    time.Duration
	cancelled  bool
	overAt     time.Duration // when its ctx ends
	hasEnd     bool
	returnedAt time.Duration
	over       bool
	leads      *grant           // that its flight has been answered with, and whose load has not begun
	reading    int              // reads under way
	asides     int              // reads under way that it need not wait for
	reads      int              // begun
	elects     int              // as well
	spent      time.Duration    // on steps of the store that bear on the budget of the call
	follows    []stampede.Stamp // leases that its flight was told are somebody else's
	marked     bool             // its flight was told not to follow, by a marker
	told       bool             // one of the loads that it followed has ended without a stored value
	mustLoad   bool             // it was told, and is told to follow again

	result   stampede.Result[int]
	err      error
	panicked any
}

type method uint8

const (
	doFetch method = iota
	doGet
	doGetter
	doRefresh
	doSet
	doDelete
	doExpire
	doExpireTag
)

var methodNames = [...]string{"Fetch", "Get", "Getter.Get", "Refresh", "Set", "Delete", "Expire", "ExpireTag"}

func (m method) reads() bool { return m <= doGetter }

type callKey struct{}

// tagged is a ctx that knows its call, so that what is done on it can be told apart.
type tagged struct {
	context.Context
	call *call
}

func (t tagged) Value(key any) any {
	if key == (callKey{}) {
		return t.call
	}
	return t.Context.Value(key)
}

// begin starts a call; deadline zero: its ctx has none.
func (w *world) begin(p *pod, k *register, what method, deadline time.Duration) *call {
	w.callSeq++
	c := &call{id: w.callSeq, pod: p, key: k, what: what, begun: w.step, begunAt: w.now(), obeys: w.rng.IntN(2) == 0}
	base := context.Context(tagged{context.Background(), c})
	if deadline > 0 {
		c.ctx, c.cancel = context.WithTimeout(base, deadline)
		c.hasEnd, c.overAt = true, w.now()+deadline
	} else {
		c.ctx, c.cancel = context.WithCancel(base)
	}
	switch what {
	case doSet:
		k.source++
		v := &value{n: len(w.values), key: k, src: k.source}
		w.values = append(w.values, v)
		c.value = v.n
		w.note("pod %d: call %d: %s %s to value %d", p.n, c.id, methodNames[what], k.name, v.n)
	case doExpireTag:
		c.tag = allTags[w.rng.IntN(len(allTags))]
		w.note("pod %d: call %d: %s %s", p.n, c.id, methodNames[what], c.tag)
	case doDelete, doExpire:
		k.source++
		if len(w.keys) > 1 && w.rng.IntN(3) == 0 {
			c.more = w.keys[(k.n+1)%len(w.keys)]
			c.more.source++
		}
		fallthrough
	default:
		w.note("pod %d: call %d: %s %s", p.n, c.id, methodNames[what], k.name)
	}
	w.calls = append(w.calls, c)
	go c.run()
	return c
}

func (c *call) run() {
	defer func() {
		w, p := c.pod.w, recover()
		w.mu.Lock()
		defer w.mu.Unlock()
		c.panicked, c.returnedAt, c.over = p, w.now(), true
		w.inbox.returned = append(w.inbox.returned, c)
	}()
	g, key := c.pod.guard, c.key.name
	keys := []string{key}
	if c.more != nil {
		keys = append(keys, c.more.name)
	}
	switch c.what {
	case doFetch:
		c.result, c.err = g.Fetch(c.ctx, key, c.load)
	case doGet:
		c.result.Value, c.err = g.Get(c.ctx, key, c.loader())
	case doGetter:
		c.result.Value, c.err = g.Getter(func(ctx context.Context, _ string) (int, error) { return c.load(ctx, nil) }).Get(c.ctx, key)
	case doRefresh:
		c.err = g.Refresh(c.ctx, key, c.loader())
	case doSet:
		c.err = g.Set(c.ctx, key, c.value)
	case doDelete:
		c.err = g.Delete(c.ctx, keys...)
	case doExpire:
		c.err = g.Expire(c.ctx, keys...)
	case doExpireTag:
		c.err = g.ExpireTag(c.ctx, c.tag)
	}
}

// sent takes note of a command.
func (w *world) sent(c *command) {
	if c.orphan && c.op == opGhost {
		return
	}
	w.note("pod %d: sends %v of %s for call %d", c.pod.n, c.op, c.keys[0].name, c.callID())
	if c.call == nil {
		return
	}
	switch c.op {
	case opRead, opTags:
		if w.loading(c.call) || w.mayHedge(c.call) || w.cfg.seated() && c.call.reads > 0 && w.watching(c.pod, c.keys[0]) {
			// It looks what is there while it loads, or waits for its turn.
			c.aside = true // or its load has just ended, and it has not been heard of
			c.call.asides++
			return
		}
		c.call.reading++
		if c.op == opTags { // of what was read, or of what an election has answered with
			c.counted = len(c.call.follows) == 0 && !w.cfg.seated()
			return
		}
		c.call.reads++
		c.call.follows, c.call.told = nil, false // another round, another flight
		c.counted = true
	case opTagTime:
		c.call.reading++
		c.counted = len(c.call.follows) == 0 && !w.cfg.seated()
	case opElect:
		// Later elections of a flight happen while its callers wait for a load, or a seat, anyway.
		c.counted = len(c.call.follows) == 0 && !w.cfg.seated()
		if c.call.elects++; c.call.elects == 1 && c.call.reads == 0 && c.call.what.reads() {
			c.unread = true
			w.saw(sawUnread)
		}
		c.told = c.call.told && !w.unread(c.pod, c.keys[0])
	}
}

func (w *world) loading(c *call) bool {
	return slices.ContainsFunc(w.loads, func(l *load) bool { return l.call == c })
}

func (w *world) watching(p *pod, k *register) bool {
	return slices.ContainsFunc(w.watches, func(x *watch) bool { return x.pod == p && x.key == k && !x.isClosed() })
}

func (c *command) callID() int {
	if c.call == nil {
		return 0
	}
	return c.call.id
}

// endStep takes note that a pod has its answer, or has given up.
func (w *world) endStep(c *command) {
	if c.op == opCommit && c.took > 0 {
		c.pod.slowAt[c.keys[0].n] = w.step
	}
	if c.call == nil {
		return
	}
	if c.aside {
		c.call.asides--
		return
	}
	if c.op.reads() {
		c.call.reading--
	}
	if c.counted && slices.Contains(w.calls, c.call) {
		c.call.spent += c.took
	}
}

func (w *world) returned(c *call) {
	w.calls = slices.DeleteFunc(w.calls, func(x *call) bool { return x == c })
	c.cancel()
	if c.pod.crashed {
		return
	}
	if c.err != nil {
		w.note("call %d returns error %v", c.id, fmt.Sprintf("%.80v", c.err))
	} else {
		w.note("call %d returns value %d, from %d, freshness %d", c.id, c.result.Value, int(c.result.From), int(c.result.Freshness))
	}
	if c.panicked != nil {
		w.fail("call %d panicked: %v", c.id, c.panicked)
		return
	}
	if c.what.reads() {
		w.checkGet(c)
		return
	}
	w.checkWrite(c)
}
