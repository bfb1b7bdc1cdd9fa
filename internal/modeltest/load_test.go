package modeltest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// load is one run of a loader.
type load struct {
	n      int
	call   *call // whose loader it is
	ctx    context.Context
	about  *stampede.Load[int] // nil for Get's loaders
	obeys  bool                // it ends when its ctx does
	orders chan order

	begun    int // step
	begunAt  time.Duration
	ended    int // step; -1: it runs
	grant    *grant
	source   int // what it has read of the source
	read     bool
	stores   bool // its value may be stored
	taken    bool // the pod knows that another one has the lease
	timedOut bool // LoadTimeout has passed, and that was noted
	released bool // it has let those go who waited for it
	how      end
	value    int
	ttl      time.Duration // of its value
	tags     []string
	err      error // what it returned
	cause    error // why its ctx ended before it did
}

// order is what the scheduler tells a loader.
type order struct {
	release bool
	how     end
	value   int
	err     error
	unsaved bool // DoNotStore
	private bool // DoNotShare
	brief   bool // TTL
	tags    []string
}

// end is how a load ends.
type end uint8

const (
	endValue end = iota
	endError
	endNotFound
	endPanic
	endGoexit
	endSame // NotModified
	endCtx  // it obeyed
)

// briefly is a TTL that loads set by themselves.
const briefly = 60 * time.Millisecond

// value is what a load or a Set has brought; its number is what callers get.
type value struct {
	n        int
	key      *register
	src      int
	loads    []*load
	unstored bool
	owner    *call // nil: anybody may have it
}

// loader returns the loader that call c gives to the guard.
func (c *call) loader() func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) { return c.load(ctx, nil) }
}

func (c *call) load(ctx context.Context, about *stampede.Load[int]) (int, error) {
	w := c.pod.w
	l := &load{call: c, ctx: ctx, about: about, orders: make(chan order, 1), ended: -1, obeys: c.obeys, begunAt: w.now()}
	w.mu.Lock()
	w.inbox.begun = append(w.inbox.begun, l)
	w.mu.Unlock()
	var done <-chan struct{}
	if l.obeys {
		done = ctx.Done()
	}
	for {
		select {
		case <-c.pod.crash:
			<-c.pod.gone
			return 0, errGone
		case <-done:
			w.mu.Lock()
			l.how, l.err, l.cause = endCtx, ctx.Err(), context.Cause(ctx)
			w.inbox.ended = append(w.inbox.ended, l)
			w.mu.Unlock()
			return 0, ctx.Err()
		case o := <-l.orders:
			if o.release {
				about.ReleaseWaiters()
				continue
			}
			return o.obey(about)
		}
	}
}

func (o order) obey(about *stampede.Load[int]) (int, error) {
	if about != nil {
		if o.unsaved {
			about.DoNotStore()
		}
		if o.private {
			about.DoNotShare()
		}
		if o.brief {
			about.TTL(briefly)
		}
		about.Tags(o.tags...)
	}
	switch o.how {
	case endError:
		return 0, o.err
	case endNotFound:
		return 0, fmt.Errorf("nothing there: %w", stampede.ErrNotFound)
	case endPanic:
		panic(o.err)
	case endGoexit:
		runtime.Goexit()
	case endSame:
		return about.NotModified()
	}
	return o.value, nil
}

// loadError is a loader's own error.
type loadError struct{ load *load }

func (e *loadError) Error() string { return fmt.Sprintf("load %d failed", e.load.n) }

func (w *world) loadBegan(l *load) {
	c := l.call
	w.loadSeq++
	l.n, l.begun = w.loadSeq, w.step
	if owner, _ := l.ctx.Value(callKey{}).(*call); owner != c {
		w.fail("load %d: its ctx does not have the values of the caller whose loader it is", l.n)
	}
	if l.grant = c.leads; l.grant != nil {
		c.leads = nil
		l.grant.key.loads = append(l.grant.key.loads, l)
		if l.grant.needless {
			w.fail("P1: load %d of %s was elected although a value that nobody asked to replace was fresh", l.n, c.key.name)
		}
	}
	if l.about != nil && l.about.Leased() != (l.grant != nil) {
		w.fail("load %d: Leased() = %v", l.n, l.about.Leased())
	}
	if l.grant == nil {
		w.checkUnleased(l)
	}
	c.mustLoad = false
	w.loads, w.all = append(w.loads, l), append(w.all, l)
	w.saw(sawLoad)
	if l.grant == nil {
		w.saw(sawUnleased)
	}
	w.note("pod %d: load %d of %s begins for call %d, leased: %v", c.pod.n, l.n, c.key.name, c.id, l.grant != nil)
}

// endLoad orders a load to end.
func (w *world) endLoad(l *load, o order) {
	l.how, l.err, l.stores = o.how, o.err, (o.how == endValue || o.how == endSame) && !o.unsaved && !o.private && !l.released
	if !l.read {
		w.readSource(l)
	}
	l.tags = w.pickTags(l)
	o.tags = l.tags
	var v *value
	switch o.how {
	case endValue:
		v = &value{n: len(w.values), key: l.call.key, src: l.source, unstored: o.unsaved || o.private || l.released}
		w.values = append(w.values, v)
	case endSame:
		n, _ := l.about.Previous()
		v = w.values[n]
	}
	if v != nil {
		if (o.private || l.released) && v.owner == nil {
			v.owner = l.call
		}
		v.loads = append(v.loads, l)
		l.value, o.value = v.n, v.n
	}
	w.note("load %d ends: %s, value %d", l.n, endNames[o.how], l.value)
	if l.ttl = w.cfg.opts.Policy.TTL; o.brief {
		l.ttl = briefly
	}
	l.cause = context.Cause(l.ctx) // before the guard ends it
	l.orders <- o
	w.loadEnded(l)
}

var endNames = [...]string{"value", "error", "not found", "panic", "goexit", "not modified", "ctx"}

// loadEnded takes a load off the list of those that run.
func (w *world) loadEnded(l *load) {
	l.ended = w.step
	w.loads = slices.DeleteFunc(w.loads, func(x *load) bool { return x == l })
	p := l.call.pod
	if !l.stores {
		p.quieten(l.call.key)
	}
	if l.how == endCtx {
		w.note("load %d ends with its ctx: %v", l.n, l.cause)
	}
	// Nobody but a load that is one caller's own ends because its caller leaves.
	own := l.grant == nil && w.cfg.private
	if l.cause != nil && !own && !errors.Is(l.cause, stampede.ErrLoadTimeout) && !(l.taken && errors.Is(l.cause, stampede.ErrLeaseLost)) {
		w.fail("P6: the ctx of load %d had ended with %v before the load did", l.n, l.cause)
	}
}

// readSource lets a load see what the source holds now.
func (w *world) readSource(l *load) {
	l.read, l.source = true, l.call.key.source
	w.note("load %d reads source %d", l.n, l.source)
}

// givenUp says whether the guard need not reckon with the load any more.
func (w *world) givenUp(l *load) bool {
	return l.call.pod.crashed || l.released || w.now()-l.begunAt >= w.cfg.opts.LoadTimeout
}
