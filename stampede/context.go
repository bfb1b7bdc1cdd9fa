package stampede

import (
	"context"
	"sync"
	"time"
)

// stepCtx is the ctx of one step of the store: the parent's, with a deadline that comes no later than
// the parent's own. It is context.WithDeadline without a timer, which on the read path would cost more
// than a hit in memory, for as long as nobody asks for Done: most stores look at the deadline only.
type stepCtx struct {
	context.Context
	at time.Time

	mu     sync.Mutex // protects what follows
	timed  context.Context
	cancel context.CancelFunc
}

// within returns a ctx that ends at the given time or with ctx, whichever is first. Call release when
// the step is over.
func within(ctx context.Context, at time.Time) *stepCtx {
	if d, ok := ctx.Deadline(); ok && d.Before(at) {
		at = d
	}
	return &stepCtx{Context: ctx, at: at}
}

func (s *stepCtx) Deadline() (time.Time, bool) { return s.at, true }

func (s *stepCtx) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timed == nil {
		s.timed, s.cancel = context.WithDeadline(s.Context, s.at)
	}
	return s.timed.Done()
}

func (s *stepCtx) Err() error {
	if err := s.Context.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timed != nil {
		return s.timed.Err()
	}
	if !time.Now().Before(s.at) {
		return context.DeadlineExceeded
	}
	return nil
}

func (s *stepCtx) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel != nil {
		s.cancel()
	}
}

// over returns ctx's error. It does not wait for ctx's timer to notice that its deadline has passed.
func over(ctx context.Context) error {
	if d, ok := ctx.Deadline(); ok && ctx.Err() == nil && !time.Now().Before(d) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}
