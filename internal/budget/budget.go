// Package budget lets several calls of a guard, made for one request, share what the store may cost it.
package budget

import (
	"context"
	"sync/atomic"
	"time"
)

// Spent is what the calls have cost so far. A nil *Spent keeps no account.
type Spent struct{ ns atomic.Int64 }

type key struct{}

// Key finds the *Spent of a ctx as its Value.
var Key any = key{}

// Of returns what is shared by the calls that are made with ctx, nil if nothing is.
func Of(ctx context.Context) *Spent {
	s, _ := ctx.Value(key{}).(*Spent)
	return s
}

// Add adds the cost of a step.
func (s *Spent) Add(d time.Duration) {
	if s != nil {
		s.ns.Add(int64(d))
	}
}

// Left is what is left of a budget, at least a nanosecond.
func (s *Spent) Left(of time.Duration) time.Duration {
	if s == nil {
		return of
	}
	return max(of-time.Duration(s.ns.Load()), 1)
}
