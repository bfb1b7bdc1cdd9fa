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
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		var final finalError
		if errors.As(err, &final) {
			return fmt.Errorf("redisproc: waiting for %s: %w", what, final.error)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("redisproc: waiting for %s: %w (last: %w)", what, context.Cause(ctx), err)
		case <-ticker.C:
		}
	}
}

// finalError makes poll give up.
type finalError struct{ error }
