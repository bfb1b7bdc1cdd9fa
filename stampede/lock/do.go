package lock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Do acquires the lock of name, as [Locker.Acquire] does, runs fn, and releases the lock on every path: also
// when fn returns an error, panics, or calls runtime.Goexit, and when ctx is cancelled. Meanwhile the lock is
// renewed, as [Lock.Keep] does, so ttl may be much shorter than fn: it is how long others are locked out
// after this process has died. fn's ctx ends when the lock is lost; FromContext(ctx) in fn is the lock, which
// has the fencing number.
//
// Do returns what fn returned, whatever became of the release. There is one exception: when fn's ctx had
// ended because the lock was lost, and fn returned nil or the error of its ctx, Do returns the *[LostError] (and the
// error of fn). What fn has done stands all the same. An error without fn having run is that of Acquire.
//
// Do does not promise that fn runs once, or that no other fn runs at the same time: a process that is paused for
// longer than ttl goes on in the middle of fn, and finds out later.
func (lk *Locker) Do(ctx context.Context, name string, ttl time.Duration, fn func(ctx context.Context) error) error {
	if fn == nil {
		return about(name, fmt.Errorf("%w: fn is nil", ErrMisuse))
	}
	l, err := lk.Acquire(ctx, name, ttl)
	if err != nil {
		return err
	}
	held, stop := l.Keep(ctx)
	defer func() {
		stop()
		_ = l.Release(ctx) // events tell
	}()
	err = fn(held)
	var lost *LostError
	if context.Cause(ctx) != nil || !errors.As(context.Cause(held), &lost) {
		return err // the loss of a lock that ctx stands for is its holder's
	}
	switch {
	case err == nil:
		return lost
	case errors.Is(err, ErrLost):
		return err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", lost, err)
	}
	return err
}
