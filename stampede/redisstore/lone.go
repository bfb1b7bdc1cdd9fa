package redisstore

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// loneClient reads on the caller's own goroutine, for a caller that is alone: handing the read to
// another goroutine would cost half the throughput, a timer a tenth. Nothing watches over such a read,
// so it must not wait for anything but the connection, which has a deadline. Therefore the client never
// dials on the caller's time: its Dialer hands out a connection that was opened beforehand, or fails at
// once, and the caller takes the other way.
type loneClient struct {
	rdb   *redis.Client
	open  func(ctx context.Context) (net.Conn, error)
	spare chan net.Conn // holds one opened connection at most

	ready   atomic.Bool // there is, or was lately, a connection to read on
	opening atomic.Bool
	closed  atomic.Bool
	opened  chan struct{} // has an element while no opener runs
}

var errNoSpare = errors.New("redisstore: no connection at hand")

func newLoneClient(o redis.Options) *loneClient {
	dial := o.Dialer
	l := &loneClient{spare: make(chan net.Conn, 1), opened: make(chan struct{}, 1)}
	l.opened <- struct{}{}
	l.open = func(ctx context.Context) (net.Conn, error) { return dial(ctx, o.Network, o.Addr) }
	o.Dialer = func(context.Context, string, string) (net.Conn, error) {
		select {
		case conn := <-l.spare:
			return conn, nil
		default:
			l.ready.Store(false)
			return nil, errNoSpare
		}
	}
	o.MaxRetries = -1
	o.MaxIdleConns = 1
	l.rdb = redis.NewClient(&o)
	return l
}

// warm opens a connection in the background, if none is being opened.
func (l *loneClient) warm() {
	if l.closed.Load() || !l.opening.CompareAndSwap(false, true) {
		return
	}
	<-l.opened
	go func() {
		defer func() { l.opened <- struct{}{} }()
		defer l.opening.Store(false)
		conn, err := l.open(context.Background()) // bounded by the dialer
		if err != nil {
			return
		}
		select {
		case l.spare <- conn:
			l.ready.Store(true)
		default:
			_ = conn.Close()
		}
	}()
}

// read asks for what is stored at key, by the deadline.
func (l *loneClient) read(key string, deadline time.Time) (stored, error) {
	ctx := deadlineCtx{deadline}
	pipe := l.rdb.Pipeline()
	get, pttl := pipe.Get(ctx, key), pipe.PTTL(ctx, key)
	_, _ = pipe.Exec(ctx) // each command has its own error
	s, err := storedFrom(get, pttl)
	if err != nil && !answered(err) {
		l.ready.Store(false)
	}
	return s, err
}

// close waits for the opener.
func (l *loneClient) close() error {
	l.closed.Store(true)
	<-l.opened
	select {
	case conn := <-l.spare:
		_ = conn.Close()
	default:
	}
	return l.rdb.Close()
}

// deadlineCtx has a deadline and nothing else: go-redis sets it on the connection. It is never done, so
// that no timer and no goroutine is needed for it.
type deadlineCtx struct{ at time.Time }

func (c deadlineCtx) Deadline() (time.Time, bool) { return c.at, true }
func (deadlineCtx) Done() <-chan struct{}         { return nil }
func (deadlineCtx) Err() error                    { return nil }
func (deadlineCtx) Value(any) any                 { return nil }
