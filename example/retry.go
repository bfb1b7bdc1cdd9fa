package main

import (
	"context"
	"time"
)

// retry calls f until it returns nil, with growing pauses, and returns its last error when ctx ends.
func retry(ctx context.Context, f func(context.Context) error) error {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := f(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}
