package redisstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/internal/entry"
	"github.com/herdgate/herdgate/stampede"
)

// chunk is how many keys Delete sends at once.
const chunk = 128

// named is how many failed keys an error of Delete or Expire names; the others are counted.
const named = 8

// Set implements [stampede.Store].
func (s *Store) Set(ctx context.Context, key stampede.Key, e stampede.Entry) error {
	n, err := namesOf(key)
	if err != nil {
		return err
	}
	e.Stamp, e.Expired = stampede.NewStamp(), false
	data := entry.Encode(&e, n.check)
	keys := []string{n.entry(), n.lease()}
	_, err = do(ctx, s, keys[0], func(ctx context.Context) (struct{}, error) {
		return struct{}{}, runOnce(ctx, s.rdb, setScript, headerLua+setLua, keys,
			data, n.channel(), dropChannel(n.space), key.Key)
	}, nil)
	if err != nil && !answered(err) && !unsent(err) {
		err = fmt.Errorf("%w: %w", stampede.ErrOutcomeUnknown, err)
	}
	return wrap("set", key, err)
}

// Expire implements [stampede.Store].
func (s *Store) Expire(ctx context.Context, keys ...stampede.Key) error {
	return s.each(ctx, "expire", keys, func(ctx context.Context, some []stampede.Key, ns []names, errs []error) {
		for i := range some {
			n := &ns[i]
			stamp := stampede.NewStamp()
			errs[i] = expireScript.Run(ctx, s.rdb, []string{n.entry(), n.lease()},
				stamp[:], n.keyCheck(), n.channel(), dropChannel(n.space), some[i].Key).Err()
		}
	})
}

// Delete implements [stampede.Store].
func (s *Store) Delete(ctx context.Context, keys ...stampede.Key) error {
	return s.each(ctx, "delete", keys, s.delete)
}

// delete removes entry and lease in one command, then publishes: a waiter that is woken must find nothing.
func (s *Store) delete(ctx context.Context, keys []stampede.Key, ns []names, errs []error) {
	pipe := s.rdb.Pipeline()
	unlinks := make([]*redis.IntCmd, len(ns))
	publish := func(i int) {
		pipe.Publish(ctx, ns[i].channel(), "c")
		pipe.Publish(ctx, dropChannel(ns[i].space), keys[i].Key)
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

// each applies op to keys, some at a time, and joins what failed. After a chunk that Redis did not answer
// the rest is not tried.
func (s *Store) each(
	ctx context.Context, step string, keys []stampede.Key,
	op func(ctx context.Context, some []stampede.Key, ns []names, errs []error),
) error {
	ns := make([]names, len(keys))
	var bad []error
	for i, key := range keys {
		n, err := namesOf(key)
		if err != nil {
			bad = append(bad, wrap(step, key, err))
		}
		ns[i] = n
	}
	if len(bad) > 0 {
		return errors.Join(bad...)
	}
	var errs []error
	failed := 0
	for from := 0; from < len(keys); from += chunk {
		to := min(from+chunk, len(keys))
		some, names := keys[from:to], ns[from:to]
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
		for i := range some {
			e := err
			if answers != nil {
				e = answers[i]
			}
			if e == nil {
				continue
			}
			if failed++; failed <= named {
				errs = append(errs, wrap(step, some[i], e))
			}
		}
		if err != nil {
			failed += len(keys) - to
			break
		}
	}
	if failed == 0 {
		return nil
	}
	if failed > len(errs) {
		errs = append(errs, fmt.Errorf("redisstore: %s: and %d more keys", step, failed-len(errs)))
	}
	if failed < len(keys) || len(keys) > 1 {
		errs = append([]error{fmt.Errorf("redisstore: %s failed for %d of %d keys", step, failed, len(keys))}, errs...)
	}
	return errors.Join(errs...)
}
