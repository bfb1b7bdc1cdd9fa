package modeltest

import (
	"context"
	"slices"
	"strings"

	"github.com/herdgate/herdgate/stampede"
)

// A guard claims seats for its loads and the right to hedge as leases of keys in spaces of their own. They
// bear on who loads, not on what may be stored: their store answers at once.

func isClaim(k stampede.Key) bool { return strings.Contains(k.Space, "@@") }

func (p *pod) claim(ctx context.Context, k stampede.Key, b stampede.Ballot) (stampede.Election, error) {
	select {
	case <-p.crash:
		<-p.gone
		return stampede.Election{}, errGone
	default:
	}
	w := p.w
	el, err := w.claims.Elect(ctx, k, b)
	if c, _ := ctx.Value(callKey{}).(*call); c != nil && el.Role == stampede.RoleLeader && strings.HasSuffix(k.Space, "@@hedge") {
		w.mu.Lock()
		w.hedges = append(w.hedges, c)
		w.mu.Unlock()
	}
	return el, err
}

// mayHedge says whether a call has got the right to hedge.
func (w *world) mayHedge(c *call) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Contains(w.hedges, c)
}
