package lock

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/internal/keyname"
	"github.com/herdgate/herdgate/internal/redisclient"
	"github.com/herdgate/herdgate/internal/subs"
)

// Locker makes locks. It is safe for concurrent use. Use New to make one, and one for a process: those of
// a process who wait for a lock then wait in line, and only the first of them asks Redis. The methods of a nil
// or zero Locker fail with ErrMisuse.
type Locker struct {
	opt    Options
	nodes  []*node
	quorum int
	hub    *subs.Hub // nil with several servers
	lines  lines
	// process is what this Locker is called in the queues of those who wait.
	process string
	events  events

	// With several servers.
	identities identities
	marker     any // key of the marker, a string

	ctx    context.Context // ends with the Locker
	cancel context.CancelFunc
	closed atomic.Bool
	mu     sync.Mutex     // orders spawn and Close
	wg     sync.WaitGroup // what runs in the background
	ghosts atomic.Int64   // grants that are being given back

	reseeding atomic.Bool // in the background
}

// New returns a Locker on the Redis that client reaches: a *redis.Client, made by redis.NewClient or
// redis.NewFailoverClient, or a *redis.ClusterClient. With more than one client, the locks are Redlocks on
// these servers, which must be independent masters (no replicas of one another, no cluster), odd in number,
// three or more. Options may be nil. All that is wrong with the arguments is in the error; that no server
// answers is no error. That two clients reach the same server, in two databases or under two names, New may not see:
// then acquiring fails with ErrMisuse, and no lock is granted on the strength of one server alone. It is told by the
// servers' run ids, for which the right to run INFO is needed.
//
// The Locker makes clients of its own from the options of those given, with its own time limits, and leaves
// the given ones alone. A client made by redis.NewFailoverClient must stay open until the Locker is closed:
// its sentinels say where the master is.
func New(o *Options, clients ...redis.UniversalClient) (*Locker, error) {
	opt, err := o.withDefaults()
	errs := []error{err}
	switch n := len(clients); {
	case n == 0:
		errs = append(errs, fmt.Errorf("%w: no Redis client", ErrMisuse))
	case n%2 == 0:
		errs = append(errs, fmt.Errorf("%w: %d servers: give one, or an odd number of three or more; "+
			"one more than an odd number adds no safety", ErrMisuse, n))
	}
	lk := &Locker{opt: opt, quorum: len(clients)/2 + 1, events: events{name: opt.Name, obs: opt.Observer}}
	seen := map[string]int{}
	for i, rdb := range clients {
		if c, ok := rdb.(*redis.Client); ok && c != nil {
			addr := c.Options().Addr
			if first, twice := seen[addr]; twice && addr != sentinelAddr {
				errs = append(errs, fmt.Errorf("%w: clients %d and %d are of one server, %s", ErrMisuse, first, i, addr))
			}
			seen[addr] = i
		}
		if _, ok := rdb.(*redis.ClusterClient); ok && len(clients) > 1 {
			errs = append(errs, fmt.Errorf("%w: client %d is of a cluster: Redlock needs independent masters", ErrMisuse, i))
			continue
		}
		d, err := redisclient.Derive("lock", rdb, max(opt.Timeout, 1), maxIdle)
		if err != nil {
			errs = append(errs, fmt.Errorf("%w: %w", ErrMisuse, err))
			continue
		}
		lk.nodes = append(lk.nodes, &node{lk: lk, i: i, rdb: d.Main, direct: d.Options != nil})
	}
	if err := errors.Join(errs...); err != nil {
		for _, n := range lk.nodes {
			_ = n.rdb.Close()
		}
		return nil, err
	}
	lk.lines.all = map[string]*line{}
	lk.process = hex.EncodeToString([]byte(newToken()[:processSize/2]))
	lk.marker = opt.Name + markerKey
	lk.identities.known = make([]string, len(lk.nodes))
	lk.ctx, lk.cancel = context.WithCancel(context.Background())
	if len(lk.nodes) == 1 {
		lk.hub = subs.New(subs.Config{Ctx: lk.ctx, Redis: lk.nodes[0].rdb, Spawn: lk.spawn, Lost: func(error) {}})
	}
	return lk, nil
}

