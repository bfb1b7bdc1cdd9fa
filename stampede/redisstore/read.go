package redisstore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/stampede"
)

// Read implements [stampede.Store]. It is GET and PTTL in one round trip; a script would cost Redis
// seven times as much.
func (s *Store) Read(ctx context.Context, key stampede.Key) (stampede.Entry, error) {
	n, err := namesOf(key)
	if err != nil {
		return stampede.Entry{}, err
	}
	name := n.entry()
	l, err := s.begin(ctx, name)
	if err != nil {
		return stampede.Entry{}, err
	}
	alone := l.readers.Add(1) <= few && l.batcher.idle()
	defer l.readers.Add(-1)

	if alone {
		if got, ok, err := s.readAlone(ctx, l, name); ok {
			if err != nil {
				return stampede.Entry{}, wrap("read", key, err)
			}
			return got.entry(n.Check), nil
		}
	}
	got, err := s.readTogether(ctx, l, name)
	if err != nil {
		return stampede.Entry{}, wrap("read", key, err)
	}
	return got.entry(n.Check), nil
}

// ReadMany implements [stampede.BatchReader]: one round trip for each node that has some of the keys, or
// one for each 128 keys or 256 KiB if there are more.
func (s *Store) ReadMany(ctx context.Context, keys []stampede.Key) ([]stampede.Entry, []error) {
	entries, errs := make([]stampede.Entry, len(keys)), make([]error, len(keys))
	names, checks := make([]string, len(keys)), make([]uint64, len(keys))
	byLane := map[*lane][]int{}
	for i, key := range keys {
		n, err := namesOf(key)
		if err != nil {
			errs[i] = err
			continue
		}
		names[i], checks[i] = n.entry(), n.Check
		l, err := s.begin(ctx, names[i])
		if err != nil {
			errs[i] = wrap("read", key, err)
			continue
		}
		byLane[l] = append(byLane[l], i)
	}
	places := make([]place, len(keys))
	for l, some := range byLane {
		its, at := make([]string, len(some)), make([]place, len(some))
		for j, i := range some {
			its[j] = names[i]
		}
		l.batcher.join(s.spawn, at, its...)
		for j, i := range some {
			places[i] = at[j]
		}
	}
	for i, key := range keys {
		if places[i].batch == nil {
			continue
		}
		got, err := s.await(ctx, places[i])
		if errs[i] = wrap("read", key, err); err == nil {
			entries[i] = got.entry(checks[i])
		}
	}
	return entries, errs
}

// readAlone reads on the caller's goroutine. It declines, with ok false, when there is no connection at
// hand, or so little time that giving up, which costs the connection, would be likely.
func (s *Store) readAlone(ctx context.Context, l *lane, name string) (got stored, ok bool, err error) {
	if l.lone == nil {
		return stored{}, false, nil
	}
	if !l.lone.ready.Load() {
		l.lone.warm(s.ctx, s.spawn)
		return stored{}, false, nil
	}
	now := time.Now()
	deadline := now.Add(s.opt.Timeout)
	if d, has := ctx.Deadline(); has && d.Before(deadline) {
		if d.Sub(now) < tooLittle {
			return stored{}, false, nil
		}
		deadline = d
	}
	got, err = l.lone.read(name, deadline)
	if err != nil && (l.node != "" && answered(err) || !answered(err) && time.Now().Before(deadline)) {
		// The connection broke, or there was none: another one may serve. Or the key has moved to another
		// node of the cluster. Nothing has been changed.
		return stored{}, false, nil
	}
	s.report(l, name, err)
	s.stats.reads.Add(1)
	return got, true, err
}

// tooLittle is the time with which a read is better made in company: see readAlone. It is well below the
// budget of callers for whom there is a copy, 25 ms by default.
const tooLittle = 10 * time.Millisecond

// readTogether joins the reads of others that were not sent yet, and waits no longer than ctx allows.
func (s *Store) readTogether(ctx context.Context, l *lane, name string) (stored, error) {
	var p [1]place
	l.batcher.join(s.spawn, p[:], name)
	return s.await(ctx, p[0])
}

// await waits for the result of a key that is read together with others.
func (s *Store) await(ctx context.Context, x place) (stored, error) {
	var late <-chan time.Time
	if d, ok := ctx.Deadline(); ok && ctx.Done() == nil {
		t := time.NewTimer(time.Until(d))
		defer t.Stop()
		late = t.C
	}
	select {
	case <-x.done:
		if x.err != nil {
			return stored{}, x.err
		}
		return x.out[x.i].stored, x.out[x.i].err
	case <-ctx.Done():
		return stored{}, s.ended(ctx)
	case <-late:
		return stored{}, context.DeadlineExceeded
	}
}

// sendBatch asks for all keys of x in one pipeline, and reports whether Redis answered.
func (s *Store) sendBatch(l *lane, x *batch) bool {
	ctx, cancel := context.WithTimeout(s.ctx, s.opt.Timeout)
	defer cancel()
	pipe := s.rdb.Pipeline()
	gets := make([]*redis.StringCmd, len(x.keys))
	pttls := make([]*redis.DurationCmd, len(x.keys))
	for i, key := range x.keys {
		gets[i], pttls[i] = readCommands(ctx, pipe, key)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	out := make([]result, len(x.keys))
	var failed error
	failing := 0
	for i := range out {
		out[i].stored, out[i].err = storedFrom(gets[i], pttls[i])
		if down(out[i].err) {
			failed, failing = out[i].err, i
		}
	}
	x.out = out
	s.report(l, x.keys[failing], failed)
	s.stats.reads.Add(1)
	s.stats.shared.Add(uint64(len(x.keys)))
	x.end(nil)
	return failed == nil
}
