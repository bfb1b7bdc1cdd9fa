package redisstore

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
// a fixed length and does not see a deadline. The Store's own limits (Options.MaxConns, batches) are
// below it. It also keeps go-redis from its state "failed to dial", which it enters after as many failed
// dials as the pool is large and leaves only once a second.
const poolSize = 4096

// Why retries are safe (go-redis repeats a command when the connection broke or timed out, which may
// run it twice): reads change nothing; elect, commit, renew, fail, release and expire know their own
// earlier copy by token or stamp; UNLINK and PUBLISH may be repeated. Set is the exception and is sent as
// a command that refuses retries. They are there to get over connections that the server closed, of which
// the pool may hold several; the deadline of a request bounds all its attempts together.
const retries = 2

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// clients is what the Store talks to Redis through.
type clients struct {
	main redis.UniversalClient
	// lone serves the reads of a caller that is alone; nil in a cluster, where each node has one.
	lone *loneClient
	// dial opens a connection as main would; nil in a cluster.
	dial func(ctx context.Context) (net.Conn, error)
}

// newClients derives the Store's clients from the one that the user gave.
func newClients(rdb redis.UniversalClient, timeout time.Duration, maxConns int) (*clients, error) {
	switch c := rdb.(type) {
	case nil:
		return nil, errors.New("redisstore: the Redis client is nil")
	case *redis.Client:
		if c == nil {
			return nil, errors.New("redisstore: the Redis client is nil")
		}
		return deriveSingle(c.Options(), timeout, maxConns)
	case *redis.ClusterClient:
		if c == nil {
			return nil, errors.New("redisstore: the Redis client is nil")
		}
		return deriveCluster(c.Options(), timeout, maxConns)
	case *redis.Ring:
		return nil, errors.New("redisstore: redis.Ring moves keys to another node when one does not answer, " +
			"and leases with them: use a single node, Sentinel or Cluster")
	default:
		return nil, fmt.Errorf("redisstore: cannot make a client from a %T: pass a *redis.Client or *redis.ClusterClient", rdb)
	}
}

// deriveSingle serves a single node, and Sentinel as well: there the master is found by the Dialer in
// the options, which belongs to the user's client and works as long as that is not closed.
func deriveSingle(from *redis.Options, timeout time.Duration, maxConns int) (*clients, error) {
	if from.ClientSideCache != nil || from.ClientSideCacheConfig != nil {
		return nil, errors.New("redisstore: the client caches on the client side, and a cached answer may be " +
			"older than a Delete: pass a client without ClientSideCache and ClientSideCacheConfig")
	}
	o := *from
	o.Dialer = boundedDialer(from.Dialer, timeout)
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
	o.Limiter = nil // the Store has a breaker of its own
	o.AutoPipelineOptions = nil
	o.PushNotificationProcessor = nil // the user's handlers belong to the user's connections
	// They let a command take 10 s while the server is being maintained.
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}

	c := &clients{lone: newLoneClient(o)}
	c.dial = func(ctx context.Context) (net.Conn, error) { return o.Dialer(ctx, o.Network, o.Addr) }
	c.main = redis.NewClient(&o)
	return c, nil
}

func deriveCluster(from *redis.ClusterOptions, timeout time.Duration, maxConns int) (*clients, error) {
	o := *from
	// A replica may be behind a Delete.
	o.ReadOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
	dial := from.Dialer
	if dial == nil {
		dial = redis.NewDialer(&redis.Options{DialTimeout: timeout, TLSConfig: from.TLSConfig})
	}
	o.Dialer = boundedDialer(dial, timeout)
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
	return &clients{main: redis.NewClusterClient(&o)}, nil
}

func (c *clients) close() {
	_ = c.main.Close()
	if c.lone != nil {
		_ = c.lone.close()
	}
}

// boundedDialer returns a dialer that is done within timeout and by ctx's end, whatever dial does: the
// one for TLS does not look at ctx, the one for Sentinel first asks the sentinels with their own time
// limits, and users bring others. A connection that comes too late is closed.
func boundedDialer(dial dialer, timeout time.Duration) dialer {
	type answer struct {
		conn net.Conn
		err  error
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
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
