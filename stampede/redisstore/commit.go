package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/herdgate/herdgate/internal/entry"
	"github.com/herdgate/herdgate/stampede"
)

// unwritableFor is how long elections are answered with RoleBackOff after a commit that could not be
// written: who has a stale value keeps it, who has none loads for itself, and nobody is elected for nothing.
const unwritableFor = time.Second

// Commit implements [stampede.Store].
func (s *Store) Commit(ctx context.Context, key stampede.Key, lease stampede.Stamp, e stampede.Entry) (stampede.Verdict, error) {
	e.Stamp = lease
	return s.commit(ctx, key, lease, e, "L")
}

// CommitMarked implements [stampede.Store].
func (s *Store) CommitMarked(ctx context.Context, key stampede.Key, stands stampede.Stamp, e stampede.Entry) (stampede.Verdict, error) {
	e.Stamp = stampede.NewStamp()
	return s.commit(ctx, key, stands, e, "FPL")
}

// commit writes e if what stands in the lease's place has one of these kinds and the stamp.
func (s *Store) commit(ctx context.Context, key stampede.Key, right stampede.Stamp, e stampede.Entry, kinds string) (stampede.Verdict, error) {
	n, err := namesOf(key)
	if err != nil {
		return stampede.Unknown, err
	}
	e.Expired = false
	data := entry.Encode(&e, n.Check)
	if err := s.fits(&e, data); err != nil {
		if kinds == "L" {
			_, ferr := s.Fail(ctx, key, right, stampede.Backoff{First: unwritableFor})
			err = errors.Join(err, ferr)
		}
		return stampede.NotStored, wrap("commit", key, err)
	}
	keys := []string{n.entry(), n.lease()}
	v, err := do(ctx, s, keys[0], func(ctx context.Context) (stampede.Verdict, error) {
		reply, err := commitScript.Run(ctx, s.rdb, keys, right[:], data, n.channel(), millis(unwritableFor), kinds, s.opt.WakeSize).Slice()
		if err != nil {
			return stampede.Unknown, err
		}
		return verdict(reply)
	}, nil)
	switch {
	case err == nil:
	case v == stampede.NotStored:
	case answered(err):
		v = stampede.NotStored // it ran into an error before it could write
	default:
		v = stampede.Unknown
	}
	return v, wrap("commit", key, err)
}

// fits returns an error for an encoded entry that would not be read again.
func (s *Store) fits(e *stampede.Entry, data []byte) error {
	if err := entry.CheckTags(e.Tags); err != nil {
		return fmt.Errorf("redisstore: %w", err)
	}
	if m := s.opt.MaxEntrySize; m >= 0 && len(data) > m {
		return fmt.Errorf("%w: %d bytes with the header, Options.MaxEntrySize is %d", stampede.ErrTooLarge, len(data), m)
	}
	return nil
}

// notStoredError is what Redis said when it could not write an entry.
type notStoredError string

func (e notStoredError) Error() string { return string(e) }
func (notStoredError) RedisError()     {}

func verdict(reply []any) (stampede.Verdict, error) {
	if len(reply) == 0 {
		return stampede.Unknown, errors.New("redisstore: commit answered nothing")
	}
	switch reply[0] {
	case int64(0):
		return stampede.Refused, nil
	case int64(1), int64(2):
		return stampede.Accepted, nil
	case int64(3):
		why := "unknown"
		if len(reply) > 1 {
			why, _ = reply[1].(string)
		}
		return stampede.NotStored, notStoredError(why)
	}
	return stampede.Unknown, fmt.Errorf("redisstore: commit answered %v", reply[0])
}

// Renew implements [stampede.Store].
func (s *Store) Renew(ctx context.Context, key stampede.Key, lease stampede.Stamp, length time.Duration) (stampede.Holding, error) {
	n, err := namesOf(key)
	if err != nil {
		return 0, err
	}
	name := n.lease()
	h, err := do(ctx, s, n.entry(), func(ctx context.Context) (stampede.Holding, error) {
		held, err := renewScript.Run(ctx, s.rdb, []string{name}, lease[:], millis(length)).Int()
		return stampede.Holding(held), err
	}, nil)
	return h, wrap("renew", key, err)
}

// Fail implements [stampede.Store].
func (s *Store) Fail(ctx context.Context, key stampede.Key, lease stampede.Stamp, backoff stampede.Backoff) (time.Duration, error) {
	n, err := namesOf(key)
	if err != nil {
		return 0, err
	}
	name := n.lease()
	d, err := do(ctx, s, n.entry(), func(ctx context.Context) (time.Duration, error) {
		ms, err := failScript.Run(ctx, s.rdb, []string{name}, lease[:], millis(backoff.First), millis(backoff.Max), n.channel()).Int64()
		return time.Duration(ms) * time.Millisecond, err
	}, nil)
	return d, wrap("fail", key, err)
}

// Release implements [stampede.Store].
func (s *Store) Release(ctx context.Context, key stampede.Key, lease stampede.Stamp, pass stampede.Pass) error {
	n, err := namesOf(key)
	if err != nil {
		return err
	}
	name := n.lease()
	_, err = do(ctx, s, n.entry(), func(ctx context.Context) (int, error) {
		return s.release(ctx, name, n.channel(), lease[:], pass)
	}, nil)
	return wrap("release", key, err)
}

// release ends the lease whose stamp begins with prefix.
func (s *Store) release(ctx context.Context, lease, channel string, prefix []byte, pass stampede.Pass) (int, error) {
	var life int64
	if pass.For > 0 {
		life = millis(pass.For)
	}
	unshared := "0"
	if pass.Unshared {
		unshared = "1"
	}
	return releaseScript.Run(ctx, s.rdb, []string{lease}, prefix, life, unshared, channel).Int()
}
