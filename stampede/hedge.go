package stampede

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// This file is the hedged load (Options.Hedge): when the load that callers wait for takes much longer than
// loads usually do, one more pod loads beside it. The first value that is stored serves all.
//
// Why that overwrites nothing that is newer. A hedge begins after an election has found the lease of the
// other load, and its commit is accepted only as long as that very lease, or the marker that its holder
// left, stands (Store.CommitMarked). A Commit, Delete, Set or Expire ends the lease. So nothing was
// committed, deleted, set or expired since the hedge began. Of the two loads the one that commits first ends
// the lease, and with it the right of the other.
//
// Why it is one in the fleet. A hedge holds the lease of a key of its own, like a seat, for as long as it
// loads.

// hedgeSpace makes the space of these keys, see seatSpace.
const hedgeSpace = "@@hedge"

// usual is how long the guard's loads in this pod take, smoothed. Where there is an entry, it has a
// duration of its own.
type usual struct{ took atomic.Int64 }

func (u *usual) saw(took time.Duration) {
	if old := time.Duration(u.took.Load()); old > 0 {
		took = old + (took-old)/8
	}
	u.took.Store(int64(took))
}

// untilHedge is how long to wait until the load that is followed takes too long; ok is false if it never
// does. Only the time since this pod has begun to follow it counts: when it began, no clock says.
func (j *job[T]) untilHedge(w *vigil, el *Election) (d time.Duration, ok bool) {
	took := el.Entry.Took
	if took <= 0 {
		took = time.Duration(j.g.usual.took.Load())
	}
	if j.g.opts.Hedge == 0 || took <= 0 || w.hedged == el.Lease {
		return 0, false
	}
	most := time.Duration(min(j.g.opts.Hedge*float64(took), float64(maxTTL)))
	if w.since.IsZero() || w.followed[len(w.followed)-1] != el.Lease {
		return most, true
	}
	return most - time.Since(w.since), true
}

// hedge loads beside the holder of a lease that takes too long, unless another pod does.
func (j *job[T]) hedge(w *vigil, el *Election) (out outcome[T], ok bool) {
	if d, ok := j.untilHedge(w, el); !ok || d > 0 {
		return out, false
	}
	c, err := j.claim(Key{j.g.space + hedgeSpace, j.k.Key}, false)
	if c == nil || err != nil {
		return out, false
	}
	defer j.g.unclaim(c)
	j.g.events.emit(EventHedge, j.k.Key, time.Since(w.since), nil)
	ctx, loaded := context.WithCancel(j.ctx)
	defer loaded()
	j.g.life.more()
	go func() {
		defer j.g.life.leave()
		j.lookOut(ctx, w.watch)
	}()
	if out = j.loadAlone(w, el.Lease); out.kind == gotError { // that is no answer as long as the other load goes on
		w.hedged = el.Lease
		return out, false
	}
	return out, true
}

// lookOut tells the callers of a flight that loads what another pod stores meanwhile, until ctx ends.
func (j *job[T]) lookOut(ctx context.Context, watch Watch) {
	for {
		poll := time.NewTimer(maxPoll/2 + rand.N(maxPoll))
		select {
		case <-ctx.Done():
			poll.Stop()
			return
		case <-watch.C():
		case <-poll.C:
		}
		poll.Stop()
		j.tellStored(ctx)
	}
}
