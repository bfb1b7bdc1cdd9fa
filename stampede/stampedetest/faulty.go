package stampedetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// Faulty is a [stampede.Store] that does to its calls what a network and a server under stress do,
// when the test says so. Without faults it is the store that it wraps. It is safe for concurrent
// use, and starts no goroutine but one for each open Watch.
//
// Each pod can have a Faulty of its own over one store, so that they meet different fates; see [Fleet].
type Faulty struct {
	store stampede.Store

	mu sync.Mutex // protects all that follows

	script   func(Call) Fault
	next     map[Step][]Fault
	calls    map[Step]int
	keyCalls map[Step]map[stampede.Key]int
	executed map[Step]int
	ghosts   []ghost // leases to be given back

	down    error         // what every call returns meanwhile
	hanging bool          // calls wait
	turned  chan struct{} // closed, and replaced, by each Down, Hang and Up
	up      chan struct{} // closed by Up; nil when up
	mute    bool
	watches map[*faultyWatch]bool
}

// ghost is a lease whose leader does not know of it.
type ghost struct {
	key   stampede.Key
	lease stampede.Stamp
}

var _ stampede.Store = (*Faulty)(nil)

// NewFaulty wraps store.
func NewFaulty(store stampede.Store) *Faulty {
	return &Faulty{
		store: store, next: map[Step][]Fault{},
		calls: map[Step]int{}, keyCalls: map[Step]map[stampede.Key]int{}, executed: map[Step]int{},
		turned: make(chan struct{}), watches: map[*faultyWatch]bool{},
	}
}

// Script lets decide decide what becomes of each call from now on; nil: nothing. It replaces an earlier
// one. decide may be called by many goroutines at once.
func (f *Faulty) Script(decide func(Call) Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.script = decide
}

// Next prepares faults for the next calls of step, one each. They come before the script.
func (f *Faulty) Next(step Step, faults ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next[step] = append(f.next[step], faults...)
}

// Down lets every call return err from now on, unexecuted; nil means [stampede.ErrUnavailable].
// Watches have lost their subscription, and Drops tell nothing.
func (f *Faulty) Down(err error) {
	if err == nil {
		err = stampede.ErrUnavailable
	}
	f.mu.Lock()
	if f.up == nil {
		f.up = make(chan struct{})
	}
	watches := f.turn(err, false)
	f.mu.Unlock()
	tellAll(watches)
}

// Hang lets every call wait from now on: until Up, when it is executed, or until its ctx ends, when it
// is not. Watches and Drops tell nothing meanwhile.
func (f *Faulty) Hang() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.up == nil {
		f.up = make(chan struct{})
	}
	f.turn(nil, true)
}

// Up ends Down and Hang. Watches are told of a change, as after any loss of a subscription.
func (f *Faulty) Up() {
	f.mu.Lock()
	up := f.up
	f.up = nil
	watches := f.turn(nil, false)
	f.mu.Unlock()
	if up != nil {
		close(up)
		tellAll(watches)
	}
}

// turn changes the state and returns the open watches. The mutex is held.
func (f *Faulty) turn(down error, hanging bool) (watches []*faultyWatch) {
	f.down, f.hanging = down, hanging
	close(f.turned)
	f.turned = make(chan struct{})
	for w := range f.watches {
		watches = append(watches, w)
	}
	return watches
}

// Mute lets Watches and Drops tell nothing, without anybody knowing, as long as it is on: lost pushes.
func (f *Faulty) Mute(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mute = on
}

// Calls returns how many calls of step were made so far, whatever became of them.
func (f *Faulty) Calls(step Step) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[step]
}

// Executed returns how many calls of step reached the store behind. Copies are not counted.
func (f *Faulty) Executed(step Step) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.executed[step]
}

// arrive counts a call and decides what becomes of it.
func (f *Faulty) arrive(c *Call) Fault {
	f.mu.Lock()
	f.calls[c.Step]++
	if f.keyCalls[c.Step] == nil {
		f.keyCalls[c.Step] = map[stampede.Key]int{}
	}
	f.keyCalls[c.Step][c.Key]++
	c.N, c.KeyN = f.calls[c.Step], f.keyCalls[c.Step][c.Key]
	if next := f.next[c.Step]; len(next) > 0 {
		f.next[c.Step] = next[1:]
		f.mu.Unlock()
		return next[0]
	}
	script := f.script
	f.mu.Unlock()
	if script == nil {
		return Fault{}
	}
	return script(*c)
}

