package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// errBusy: as many requests as Options.MaxConns allows were under way for all the time there was.
var errBusy = errors.New("redisstore: too many requests under way")

// call is a request to Redis that a caller may leave before it is answered.
type call[T any] struct {
	value T
	err   error
	owner atomic.Bool // set by the first of: request over, caller gone
	done  chan struct{}
}

// begin returns the lane of what is stored under name, or the error to fail with at once.
func (s *Store) begin(ctx context.Context, name string) (*lane, error) {
	if s.closed.Load() {
		return nil, ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("redisstore: %w", err)
	}
	l := s.lanes.of(name)
	return l, l.breaker.allow()
}

// do runs op, which asks Redis about key, on a goroutine of its own, and waits for it no longer than ctx
// and Options.Timeout allow: go-redis looks at a deadline in most places but never at a cancel, and not in
// all. op goes on without the caller until its own ctx ends. late, if not nil, gets what op returned
// when nobody waited for it any more.
func do[T any](
	ctx context.Context, s *Store, key string, op func(context.Context) (T, error), late func(T, error),
) (T, error) {
	l, err := s.begin(ctx, key)
	if err != nil {
		var none T
		return none, err
	}
	return run(ctx, s, l, key, op, late)
}

// run is do without a look at the breaker.
func run[T any](
	ctx context.Context, s *Store, l *lane, key string, op func(context.Context) (T, error), late func(T, error),
) (T, error) {
	var none T
	wait, cancel := s.within(ctx)
	defer cancel()
	select {
	case l.turns <- struct{}{}:
	case <-wait.Done():
		return none, fmt.Errorf("%w: %w", errBusy, s.ended(ctx))
	}
	c := &call[T]{done: make(chan struct{})}
	if !s.spawn(func() {
		defer func() { <-l.turns }()
		ctx, cancel := context.WithTimeout(s.ctx, s.opt.Timeout)
		defer cancel()
		c.value, c.err = op(ctx)
		s.report(l, key, c.err)
		s.notice(c.err)
		if c.owner.CompareAndSwap(false, true) {
			close(c.done)
		} else if late != nil {
			late(c.value, c.err)
		}
	}) {
		<-l.turns
		return none, ErrClosed
	}
	select {
	case <-c.done:
		return c.value, c.err
	case <-wait.Done():
		if c.owner.CompareAndSwap(false, true) {
			return none, s.ended(ctx)
		}
		<-c.done
		return c.value, c.err
	}
}

// within returns a ctx that ends with ctx or Options.Timeout from now, whatever comes first; also if ctx has
// a deadline and is never done, which package context relies on.
func (s *Store) within(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := s.opt.Timeout
	if ctx.Done() == nil {
		if d, ok := ctx.Deadline(); ok {
			limit = min(limit, time.Until(d))
		}
		ctx = context.Background()
	}
	return context.WithTimeout(ctx, limit)
}

// ended is the error of a call that ran out of time: its ctx's, or that Redis did not answer.
func (s *Store) ended(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("redisstore: no answer from Redis: %w", err)
	}
	return errTimeout
}

// wrap names the step that failed, once.
func wrap(step string, key stampede.Key, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("redisstore: %s %q of %s: %w", step, short(key.Key), key.Space, err)
}

// short cuts a key for an error's text.
func short(key string) string {
	const enough = 64
	if len(key) <= enough {
		return key
	}
	return key[:enough] + "..."
}
