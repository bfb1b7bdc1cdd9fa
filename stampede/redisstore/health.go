package redisstore

import (
	"context"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Health implements [stampede.Store]. It asks Redis whatever the breaker's state; in a cluster, every
// master must answer.
func (s *Store) Health(ctx context.Context) error {
	if s.closed.Load() {
		return ErrClosed
	}
	_, err := run(ctx, s, s.lanes.main, "", func(ctx context.Context) (struct{}, error) { return struct{}{}, s.ping(ctx) }, nil)
	return err
}

func (s *Store) ping(ctx context.Context) error {
	if cc := s.lanes.cluster; cc != nil {
		return cc.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return c.Ping(ctx).Err() })
	}
	return s.rdb.Ping(ctx).Err()
}

// probe asks for the life of the entry whose request failed last. It first opens a connection by hand:
// go-redis logs each one that it cannot open.
func (s *Store) probe(ctx context.Context, key string) error {
	if s.clients.dial != nil {
		conn, err := s.clients.dial(ctx)
		if err != nil {
			return err
		}
		_ = conn.Close()
	}
	if key == "" {
		return s.ping(ctx)
	}
	return s.rdb.PTTL(ctx, key).Err()
}

// Stats counts what a Store did. The numbers only grow.
type Stats struct {
	ReadRequests uint64 // requests to Redis that read: one for each batch, or caller that was alone
	BatchedKeys  uint64 // keys that were read in batches; each counts once for a batch
	Outages      uint64 // how often Redis, or a node of a cluster, was found not to answer
	Ghosts       uint64 // leases of unanswered elects that were looked after
	Reconnects   uint64 // how often the subscription was lost
}

type stats struct {
	reads, shared, outages, ghosts, reconnects atomic.Uint64
}

// Stats returns what the Store did until now.
func (s *Store) Stats() Stats {
	return Stats{
		ReadRequests: s.stats.reads.Load(),
		BatchedKeys:  s.stats.shared.Load(),
		Outages:      s.stats.outages.Load(),
		Ghosts:       s.stats.ghosts.Load(),
		Reconnects:   s.stats.reconnects.Load(),
	}
}
