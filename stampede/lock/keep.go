package lock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/herdgate/herdgate/internal/renew"
)

// Keep renews the lock until stop is called or it is released: each time a third of its lease is over. It
// returns a ctx that is ctx's child and ends when the lock is lost, at the latest when it may be, that is when
// its validity is over without a renewal; context.Cause then is a [*LostError]. It ends in the same way, with
// reason HoldLimit, once the lock was held for Options.MaxHold, and with reason Closed when the Locker is closed.
// With Release it ends as well: the cause then is ErrReleased. The end of ctx ends the child, but not the renewals:
// the holder may need the lock to tidy up. So call stop or Release, whatever happens.
func (l *Lock) Keep(ctx context.Context) (held context.Context, stop func()) {
	if !l.valid() {
		ctx, cancel := context.WithCancelCause(ctx)
		cancel(errNotAcquired)
		return ctx, func() {}
	}
	k := &keeper{l: l}
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, heldKey{}, &holding{l, holder(ctx)}))
	k.cancel = cancel
	l.mu.Lock()
	lost, deadline := l.over(), l.deadline
	if lost == nil {
		l.keepers = append(l.keepers, k)
	}
	l.mu.Unlock()
	if lost != nil {
		cancel(lost)
		return ctx, func() {}
	}
	k.start(ctx, deadline)
	return ctx, func() {
		l.forget(k)
		k.end(nil)
	}
}

// forget takes out k, which has been stopped.
func (l *Lock) forget(k *keeper) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.keepers, k); i >= 0 {
		l.keepers = slices.Delete(l.keepers, i, i+1)
	}
}

// keeper is the watchdog of a lock.
type keeper struct {
	l      *Lock
	cancel context.CancelCauseFunc

	mu      sync.Mutex // protects what follows
	stopped bool
	dog     *renew.Watchdog
	expiry  *time.Timer // fires when the lock's validity is over
	limit   *time.Timer // fires at Options.MaxHold; may be nil
	unclose func()      // no more care about the locker's end
	failed  bool        // the last renewal
	why     error       // what it failed with
}

func (k *keeper) start(ctx context.Context, deadline time.Time) {
	l := k.l
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped {
		return
	}
	k.expiry = time.AfterFunc(time.Until(deadline), k.expire)
	if m := l.lk.opt.MaxHold; m > 0 {
		k.limit = time.AfterFunc(m-time.Since(l.acquired), k.overLimit)
	}
	k.dog = renew.StartAt(ctx, k.dueFor(deadline), k.due, k.renew)
	k.unclose = l.lk.whenClosed(k.closed)
}

// dueFor is when a lock that ends at deadline is to be renewed: counted from there, so that what was late
// once does not make all that follows late.
func (k *keeper) dueFor(deadline time.Time) time.Time { return deadline.Add(-2 * k.l.ttl / 3) }

// due is when to renew next: soon, when the last renewal failed.
func (k *keeper) due(time.Time) time.Time {
	k.mu.Lock()
	failed := k.failed
	k.mu.Unlock()
	k.l.mu.Lock()
	deadline := k.l.deadline
	k.l.mu.Unlock()
	if failed {
		now := time.Now()
		return now.Add(min(max(deadline.Sub(now)/8, 5*time.Millisecond), time.Second))
	}
	return k.dueFor(deadline)
}

// renew reports whether to go on.
func (k *keeper) renew(ctx context.Context) bool {
	l := k.l
	timeout := min(l.lk.timeoutFor(l.ttl), max(l.ttl/4, 10*time.Millisecond))
	l.mu.Lock()
	over, early := l.over() != nil, time.Until(k.dueFor(l.deadline)) > 0
	l.mu.Unlock()
	if over {
		return false
	}
	k.mu.Lock()
	early = early && !k.failed // else it was extended by hand
	k.mu.Unlock()
	if early {
		return true
	}
	err := l.extend(ctx, l.ttl, timeout)
	k.mu.Lock()
	k.failed, k.why = err != nil, err
	k.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over() == nil
}

// expire is called when the validity may be over.
func (k *keeper) expire() {
	k.l.mu.Lock()
	left := time.Until(k.l.deadline)
	k.l.mu.Unlock()
	k.mu.Lock()
	if k.stopped {
		k.mu.Unlock()
		return
	}
	if left > 0 {
		k.expiry.Reset(left)
		k.mu.Unlock()
		return
	}
	why := k.why
	k.mu.Unlock()
	_ = k.l.lose(Expired, why)
}

// overLimit ends the ctx and the renewals. The lock is held for the rest of its lease, whose end is a loss.
func (k *keeper) overLimit() {
	k.mu.Lock()
	stopped := k.stopped
	k.dog.Stop()
	k.mu.Unlock()
	if !stopped {
		k.part(HoldLimit)
	}
}

// closed ends all. The lock is held for the rest of its lease.
func (k *keeper) closed() {
	if k.stop() {
		k.part(Closed)
	}
}

// part ends the ctx of a lock that is held for the rest of its lease.
func (k *keeper) part(why Reason) {
	l := k.l
	l.mu.Lock()
	if l.over() != nil {
		l.mu.Unlock()
		return
	}
	e := &LostError{Name: l.Name(), Reason: why, Held: l.deadline, Found: time.Now()}
	told := l.told
	l.told = true
	l.mu.Unlock()
	k.cancel(e)
	if !told {
		l.lk.events.emit(Event{Kind: EventLost, Lock: l.Name(), Err: e})
	}
}

// end ends all, and the ctx with a cause.
func (k *keeper) end(cause error) {
	k.stop()
	k.cancel(cause)
}

// stop ends all but the ctx. It reports whether there was anything to end.
func (k *keeper) stop() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped {
		return false
	}
	k.stopped = true
	if k.dog == nil {
		return true // start comes later, and does nothing
	}
	k.dog.Stop()
	k.expiry.Stop()
	if k.limit != nil {
		k.limit.Stop()
	}
	k.unclose()
	return true
}

type heldKey struct{}

// holding is a lock that a ctx belongs to, and those around it.
type holding struct {
	l  *Lock
	up *holding
}

func holder(ctx context.Context) *holding {
	h, _ := ctx.Value(heldKey{}).(*holding)
	return h
}

// FromContext returns the lock that ctx was made for by Do or [Lock.Keep], the innermost if there are
// several, or nil.
func FromContext(ctx context.Context) *Lock {
	if h := holder(ctx); h != nil {
		return h.l
	}
	return nil
}

// holds says whether ctx belongs to a holder of the lock of this name.
func holds(ctx context.Context, lk *Locker, name string) bool {
	for h := holder(ctx); h != nil; h = h.up {
		if h.l.lk == lk && h.l.keys.name == name && h.l.Validity() > 0 {
			return true
		}
	}
	return false
}
