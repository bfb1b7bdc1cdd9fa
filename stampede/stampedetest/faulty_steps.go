package stampedetest

import (
	"context"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// Encoded asks the store behind.
func (f *Faulty) Encoded() bool { return f.store.Encoded() }

// Read is a step of the store behind, if nothing happens to it. So are the others.
func (f *Faulty) Read(ctx context.Context, key stampede.Key) (stampede.Entry, error) {
	return execute(ctx, f, Call{Step: StepRead, Key: key}, func(ctx context.Context) (stampede.Entry, error) {
		return f.store.Read(ctx, key)
	})
}

// Elect asks for the lease of key.
func (f *Faulty) Elect(ctx context.Context, key stampede.Key, ballot stampede.Ballot) (stampede.Election, error) {
	return execute(ctx, f, Call{Step: StepElect, Key: key, Ballot: ballot}, func(ctx context.Context) (stampede.Election, error) {
		return f.store.Elect(ctx, key, ballot)
	})
}

// Commit ends a load.
func (f *Faulty) Commit(ctx context.Context, key stampede.Key, lease stampede.Stamp, e stampede.Entry) (stampede.Verdict, error) {
	return execute(ctx, f, Call{Step: StepCommit, Key: key, Lease: lease}, func(ctx context.Context) (stampede.Verdict, error) {
		return f.store.Commit(ctx, key, lease, e)
	})
}

// CommitMarked writes an entry under a marker. It counts as a Commit.
func (f *Faulty) CommitMarked(ctx context.Context, key stampede.Key, marker stampede.Stamp, e stampede.Entry) (stampede.Verdict, error) {
	return execute(ctx, f, Call{Step: StepCommit, Key: key, Lease: marker}, func(ctx context.Context) (stampede.Verdict, error) {
		return f.store.CommitMarked(ctx, key, marker, e)
	})
}

// Renew prolongs a lease.
func (f *Faulty) Renew(ctx context.Context, key stampede.Key, lease stampede.Stamp, length time.Duration) (stampede.Holding, error) {
	return execute(ctx, f, Call{Step: StepRenew, Key: key, Lease: lease}, func(ctx context.Context) (stampede.Holding, error) {
		return f.store.Renew(ctx, key, lease, length)
	})
}

// Fail ends a lease after a load that failed.
func (f *Faulty) Fail(ctx context.Context, key stampede.Key, lease stampede.Stamp, backoff stampede.Backoff) (time.Duration, error) {
	return execute(ctx, f, Call{Step: StepFail, Key: key, Lease: lease}, func(ctx context.Context) (time.Duration, error) {
		return f.store.Fail(ctx, key, lease, backoff)
	})
}

// Release ends a lease after a load whose value is not stored.
func (f *Faulty) Release(ctx context.Context, key stampede.Key, lease stampede.Stamp, pass stampede.Pass) error {
	return f.do(ctx, Call{Step: StepRelease, Key: key, Lease: lease}, func(ctx context.Context) error {
		return f.store.Release(ctx, key, lease, pass)
	})
}

// Set writes an entry.
func (f *Faulty) Set(ctx context.Context, key stampede.Key, e stampede.Entry) error {
	return f.do(ctx, Call{Step: StepSet, Key: key}, func(ctx context.Context) error {
		return f.store.Set(ctx, key, e)
	})
}

// Delete removes entries.
func (f *Faulty) Delete(ctx context.Context, keys ...stampede.Key) error {
	return f.do(ctx, Call{Step: StepDelete, Key: first(keys), Keys: keys}, func(ctx context.Context) error {
		return f.store.Delete(ctx, keys...)
	})
}

// Expire makes entries stale.
func (f *Faulty) Expire(ctx context.Context, keys ...stampede.Key) error {
	return f.do(ctx, Call{Step: StepExpire, Key: first(keys), Keys: keys}, func(ctx context.Context) error {
		return f.store.Expire(ctx, keys...)
	})
}

// Health says whether the store answers.
func (f *Faulty) Health(ctx context.Context) error {
	return f.do(ctx, Call{Step: StepHealth}, f.store.Health)
}

func (f *Faulty) do(ctx context.Context, c Call, exec func(context.Context) error) error {
	_, err := execute(ctx, f, c, func(ctx context.Context) (struct{}, error) { return struct{}{}, exec(ctx) })
	return err
}

func first(keys []stampede.Key) (k stampede.Key) {
	if len(keys) > 0 {
		k = keys[0]
	}
	return k
}
