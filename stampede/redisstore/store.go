package redisstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/internal/subs"
	"github.com/herdgate/herdgate/stampede"
)

// Store keeps entries and leases in Redis. It is safe for concurrent use. Use New to make one.
type Store struct {
	opt     Options
	last    any // offset of the last byte that reads ask for, -1 that of the last one there is
	clients *clients
	rdb     redis.UniversalClient
	lanes   lanes
	ghosts  ghosts
	hub     *subs.Hub
	stats   stats
	warned  warned
	states  *states

	ctx    context.Context // ends with the Store
	cancel context.CancelFunc
	closed atomic.Bool
	mu     sync.Mutex     // orders spawn and Close
	wg     sync.WaitGroup // what runs in the background
}

var (
	_ stampede.Store       = (*Store)(nil)
	_ stampede.BatchReader = (*Store)(nil)
	_ stampede.TagStore    = (*Store)(nil)
)

// New returns a Store that reaches the same Redis as rdb, a *redis.Client (made by redis.NewClient or
// redis.NewFailoverClient) or a *redis.ClusterClient, with clients of its own. Options may be nil. All
// that is wrong with the arguments is in the error; that Redis does not answer is no error.
//
// rdb must stay open until the Store is closed when it was made by redis.NewFailoverClient: its
// sentinels say where the master is. The Store adds no hooks, and those of rdb do not see its commands.
func New(rdb redis.UniversalClient, o *Options) (*Store, error) {
	opt, err := o.withDefaults()
	c, cerr := newClients(rdb, max(opt.Timeout, 1), max(opt.MaxConns, 1))
	if err = errors.Join(err, cerr); err != nil {
		if c != nil {
			c.close()
		}
		return nil, err
	}
	s := &Store{opt: opt, last: max(opt.MaxEntrySize, 0) - 1, clients: c, rdb: c.main}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.ghosts.store = s
	s.hub = subs.New(subs.Config{Ctx: s.ctx, Redis: s.rdb, Spawn: s.spawn, Lost: func(err error) {
		s.stats.reconnects.Add(1)
		s.notice(err)
	}})
	s.states = newStates(opt.Observer)
	s.lanes.store, s.lanes.main = s, s.newLane("", c.lone)
	s.lanes.cluster, _ = c.main.(*redis.ClusterClient)
	s.spawn(s.inspect)
	return s, nil
}

// Encoded implements [stampede.Store]: entries hold bytes.
func (*Store) Encoded() bool { return true }

// Close ends what runs in the background and the connections. What is under way fails; leases that it
// holds end by themselves. The client that the Store was made from stays open.
func (s *Store) Close() error {
	s.mu.Lock()
	was := s.closed.Swap(true)
	s.mu.Unlock()
	if was {
		return nil
	}
	s.cancel()
	err := s.rdb.Close()
	s.lanes.all(func(l *lane) {
		if l.lone != nil {
			err = errors.Join(err, l.lone.close())
		}
	})
	s.wg.Wait()
	return err
}

// spawn runs f in the background, which Close waits for. It returns false when the Store is closed.
func (s *Store) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return false
	}
	s.wg.Go(f)
	return true
}
