package lock_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/stampede/lock"
)

// bubbleNode is a Redis in a synctest bubble, whose clock is the bubble's, set off by some time.
type bubbleNode struct {
	*miniredis.Miniredis
	down atomic.Bool // connections are cut, and refused
}

// newBubbleNode starts one. It has to be called in the bubble.
func newBubbleNode(t *testing.T, offset time.Duration) *bubbleNode {
	n := &bubbleNode{Miniredis: miniredis.NewMiniRedis()}
	t.Cleanup(n.Close)
	n.setOff(offset)
	n.ClockTTL(true)
	return n
}

// setOff puts the clock forward or back. It stands still from then on, but for advance.
func (n *bubbleNode) setOff(offset time.Duration) {
	if offset != 0 {
		n.SetTime(time.Now().Add(offset))
	}
}

func (n *bubbleNode) client(t *testing.T, addr string) *redis.Client {
	rdb := redis.NewClient(&redis.Options{
		Addr: addr, Protocol: 2, DisableIdentity: true,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			if n.down.Load() {
				return nil, &net.OpError{Op: "dial", Err: net.ErrClosed}
			}
			c, err := n.Dial()
			return &cuttable{c, n}, err
		},
	})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// cuttable is a connection that is silent while its node is down: what is sent vanishes.
type cuttable struct {
	net.Conn
	n *bubbleNode
}

func (c *cuttable) Write(b []byte) (int, error) {
	if c.n.down.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// bubbleLocker is a Locker on one such node.
func bubbleLocker(t *testing.T, o *lock.Options) (*lock.Locker, *bubbleNode) {
	n := newBubbleNode(t, 0)
	lk, err := lock.New(o, n.client(t, "127.0.0.1:1"))
	must(t, err)
	t.Cleanup(func() { must(t, lk.Close()) })
	return lk, n
}
