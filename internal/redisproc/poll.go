package redisproc

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const pollEvery = 10 * time.Millisecond

// poll calls check until it returns nil. When ctx ends first, the error says what was awaited and what check said last.
func poll(ctx context.Context, what string, check func(context.Context) error) error {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		// A check that the end of ctx cut short has less to say than the one before.
		if last == nil || !isTimeout(err) {
			last = err
		}
		var final finalError
		if errors.As(err, &final) {
			return fmt.Errorf("redisproc: waiting for %s: %w", what, final.error)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("redisproc: waiting for %s: %w (last: %w)", what, context.Cause(ctx), last)
		case <-ticker.C:
		}
	}
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// finalError makes poll give up.
type finalError struct{ error }