const (
	// maxIdle is how many idle connections to a server are kept.
	maxIdle = 32
	// processSize is the length of a process' name.
	processSize = 16
	// sentinelAddr is what go-redis calls the address of each client made by NewFailoverClient.
	sentinelAddr = "FailoverClient"
)

// Close ends what runs in the background and the connections. Locks that are held are not released: they end
// with their leases, and the ctx of those that are kept ends with reason Closed. So release first. After Close
// the Observer is not called any more. The clients given to New stay open.
func (lk *Locker) Close() error {
	if !lk.valid() {
		return errNoLocker
	}
	lk.mu.Lock()
	was := lk.closed.Swap(true)
	lk.mu.Unlock()
	var errs []error
	if !was {
		lk.cancel()
		for _, n := range lk.nodes {
			errs = append(errs, n.rdb.Close())
		}
	}
	lk.wg.Wait()
	lk.events.end()
	return errors.Join(errs...)
}

// spawn runs f in the background, which Close waits for. It returns false when the Locker is closed.
func (lk *Locker) spawn(f func()) bool {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	if lk.closed.Load() {
		return false
	}
	lk.wg.Go(f)
	return true
}

// onAll runs f for each of the servers in the background, at the same time.
func (lk *Locker) onAll(f func(*node)) bool {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	if lk.closed.Load() {
		return false
	}
	lk.wg.Add(len(lk.nodes))
	for _, n := range lk.nodes {
		go lk.run(f, n)
	}
	return true
}

func (lk *Locker) run(f func(*node), n *node) {
	defer lk.wg.Done()
	f(n)
}

// whenClosed runs f in the background when the Locker is closed, unless stop is called before. Close waits for it.
func (lk *Locker) whenClosed(f func()) (stop func()) {
	done := func() {}
	lk.mu.Lock()
	if !lk.closed.Load() {
		lk.wg.Add(1)
		done = lk.wg.Done
	}
	lk.mu.Unlock()
	stopped := context.AfterFunc(lk.ctx, func() {
		defer done()
		f()
	})
	return func() {
		if stopped() {
			done()
		}
	}
}

// keys are what a lock is called in Redis. Those that are arguments of each request are strings in the form in which
// they are passed on.
type keys struct {
	name                 string
	lock, fence, channel any
	plain                bool // without a fencing number, whatever the options say
}

func (lk *Locker) keysOf(name string) (*keys, error) {
	n, err := keyname.Of(lk.opt.Name, name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMisuse, err)
	}
	all := n.Names(kindLock, kindFence, kindChannel)
	return &keys{name: name, lock: all[0], fence: all[1], channel: all[2]}, nil
}

// valid says whether lk was made by New.
func (lk *Locker) valid() bool { return lk != nil && len(lk.nodes) > 0 }

var (
	errNoLocker = fmt.Errorf("%w: the Locker was not made by New", ErrMisuse)
	errNilCtx   = fmt.Errorf("%w: ctx is nil", ErrMisuse)
)

// check says what is wrong with a call.
func (lk *Locker) check(ctx context.Context, name string, ttl time.Duration) error {
	switch {
	case !lk.valid():
		return errNoLocker
	case ctx == nil:
		return about(name, errNilCtx)
	case lk.closed.Load():
		return ErrClosed
	case checkLease(ttl) != nil:
		return about(name, checkLease(ttl))
	case holds(ctx, lk, name):
		return about(name, fmt.Errorf("%w: ctx is that of a holder of this lock, who would wait for itself", ErrMisuse))
	}
	return nil
}

// drift is by how much less than ttl a holder may count on a lease of ttl: clocks run at different speeds,
// and Redis counts whole milliseconds.
func drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }
