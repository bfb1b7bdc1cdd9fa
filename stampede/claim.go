package stampede

import (
	"context"
	"time"

	"github.com/herdgate/herdgate/internal/renew"
)

// claim is the lease of a key that stands for something else than an entry: a seat, a hedge. It is kept
// until it is given back; a pod that died keeps it for one Lease.
type claim struct {
	key   Key
	lease Stamp
	dog   *renew.Watchdog
}

// claim takes the lease of key; it returns nil if somebody else holds it. Its time is on the callers' budget
// if they have not begun to wait.
func (j *job[T]) claim(key Key, onBudget bool) (*claim, error) {
	g := j.g
	c := &job[T]{g: g, ctx: j.ctx, k: key, q: ask[T]{left: j.q.left, shared: j.q.shared}}
	el, err := c.elect(onBudget)
	j.q.left, j.q.spent = c.q.left, j.q.spent+c.q.spent
	if err != nil || el.Role != RoleLeader {
		return nil, err
	}
	return &claim{key, el.Lease, renew.Start(j.ctx, g.opts.Lease/3, func(ctx context.Context) bool {
		step := within(ctx, time.Now().Add(g.opts.Lease/3))
		defer step.release()
		var h Holding
		err := calmly(func() (err error) { h, err = g.store.Renew(step, key, el.Lease, g.opts.Lease); return err })
		return err != nil || h == Held
	})}, nil
}

// unclaim gives a claim back. Nil is none.
func (g *Guard[T]) unclaim(c *claim) {
	if c == nil {
		return
	}
	c.dog.Stop()
	g.aside(c.key.Key, func(ctx context.Context) error { return g.store.Release(ctx, c.key, c.lease, Pass{}) })
}
