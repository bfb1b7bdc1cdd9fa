package redisclient

import (
	"context"
	"time"
)

// Until returns a ctx that has a deadline and nothing else: go-redis sets it on the connection. It is
// never done, so that no timer and no goroutine is needed for it.
func Until(at time.Time) context.Context { return untilCtx{at} }

type untilCtx struct{ at time.Time }

func (c untilCtx) Deadline() (time.Time, bool) { return c.at, true }
func (untilCtx) Done() <-chan struct{}         { return nil }
func (untilCtx) Err() error                    { return nil }
func (untilCtx) Value(any) any                 { return nil }
