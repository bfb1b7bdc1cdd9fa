package lock

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"time"

	"github.com/herdgate/herdgate/internal/leases"
)

// fenceKept is how long a fencing number is kept after the server's clock has passed it. It may step back
// by so much without a number coming twice.
const fenceKept = 30 * 24 * time.Hour

var fenceKeptMillis any = fenceKept.Milliseconds()

// newToken returns what an attempt to acquire is known by: random, never used twice.
func newToken() string {
	var t [leases.TokenSize]byte
	_, _ = rand.Read(t[:]) // never fails
	return string(t[:])
}

// try asks once. Without the lock it returns, besides the error, for how long others hold it, 0 if
// that is not known. With one server, process, if it is not empty, stands in the queue of those who wait then.
func (lk *Locker) try(ctx context.Context, k *keys, ttl time.Duration, process string) (*Lock, time.Duration, error) {
	if len(lk.nodes) > 1 {
		return lk.tryAll(ctx, k, ttl)
	}
	n, token, begun := lk.nodes[0], any(newToken()), time.Now()
	g, err := n.acquire(ctx, k, token, ttl, process)
	switch {
	case err != nil:
		return nil, 0, about(k.name, err)
	case g.stamp == "":
		lk.events.emit(Event{Kind: EventHeld, Lock: k.name})
		return nil, g.left, about(k.name, ErrNotAcquired)
	}
	l := &Lock{
		lk: lk, keys: k, token: token, ttl: ttl, fence: g.fence, acquired: begun,
		held: begun, deadline: begun.Add(ttl - drift(ttl)), latest: begun.Add(lk.opt.Timeout + ttl),
	}
	l.one[0].stamp = g.stamp
	l.shares = l.one[:]
	if !time.Now().Before(l.deadline) {
		// The answer took as long as the lease.
		lk.giveBack(n, k, token, begun.Add(2*ttl))
		return nil, 0, about(k.name, unavailable(fmt.Errorf("granting took longer than the lease of %v", ttl)))
	}
	return l, 0, nil
}

// grant is what a single server answers: a stamp and a number, or for how long another holds the lock.
type grant struct {
	stamp string
	fence uint64
	left  time.Duration
}

func (n *node) acquire(ctx context.Context, k *keys, token any, ttl time.Duration, process string) (grant, error) {
	lk := n.lk
	return ask(ctx, n, k.name, lk.opt.Timeout, func(ctx context.Context) (g grant, err error) {
		reply, err := acquireScript.Run(ctx, n.rdb, 3, []any{
			0, 0, 0, k.lock, k.fence, k.channel, token, leases.Millis(ttl), fenceKeptMillis, process,
		}).Result()
		switch r := reply.(type) {
		case string:
			if len(r) > leases.StampSize {
				g.stamp = r[:leases.StampSize]
				g.fence, err = strconv.ParseUint(r[leases.StampSize:], 10, 64)
			}
		case int64:
			g.left = millis(r)
			return g, nil
		}
		if unknown(err) {
			lk.giveBack(n, k, token, time.Now().Add(ttl+lk.opt.Timeout))
		}
		if err == nil && g.stamp == "" {
			err = fmt.Errorf("acquire answered %v", reply)
		}
		return g, err
	}, func(g grant) {
		if g.stamp != "" { // the caller has gone
			lk.giveBack(n, k, token, time.Now().Add(ttl+lk.opt.Timeout))
		}
	})
}

// millis is the duration of a PTTL, 0 if there is no end.
func millis(n int64) time.Duration {
	return time.Duration(min(max(n, 0), maxDuration.Milliseconds())) * time.Millisecond
}
