// Package redisclient makes a client that is safe for leases from the one that a user has: own time limits,
// few retries, masters only.
package redisclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// poolSize is so large that go-redis' own queue for connections is never waited in: that wait has
// a fixed length and does not see a deadline. The limits of those who ask are below it. It also keeps go-redis from its state "failed to dial", which it enters after as many failed
// dials as the pool is large and leaves only once a second.
const poolSize = 4096

// Why retries are safe (go-redis repeats a command when the connection broke or timed out, which may
// run it twice): reads change nothing; what grants, renews or ends a lease knows its own earlier copy by
// token or stamp; UNLINK and PUBLISH may be repeated. What must not be repeated is sent as a command that
// refuses retries. They are there to get over connections that the server closed, of which the pool may
// hold several; the deadline of a request bounds all its attempts together.
const retries = 2

// Dialer opens a connection.
type Dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// Derived is what was made from a user's client.
type Derived struct {
	Main redis.UniversalClient
	// Options are those of Main, for further clients of the same server; nil in a cluster.
	Options *redis.Options
}

// Dial opens a connection as Main would. There is none to open in a cluster, where Options is nil.
func (d *Derived) Dial(ctx context.Context) (net.Conn, error) {
	return d.Options.Dialer(ctx, d.Options.Network, d.Options.Addr)
}

// Derive makes a client that reaches the same Redis as rdb, in which each step of a command takes timeout at
// most and which keeps up to maxConns idle connections. Errors begin with the name of the package that asks.
func Derive(who string, rdb redis.UniversalClient, timeout time.Duration, maxConns int) (*Derived, error) {
	switch c := rdb.(type) {
	case nil:
		return nil, errors.New(who + ": the Redis client is nil")
	case *redis.Client:
		if c == nil {
			return nil, errors.New(who + ": the Redis client is nil")
		}
		return deriveSingle(who, c.Options(), timeout, maxConns)
	case *redis.ClusterClient:
		if c == nil {
			return nil, errors.New(who + ": the Redis client is nil")
		}
		return deriveCluster(c.Options(), timeout, maxConns)
	case *redis.Ring:
		return nil, errors.New(who + ": redis.Ring moves keys to another node when one does not answer, " +
			"and leases with them: use a single node, Sentinel or Cluster")
	default:
		return nil, fmt.Errorf("%s: cannot make a client from a %T: pass a *redis.Client or *redis.ClusterClient", who, rdb)
	}
}

// deriveSingle serves a single node, and Sentinel as well: there the master is found by the Dialer in
// the options, which belongs to the user's client and works as long as that is not closed.
func deriveSingle(who string, from *redis.Options, timeout time.Duration, maxConns int) (*Derived, error) {
	if from.ClientSideCache != nil || from.ClientSideCacheConfig != nil {
		return nil, errors.New(who + ": the client caches on the client side, and a cached answer may be " +
			"older than a Delete: pass a client without ClientSideCache and ClientSideCacheConfig")
	}
	o := *from
	o.Dialer = BoundedDialer(from.Dialer, timeout)
	o.DialTimeout = timeout
	o.DialerRetries = 1
	o.ReadTimeout = timeout
	o.WriteTimeout = timeout
	o.PoolTimeout = timeout
	o.ContextTimeoutEnabled = true // else a deadline is not seen once a command is sent
	o.MaxRetries = retries
	o.MinRetryBackoff = time.Millisecond
	o.MaxRetryBackoff = 8 * time.Millisecond
	o.PoolSize = poolSize
	o.MaxConcurrentDials = 0 // as many as the pool is large
	o.PipelinePoolSize = -1  // a second pool would dial in vain once more when Redis is gone
	o.MinIdleConns = 0
	o.MaxIdleConns = maxConns
	o.MaxActiveConns = 0
	o.Limiter = nil // it may refuse to release
	o.AutoPipelineOptions = nil
	o.PushNotificationProcessor = nil // the user's handlers belong to the user's connections
	// They let a command take 10 s while the server is being maintained.
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}

	kept := o // NewClient fills in what it is given
	return &Derived{Main: redis.NewClient(&o), Options: &kept}, nil
}

func deriveCluster(from *redis.ClusterOptions, timeout time.Duration, maxConns int) (*Derived, error) {
	o := *from
	// A replica may be behind a Delete.
	o.ReadOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
	dial := from.Dialer
	if dial == nil {
		dial = redis.NewDialer(&redis.Options{DialTimeout: timeout, TLSConfig: from.TLSConfig})
	}
	o.Dialer = BoundedDialer(dial, timeout)
	o.DialTimeout = timeout
	o.DialerRetries = 1
	o.ReadTimeout = timeout
	o.WriteTimeout = timeout
	o.PoolTimeout = timeout
	o.ContextTimeoutEnabled = true
	o.MaxRedirects = max(from.MaxRedirects, 3)
	o.MaxRetries = -1 // the cluster client itself repeats
	o.MinRetryBackoff = time.Millisecond
	o.MaxRetryBackoff = 8 * time.Millisecond
	o.PoolSize = poolSize
	o.MaxConcurrentDials = 0
	o.PipelinePoolSize = -1
	o.MinIdleConns = 0
	o.MaxIdleConns = maxConns
	o.MaxActiveConns = 0
	o.AutoPipelineOptions = nil
	o.PushNotificationProcessor = nil
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if o.ClusterSlots != nil {
		// A "cluster" behind Sentinel: no MOVED will tell that the master is another.
		o.ClusterStateReloadInterval = 2 * time.Second
	}
	return &Derived{Main: redis.NewClusterClient(&o)}, nil
}

// BoundedDialer returns a dialer that is done within timeout and by ctx's end, whatever dial does: the
// one for TLS does not look at ctx, the one for Sentinel first asks the sentinels with their own time
// limits, and users bring others. A connection that comes too late is closed.
func BoundedDialer(dial Dialer, timeout time.Duration) Dialer {
	type answer struct {
		conn net.Conn
		err  error
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := within(ctx, timeout)
		done := make(chan answer) // unbuffered: either the caller takes the connection or nobody does
		go func() {
			defer cancel()
			conn, err := dial(ctx, network, addr)
			select {
			case done <- answer{conn, err}:
			case <-ctx.Done():
				if conn != nil {
					_ = conn.Close()
				}
			}
		}()
		select {
		case a := <-done:
			return a.conn, a.err
		case <-ctx.Done():
			return nil, &net.OpError{Op: "dial", Net: network, Err: ctx.Err()}
		}
	}
}

// within is context.WithTimeout, for a ctx that has a deadline and is never done as well, which package
// context would rely on.
func within(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if ctx.Done() == nil {
		if at, ok := ctx.Deadline(); ok {
			timeout = min(timeout, time.Until(at))
		}
		ctx = context.WithoutCancel(ctx)
	}
	return context.WithTimeout(ctx, timeout)
}
