package redisstore

import (
	"context"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/internal/redisclient"
)

// clients is what the Store talks to Redis through. Set is sent as a command that refuses retries; all
// others know their own earlier copy.
type clients struct {
	main redis.UniversalClient
	// lone serves the reads of a caller that is alone; nil in a cluster, where each node has one.
	lone *loneClient
	// dial opens a connection as main would; nil in a cluster.
	dial func(ctx context.Context) (net.Conn, error)
}

// newClients derives the Store's clients from the one that the user gave.
func newClients(rdb redis.UniversalClient, timeout time.Duration, maxConns int) (*clients, error) {
	d, err := redisclient.Derive("redisstore", rdb, timeout, maxConns)
	if err != nil {
		return nil, err
	}
	c := &clients{main: d.Main}
	if d.Options != nil {
		c.lone, c.dial = newLoneClient(*d.Options), d.Dial
	}
	return c, nil
}

func (c *clients) close() {
	_ = c.main.Close()
	if c.lone != nil {
		_ = c.lone.rdb.Close()
	}
}