// execute makes a call and lets its fate take its course.
func execute[R any](ctx context.Context, f *Faulty, c Call, exec func(context.Context) (R, error)) (answer R, err error) {
	var none R
	fault := f.arrive(&c)
	fault.Copy.keep(func(ctx context.Context) error { _, err := exec(ctx); return err })
	patience := ctx
	if fault.Deaf {
		patience = context.WithoutCancel(ctx)
	}
	if err := f.before(patience, &fault); err != nil {
		return none, f.unanswered(c, err)
	}
	if fault.Err != nil {
		return none, fault.Err
	}
	f.giveBack(ctx)
	if fault.Full != nil {
		_ = f.store.Release(ctx, c.Key, c.Lease, stampede.Pass{}) // changes nothing for other steps than Commit
		if verdict, ok := any(&none).(*stampede.Verdict); ok {
			*verdict = stampede.NotStored
		}
		return none, fault.Full
	}
	f.loseLease(ctx, c.Key, c.Lease, &fault)
	f.mu.Lock()
	f.executed[c.Step]++
	f.mu.Unlock()
	if answer, err = exec(ctx); err != nil {
		return answer, err
	}
	el, _ := any(answer).(stampede.Election)
	if el.Role == stampede.RoleLeader {
		f.loseLease(ctx, c.Key, el.Lease, &fault)
	}
	if err := fault.Reply.wait(patience); err != nil {
		fault.Lost = errors.Join(fault.Lost, err)
	}
	if fault.Lost == nil {
		return answer, nil
	}
	if el.Role == stampede.RoleLeader && !fault.Ghost {
		f.mu.Lock()
		f.ghosts = append(f.ghosts, ghost{c.Key, el.Lease})
		f.mu.Unlock()
	}
	return none, f.unanswered(c, fault.Lost)
}

// before is what a call has to go through before it is executed.
func (f *Faulty) before(ctx context.Context, fault *Fault) error {
	if err := f.answers(ctx); err != nil {
		return err
	}
	if fault.Delay > 0 {
		timer := time.NewTimer(fault.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := fault.Gate.wait(ctx); err != nil {
		return err
	}
	return f.answers(ctx)
}

// answers waits while the store hangs, and returns an error while it is down.
func (f *Faulty) answers(ctx context.Context) error {
	for {
		f.mu.Lock()
		down, hanging, turned := f.down, f.hanging, f.turned
		f.mu.Unlock()
		if down != nil || !hanging {
			return down
		}
		select {
		case <-turned:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// unanswered is the error of a call whose outcome its caller does not know.
func (f *Faulty) unanswered(c Call, err error) error {
	if c.Step == StepSet && !errors.Is(err, stampede.ErrUnavailable) && !errors.Is(err, stampede.ErrOutcomeUnknown) {
		err = fmt.Errorf("%w: %w", stampede.ErrOutcomeUnknown, err)
	}
	return fmt.Errorf("stampedetest: %s: %w", c.Step, err)
}

// loseLease does what EndLease and Steal say. It does nothing without a lease.
func (f *Faulty) loseLease(ctx context.Context, key stampede.Key, lease stampede.Stamp, fault *Fault) {
	if lease == (stampede.Stamp{}) || !fault.EndLease && fault.Steal <= 0 {
		return
	}
	_ = f.store.Release(ctx, key, lease, stampede.Pass{})
	if fault.Steal <= 0 {
		return
	}
	e, err := f.store.Read(ctx, key)
	if err == nil {
		_, _ = f.store.Elect(ctx, key, stampede.Ballot{Token: stampede.NewToken(), Length: fault.Steal, Seen: e.Stamp})
	}
}

// giveBack releases the leases whose answers were lost.
func (f *Faulty) giveBack(ctx context.Context) {
	f.mu.Lock()
	ghosts := f.ghosts
	f.ghosts = nil
	f.mu.Unlock()
	for _, g := range ghosts {
		_ = f.store.Release(context.WithoutCancel(ctx), g.key, g.lease, stampede.Pass{})
	}
}
