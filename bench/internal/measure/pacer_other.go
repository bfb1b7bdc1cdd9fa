//go:build !linux

package measure

import "time"

// Pacer waits for moments in time, as precisely as Go's timers do.
type Pacer struct{}

// NewPacer returns a Pacer. It must be closed.
func NewPacer() (*Pacer, error) { return new(Pacer), nil }

// Sleep returns when d has passed.
func (*Pacer) Sleep(d time.Duration) { time.Sleep(d) }

// Close frees the timer.
func (*Pacer) Close() error { return nil }
