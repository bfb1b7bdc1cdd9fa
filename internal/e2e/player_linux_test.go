package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/redisstore"
)

// player is a pod that calls Get, GetMany, Set, Delete and Expire at random and records what it sees.
type player struct {
	Seed    uint64
	Keys    int
	Workers int
	Broad   bool // with all that is off unless it is asked for, and that promises nothing less
}

// The policy of all players. A pod is stopped for longer than a lease.
const (
	playedTTL      = 150 * time.Millisecond
	playedStaleFor = 300 * time.Millisecond
	playedLease    = 200 * time.Millisecond
)

var errSource = errors.New("the source failed")

// run plays until ctx ends. name must be unique.
func (p *player) run(ctx context.Context, addr, name string, out *log) error {
	rdb := redis.NewClient(&redis.Options{Addr: addr, ClientName: name})
	defer rdb.Close()
	store, err := redisstore.New(rdb, &redisstore.Options{Logger: quiet()})
	if err != nil {
		return err
	}
	defer store.Close()
	opts := &stampede.Options{
		Name:  "e2e",
		Lease: playedLease,
		Policy: stampede.Policy{
			TTL: playedTTL, StaleFor: playedStaleFor, StaleIfError: time.Second, ErrorBackoff: 50 * time.Millisecond, Jitter: -1,
		},
		Logger: quiet(),
	}
	if p.Broad {
		opts.Local.Entries = -1 // GetMany does not say what is a copy
		opts.Hedge, opts.MaxLoads, opts.FleetLoads, opts.CopyOnRead, opts.Tags = 1.5, 4, 6, true, true
	}
	guard, err := stampede.New[string](store, opts)
	if err != nil {
		return err
	}
	var calls, loads atomic.Int64
	var wg sync.WaitGroup
	for i := range p.Workers {
		w := &worker{keys: p.Keys, tags: p.Broad, guard: guard, out: out, name: name, calls: &calls, loads: &loads, rnd: rand.New(rand.NewPCG(p.Seed, uint64(i)))}
		wg.Go(func() {
			for pause(ctx, time.Duration(w.rnd.IntN(5000))*time.Microsecond) {
				if p.Broad && w.rnd.IntN(4) == 0 {
					w.getMany()
					continue
				}
				w.step(w.key())
			}
		})
	}
	wg.Wait()
	end, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err = guard.Close(end)
	s := guard.Stats()
	out.add(record{Kind: ended, Pod: name, Value: fmt.Sprintf("refused %d, lost %d, again %d, hedges %d", s.Refused, s.LeasesLost, s.Again, s.Hedges)})
	return err
}

// worker does one call after another.
type worker struct {
	keys         int
	tags         bool
	guard        *stampede.Guard[string]
	out          *log
	name         string
	calls, loads *atomic.Int64 // of the pod
	rnd          *rand.Rand
}

func (w *worker) key() string { return "k" + strconv.Itoa(w.rnd.IntN(w.keys)) }

// getMany is recorded as a Get of each of its keys.
func (w *worker) getMany() {
	keys := []string{w.key(), w.key()}
	if keys[0] == keys[1] {
		keys = keys[:1]
	}
	calls := make([]record, len(keys))
	for i, key := range keys {
		calls[i] = record{Pod: w.name, Call: int(w.calls.Add(1)), Key: key, Kind: invoked, Op: "get"}
		w.out.add(calls[i])
	}
	took := time.Duration(2000+w.rnd.IntN(30_000)) * time.Microsecond
	found, err := w.guard.GetMany(context.Background(), keys, func(ctx context.Context, keys []string) (map[string]string, error) {
		loaded := make(map[string]string, len(keys))
		for _, key := range keys {
			v, err := w.load(ctx, "m", key, took, false)
			if err != nil {
				return nil, err
			}
			loaded[key] = v
		}
		return loaded, nil
	})
	for _, r := range calls {
		r.Kind, r.Value = returned, found[r.Key]
		if err != nil {
			r.Err = err.Error()
		}
		w.out.add(r)
	}
}

func (w *worker) step(key string) {
	ctx := context.Background()
	r := record{Pod: w.name, Call: int(w.calls.Add(1)), Key: key, Kind: invoked}
	switch n := w.rnd.IntN(100); {
	case n < 82:
		r.Op = "get"
	case n < 87:
		r.Op, r.Value = "set", fmt.Sprintf("<%s.s%d>", w.name, r.Call)
	case n < 94:
		r.Op = "delete"
	case w.tags && n < 97:
		r.Op = "expiretag"
	default:
		r.Op = "expire"
	}
	took := time.Duration(2000+w.rnd.IntN(30_000)) * time.Microsecond
	if w.rnd.IntN(6) == 0 {
		took += 100 * time.Millisecond // long enough to be stopped in the middle of it
	}
	broken := w.rnd.IntN(20) == 0
	w.out.add(r)
	var err error
	switch r.Op {
	case "get":
		var got stampede.Result[string]
		got, err = w.guard.Fetch(ctx, key, func(ctx context.Context, l *stampede.Load[string]) (string, error) {
			if w.tags {
				l.Tags("all", key)
			}
			return w.load(ctx, "l", key, took, broken)
		})
		if err == nil && got.From == stampede.FromCopy {
			return // Redis did not answer: that is served whatever was deleted, and proves nothing
		}
		r.Value, r.Fresh, r.Stored = got.Value, err == nil && got.Freshness == stampede.Fresh, got.Stored
	case "set":
		err = w.guard.Set(ctx, key, r.Value)
	case "delete":
		err = w.guard.Delete(ctx, key)
	case "expire":
		err = w.guard.Expire(ctx, key)
	case "expiretag":
		err = w.guard.ExpireTag(ctx, key)
	}
	r.Kind = returned
	if err != nil {
		r.Err = err.Error()
	}
	w.out.add(r)
}

// load loads a value with tags (sort "l") or without ("m").
func (w *worker) load(ctx context.Context, sort, key string, took time.Duration, broken bool) (string, error) {
	r := record{Kind: loadBegan, Pod: w.name, Key: key, Value: fmt.Sprintf("<%s.%s%d>", w.name, sort, w.loads.Add(1))}
	w.out.add(r)
	if !pause(ctx, took) {
		return "", context.Cause(ctx)
	}
	if broken {
		return "", errSource
	}
	r.Kind = loadEnded
	w.out.add(r)
	return r.Value, nil
}
