// Package renew is the watchdog of a lease: it renews on time for as long as it is let.
package renew

import (
	"context"
	"sync"
	"time"
)

// Watchdog renews a lease until it is stopped.
type Watchdog struct {
	due    func(begun time.Time) time.Time
	renew  func(context.Context) bool
	ctx    context.Context
	cancel context.CancelFunc

	mu    sync.Mutex // protects timer
	timer *time.Timer
}

// Start calls renew at the end of every interval, on a goroutine that exists only meanwhile, until
// renew returns false or Stop is called. An interval begins when the renewal before it began, so that
// a slow answer does not eat into the lease. renew's ctx keeps the values of ctx, ends at Stop, and
// not before.
func Start(ctx context.Context, every time.Duration, renew func(context.Context) bool) *Watchdog {
	return StartAt(ctx, time.Now().Add(every), func(begun time.Time) time.Time { return begun.Add(every) }, renew)
}

// StartAt is Start with another idea of when: renew is called first at first, and then when due says,
// which is asked after each renewal and told when that began.
func StartAt(
	ctx context.Context, first time.Time, due func(begun time.Time) time.Time, renew func(context.Context) bool,
) *Watchdog {
	w := &Watchdog{due: due, renew: renew}
	w.ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(time.Until(first), w.tick)
	return w
}

func (w *Watchdog) tick() {
	begun := time.Now()
	if w.ctx.Err() != nil || !w.renew(w.ctx) {
		return
	}
	next := w.due(begun)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() == nil {
		w.timer.Reset(max(time.Until(next), 0))
	}
}

// Stop ends the renewals. It does not wait for one that is under way, whose answer nobody needs any
// more.
func (w *Watchdog) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cancel()
	w.timer.Stop()
}
