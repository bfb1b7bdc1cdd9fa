package redisstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/internal/entry"
	"github.com/herdgate/herdgate/stampede"
)

const (
	// deleteAtOnce is how many keys Delete sends in one pipeline.
	deleteAtOnce = 128
	// expireAtOnce is how many keys Expire sends, one after the other, within one Options.Timeout.
	expireAtOnce = 8
)

// named is how many failed keys an error of Delete or Expire names; all are counted.
const named = 8

// Set implements [stampede.Store].
func (s *Store) Set(ctx context.Context, key stampede.Key, e stampede.Entry) error {
	n, err := namesOf(key)
	if err != nil {
		return err
	}
	e.Stamp, e.Expired = stampede.NewStamp(), false
	data := entry.Encode(&e, n.Check)
	if err := s.fits(&e, data); err != nil {
		return wrap("set", key, err)
	}
	keys := []string{n.entry(), n.lease()}
	_, err = do(ctx, s, keys[0], func(ctx context.Context) (struct{}, error) {
		return struct{}{}, runOnce(ctx, s.rdb, setScript, headerLua+setLua, keys,
			data, n.channel(), dropChannel(n.Space), key.Key)
	}, nil)
	if err != nil && !answered(err) && !unsent(err) {
		err = fmt.Errorf("%w: %w", stampede.ErrOutcomeUnknown, err)
	}
	return wrap("set", key, err)
}

// Expire implements [stampede.Store].
func (s *Store) Expire(ctx context.Context, keys ...stampede.Key) error {
	return s.each(ctx, "expire", expireAtOnce, keys, func(ctx context.Context, some []stampede.Key, ns []names, errs []error) {
		for i := range some {
			n := &ns[i]
			stamp := stampede.NewStamp()
			errs[i] = expireScript.Run(ctx, s.rdb, []string{n.entry(), n.lease()},
				stamp[:], n.keyCheck(), n.channel(), dropChannel(n.Space), some[i].Key).Err()
		}
	})
}

// Delete implements [stampede.Store].
func (s *Store) Delete(ctx context.Context, keys ...stampede.Key) error {
	return s.each(ctx, "delete", deleteAtOnce, keys, s.delete)
}

// delete removes entry and lease in one command, then publishes: a waiter that is woken must find nothing.
func (s *Store) delete(ctx context.Context, keys []stampede.Key, ns []names, errs []error) {
	pipe := s.rdb.Pipeline()
	unlinks := make([]*redis.IntCmd, len(ns))
	publish := func(i int) {
		pipe.Publish(ctx, ns[i].channel(), "c")
		pipe.Publish(ctx, dropChannel(ns[i].Space), keys[i].Key)
	}
	for i := range ns {
		unlinks[i] = pipe.Unlink(ctx, ns[i].entry(), ns[i].lease())
		if s.lanes.cluster == nil {
			publish(i) // on the same connection, so Redis keeps the order
		}
	}
	cmds, _ := pipe.Exec(ctx)
	if s.lanes.cluster != nil {
		// Nodes keep no order among each other, nor does a command that is sent to another node again.
		pipe = s.rdb.Pipeline()
		for i := range ns {
			publish(i)
		}
		cmds, _ = pipe.Exec(ctx)
	}
	per := len(cmds) / len(ns)
	for i := range ns {
		errs[i] = unlinks[i].Err()
		for _, cmd := range cmds[i*per : (i+1)*per] {
			if errs[i] == nil {
				errs[i] = cmd.Err()
			}
		}
	}
}

// each applies op to keys, up to n at a time, and joins what failed. After n that a server did not answer,
// its other keys are not tried.
func (s *Store) each(
	ctx context.Context, step string, n int, keys []stampede.Key,
	op func(ctx context.Context, some []stampede.Key, ns []names, errs []error),
) error {
	type group struct {
		keys  []stampede.Key
		names []names
	}
	groups := map[*lane]*group{}
	var bad []error
	for _, key := range keys {
		n, err := namesOf(key)
		if err != nil {
			bad = append(bad, wrap(step, key, err))
			continue
		}
		l := s.lanes.of(n.entry())
		g := groups[l]
		if g == nil {
			g = &group{}
			groups[l] = g
		}
		g.keys, g.names = append(g.keys, key), append(g.names, n)
	}
	if len(bad) > 0 {
		return errors.Join(bad...)
	}
	f := failures{step: step, of: len(keys)}
	for _, g := range groups {
		for from := 0; from < len(g.keys); from += n {
			to := min(from+n, len(g.keys))
			some, names := g.keys[from:to], g.names[from:to]
			answers, err := do(ctx, s, names[0].entry(), func(ctx context.Context) ([]error, error) {
				answers := make([]error, len(some))
				op(ctx, some, names, answers)
				for _, err := range answers {
					if err != nil && !answered(err) {
						return answers, err
					}
				}
				return answers, nil
			}, nil)
			for i, key := range some {
				if answers != nil {
					f.add(key, answers[i])
				} else {
					f.add(key, err)
				}
			}
			if err != nil {
				f.count += len(g.keys) - to
				break
			}
		}
	}
	return f.join()
}

// failures collects what failed of many keys. It names some and counts all.
type failures struct {
	step  string
	of    int
	count int
	errs  []error
}

func (f *failures) add(key stampede.Key, err error) {
	if err == nil {
		return
	}
	if f.count++; len(f.errs) < named {
		f.errs = append(f.errs, wrap(f.step, key, err))
	}
}

func (f *failures) join() error {
	switch {
	case f.count == 0:
		return nil
	case f.of == 1:
		return f.errs[0]
	}
	return errors.Join(append([]error{fmt.Errorf("redisstore: %s failed for %d of %d keys, the first", f.step, f.count, f.of)}, f.errs...)...)
}
