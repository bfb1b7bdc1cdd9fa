package redisstore

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/internal/redisclient"
)

// few is how many callers may read at once on their own goroutines, as long as no batch is under way.
// Two are still served faster side by side than together.
const few = 2

// loneClient reads on the caller's own goroutine, for callers that are alone or nearly so: handing the
// read to another goroutine would cost half the throughput, a timer a tenth. Nothing watches over such
// a read, so it must not wait for anything but the connection, which has a deadline. Therefore the client
// never dials on the caller's time: its Dialer hands out a connection that was opened beforehand, or fails
// at once, and the caller takes the other way.
type loneClient struct {
	rdb   *redis.Client
	pipes sync.Pool // of empty redis.Pipeliner; making one costs as much as the two commands in it
	open  func(ctx context.Context) (net.Conn, error)
	spare chan net.Conn // opened, not yet in use

	ready   atomic.Bool // there is, or was lately, a connection to read on
	opening atomic.Bool
	closed  atomic.Bool
}

var errNoSpare = errors.New("redisstore: no connection at hand")

func newLoneClient(o redis.Options) *loneClient {
	dial := o.Dialer
	l := &loneClient{spare: make(chan net.Conn, few)}
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
	o.MaxIdleConns = few
	l.rdb = redis.NewClient(&o)
	l.pipes.New = func() any { return l.rdb.Pipeline() }
	return l
}

// warm opens connections in the background, if nobody does, in place of those that may be dead by now.
func (l *loneClient) warm(ctx context.Context, spawn func(func()) bool) {
	if !l.opening.CompareAndSwap(false, true) {
		return
	}
	spawn(func() {
		defer l.opening.Store(false)
		l.drain()
		for range few {
			conn, err := l.open(ctx) // bounded by the dialer
			if err != nil {
				return
			}
			l.spare <- conn // there is room: only this goroutine puts anything there
			l.ready.Store(true)
		}
		if l.closed.Load() {
			l.drain()
		}
	})
}

// close closes the client and what was opened for it.
func (l *loneClient) close() error {
	l.closed.Store(true)
	l.drain()
	return l.rdb.Close()
}

// read asks for what is stored, of an entry up to the byte at offset last, by the deadline.
func (l *loneClient) read(what request, last any, deadline time.Time) (r result) {
	ctx := redisclient.Until(deadline)
	pipe := l.pipes.Get().(redis.Pipeliner)
	asked := ask(ctx, pipe, what, last)
	_, _ = pipe.Exec(ctx) // each command has its own error; the pipeline is empty again
	l.pipes.Put(pipe)
	if r = asked.result(); r.err != nil && !answered(r.err) {
		l.ready.Store(false)
	}
	return r
}

// drain closes what was opened and not used.
func (l *loneClient) drain() {
	for {
		select {
		case conn := <-l.spare:
			_ = conn.Close()
		default:
			return
		}
	}
}
