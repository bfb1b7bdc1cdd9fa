package lock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/internal/leases"
	"github.com/herdgate/herdgate/internal/redisclient"
)

// node is a server, or a cluster of them.
type node struct {
	lk     *Locker
	i      int
	rdb    redis.UniversalClient
	direct bool // each step of a request is bounded by its deadline, so that nobody need watch over it
}

// ask runs op, one request about the lock of name, within timeout. go-redis looks at a deadline in most
// places but never at a cancel, so when ctx can be cancelled op runs on a goroutine of its own; it goes on
// without the caller, and late gets what it returned then.
func ask[T any](
	ctx context.Context, n *node, name string, timeout time.Duration, op func(context.Context) (T, error), late func(T),
) (T, error) {
	var none T
	if n.lk.closed.Load() {
		return none, ErrClosed
	}
	if at, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(at))
	}
	if ctx.Done() == nil && n.direct {
		v, err := op(redisclient.Until(time.Now().Add(timeout)))
		return v, n.outcome(name, err)
	}
	if err := ctx.Err(); err != nil {
		return none, ended(ctx)
	}
	type answer struct {
		v   T
		err error
	}
	answers := make(chan answer) // unbuffered: either the caller takes it or nobody does
	var expired <-chan time.Time
	if !n.direct {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		expired = timer.C
	}
	gone := make(chan struct{})
	if !n.lk.spawn(func() {
		v, err := op(redisclient.Until(time.Now().Add(timeout)))
		select {
		case answers <- answer{v, err}:
		case <-gone:
			_ = n.outcome(name, err)
			if err == nil && late != nil {
				late(v)
			}
		}
	}) {
		return none, ErrClosed
	}
	select {
	case a := <-answers:
		return a.v, n.outcome(name, a.err)
	case <-expired:
		close(gone)
		return none, unavailable(errTimeout)
	case <-ctx.Done():
		close(gone)
		return none, ended(ctx)
	}
}

var errTimeout = fmt.Errorf("no answer in time: %w", context.DeadlineExceeded)

// outcome tells of a request that failed and makes an ErrUnavailable of what it failed with.
func (n *node) outcome(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case n.lk.closed.Load():
		return ErrClosed
	}
	if c, ok := n.rdb.(*redis.ClusterClient); ok && !answered(err) {
		c.ReloadState(n.lk.ctx) // else go-redis would look for a new master once a minute
	}
	n.lk.events.emit(Event{Kind: EventTrouble, Lock: name, Node: n.i, Err: err})
	return unavailable(err)
}

// ended is the error of a call whose ctx ended, and its cause.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(err, cause) {
		return fmt.Errorf("lock: %w", err)
	}
	return fmt.Errorf("lock: %w: %w", err, cause)
}

// answered says whether err is an answer of Redis, so that what was asked for was not done.
func answered(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

// unsent says whether err came before anything was sent.
func unsent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || errors.Is(err, redis.ErrClosed)
}

// unknown says whether what was asked for may have been done all the same, or may still be.
func unknown(err error) bool { return err != nil && !answered(err) && !unsent(err) }

// renew asks to let a lease last for ttl from now: see the script.
func (n *node) renew(ctx context.Context, k *keys, stamp string, ttl, timeout time.Duration) (int, error) {
	return ask(ctx, n, k.name, timeout, func(ctx context.Context) (int, error) {
		return renewScript.Run(ctx, n.rdb, 1, []any{0, 0, 0, k.lock, stamp, leases.Millis(ttl), "longer"}).Int()
	}, nil)
}

// release ends the lease whose stamp begins with prefix, and reports whether it was held. The caller's ctx
// takes no part: a holder that was cancelled must release all the same.
func (n *node) release(k *keys, prefix any, timeout time.Duration) (held bool, err error) {
	if n.lk.hub != nil {
		held, _, err = n.pass(k, prefix, "")
		return held, err
	}
	return ask(context.Background(), n, k.name, timeout, func(ctx context.Context) (bool, error) {
		ended, err := releaseScript.Run(ctx, n.rdb, 1, []any{0, 0, 0, k.lock, prefix, 0, "0", k.channel}).Int()
		return ended == 1, err
	}, nil)
}

// pass is release, on a single server, where the lock is passed on to one of those who wait. In process,
// if it is not empty, somebody waits. It also reports who is next, if anybody is.
func (n *node) pass(k *keys, prefix any, process string) (held bool, next string, err error) {
	type answer struct {
		held bool
		next string
	}
	a, err := ask(context.Background(), n, k.name, n.lk.opt.Timeout, func(ctx context.Context) (answer, error) {
		reply, err := passScript.Run(ctx, n.rdb, 2, []any{0, 0, 0, k.lock, k.channel, prefix, process}).Result()
		switch r := reply.(type) {
		case int64:
			return answer{r == 1, ""}, err
		case string:
			return answer{true, r}, err
		}
		if err == nil {
			err = fmt.Errorf("pass answered %v", reply)
		}
		return answer{}, err
	}, nil)
	return a.held, a.next, err
}

// forget takes this process out of the queue of those who wait.
func (n *node) forget(k *keys) {
	_, _ = ask(context.Background(), n, k.name, n.lk.opt.Timeout, func(ctx context.Context) (int64, error) {
		return n.rdb.ZRem(ctx, k.channel.(string), n.lk.process).Result()
	}, nil)
}
