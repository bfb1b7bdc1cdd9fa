package redisstore

import (
	"context"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// Read implements [stampede.Store]. It is GETRANGE and PTTL in one round trip; a script would cost
// Redis seven times as much.
func (s *Store) Read(ctx context.Context, key stampede.Key) (stampede.Entry, error) {
	n, err := namesOf(key)
	if err != nil {
		return stampede.Entry{}, err
	}
	what := request{name: n.entry()}
	l, err := s.begin(ctx, what.name)
	if err != nil {
		return stampede.Entry{}, err
	}
	got, err := s.ask(ctx, l, what)
	if err != nil {
		return stampede.Entry{}, wrap("read", key, err)
	}
	return got.entry(n.Check), nil
}

// ask asks for something, alone or together with others.
func (s *Store) ask(ctx context.Context, l *lane, what request) (result, error) {
	alone := l.readers.Add(1) <= few && l.batcher.idle()
	defer l.readers.Add(-1)
	if alone {
		if got, ok := s.readAlone(ctx, l, what); ok {
			return got, got.err
		}
	}
	return s.readTogether(ctx, l, what)
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
		its, at := make([]request, len(some)), make([]place, len(some))
		for j, i := range some {
			its[j].name = names[i]
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
func (s *Store) readAlone(ctx context.Context, l *lane, what request) (got result, ok bool) {
	if l.lone == nil {
		return got, false
	}
	if !l.lone.ready.Load() {
		l.lone.warm(s.ctx, s.spawn)
		return got, false
	}
	now := time.Now()
	deadline, own := now.Add(s.opt.Timeout), true // own: it is the Store's
	if d, has := ctx.Deadline(); has && d.Before(deadline) {
		if d.Sub(now) < tooLittle {
			return got, false
		}
		deadline, own = d, false
	}
	got = l.lone.read(what, s.last, deadline)
	if err := got.err; err != nil && (l.node != "" && answered(err) || !answered(err) && time.Now().Before(deadline)) {
		// The connection broke, or there was none: another one may serve. Or the key has moved to another
		// node of the cluster. Nothing has been changed.
		return result{}, false
	}
	if own || got.err == nil || answered(got.err) {
		s.report(l, what.name, got.err)
	}
	s.stats.reads.Add(1)
	return got, true
}

// tooLittle is the time with which a read is better made in company: see readAlone. It is well below the
// budget of callers for whom there is a copy, 25 ms by default.
const tooLittle = 10 * time.Millisecond

// readTogether joins the reads of others that were not sent yet, and waits no longer than ctx allows.
func (s *Store) readTogether(ctx context.Context, l *lane, what request) (result, error) {
	var p [1]place
	l.batcher.join(s.spawn, p[:], what)
	return s.await(ctx, p[0])
}

// await waits for the result of a key that is read together with others.
func (s *Store) await(ctx context.Context, x place) (result, error) {
	var late <-chan time.Time
	if d, ok := ctx.Deadline(); ok && ctx.Done() == nil {
		t := time.NewTimer(time.Until(d))
		defer t.Stop()
		late = t.C
	}
	select {
	case <-x.done:
		if x.err != nil {
			return result{}, x.err
		}
		return x.out[x.i], x.out[x.i].err
	case <-ctx.Done():
		return result{}, s.ended(ctx)
	case <-late:
		return result{}, context.DeadlineExceeded
	}
}

// sendBatch asks for all keys of x in one pipeline, and reports whether Redis answered.
func (s *Store) sendBatch(l *lane, x *batch) bool {
	ctx, cancel := context.WithTimeout(s.ctx, s.opt.Timeout)
	defer cancel()
	pipe := s.rdb.Pipeline()
	asked := make([]asked, len(x.keys))
	for i, key := range x.keys {
		asked[i] = ask(ctx, pipe, key, s.last)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	out := make([]result, len(x.keys))
	var failed error
	failing := 0
	for i := range out {
		out[i] = asked[i].result()
		if down(out[i].err) {
			failed, failing = out[i].err, i
		}
	}
	x.out = out
	s.report(l, x.keys[failing].name, failed)
	s.stats.reads.Add(1)
	s.stats.shared.Add(uint64(len(x.keys)))
	x.end(nil)
	return failed == nil
}
