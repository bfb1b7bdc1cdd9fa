package lock

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// identities tells several servers apart: two clients may reach the same one under two names, and a lock that it
// granted twice would count as two shares. A server says who it is by its run id.
type identities struct {
	mu    sync.Mutex // protects what follows
	known []string   // by node; empty until it has said who it is
	asked bool       // all have been asked once
}

var runID = regexp.MustCompile(`(?m)^run_id:([0-9a-f]+)`)

// identify asks the servers that have not said yet who they are, and returns an ErrMisuse when two of them are
// one. A server that does not answer is asked again before it counts: see [node.identify]. Only the first call
// waits for all of them.
func (lk *Locker) identify(ctx context.Context) error {
	ids := &lk.identities
	ids.mu.Lock()
	asked := ids.asked
	ids.mu.Unlock()
	if asked {
		return nil
	}
	answers := make(chan error, len(lk.nodes))
	if !lk.onAll(func(n *node) { answers <- n.identify() }) {
		return ErrClosed
	}
	var same error
	for range lk.nodes {
		select {
		case err := <-answers:
			if errors.Is(err, ErrMisuse) {
				same = err
			}
		case <-ctx.Done():
			return ended(ctx)
		}
	}
	if same == nil {
		ids.mu.Lock()
		ids.asked = true
		ids.mu.Unlock()
	}
	return same
}

// identify makes sure that no other node reaches the same server. What cannot say who it is, for want of the
// right to run INFO, say, counts as another one.
func (n *node) identify() error {
	ids := &n.lk.identities
	ids.mu.Lock()
	known := ids.known[n.i] != ""
	ids.mu.Unlock()
	if known {
		return nil
	}
	id, err := ask(context.Background(), n, "", n.lk.timeoutFor(MaxLease), func(ctx context.Context) (string, error) {
		info, err := n.rdb.Info(ctx, "server").Result()
		if m := runID.FindStringSubmatch(info); m != nil {
			return m[1], nil
		}
		if err == nil || redis.HasErrorPrefix(err, "NOPERM") || redis.HasErrorPrefix(err, "unknown command") ||
			strings.Contains(err.Error(), "not supported") {
			return fmt.Sprintf("unknown %d", n.i), nil
		}
		return "", err
	}, nil)
	if err != nil {
		return err
	}
	ids.mu.Lock()
	defer ids.mu.Unlock()
	for i, other := range ids.known {
		if other == id && i != n.i {
			// Both are asked again: what a name stands for may change.
			ids.known[i], ids.asked = "", false
			return fmt.Errorf("%w: clients %d and %d reach one server, whose run id is %s", ErrMisuse, min(i, n.i), max(i, n.i), id)
		}
	}
	ids.known[n.i] = id
	return nil
}
