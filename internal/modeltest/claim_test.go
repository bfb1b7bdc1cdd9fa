package modeltest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/herdgate/herdgate/stampede"
)

// A guard claims seats for its loads and the right to hedge as leases of keys in spaces of their own. They
// bear on who loads, not on what may be stored: their store answers at once.

func isClaim(k stampede.Key) bool { return strings.Contains(k.Space, "@@") }

// isWarm says whether a key is one with which a pod is taught that what it has no copy of is not stored.
func isWarm(k stampede.Key) bool { return strings.HasPrefix(k.Key, "warm") }

// warm makes the callers of a new pod stand for election without a read.
func (p *pod) warm() {
	for i := range 8 {
		key := fmt.Sprintf("warm %d %d", p.n, i)
		if v, err := p.guard.Get(context.Background(), key, func(context.Context) (int, error) { return 1, nil }); v != 1 || err != nil {
			panic(fmt.Sprint("warm: ", v, err))
		}
	}
}

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
