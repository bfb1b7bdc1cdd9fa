package lock_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/herdgate/herdgate/internal/redistest"
	"github.com/herdgate/herdgate/stampede/lock"
)

// Each way out of fn releases the lock. open-match#1578, blnk#354, ncps#913, minio#20409: unlocking with a ctx
// that is cancelled; rueidis#1010.
func TestDoReleasesOnEveryPath(t *testing.T) {
	t.Parallel()
	lk, rdb, o := single(t)
	boom := errors.New("boom")
	type ctxKey struct{}
	cancelled, cancel := context.WithCancel(context.WithValue(t.Context(), ctxKey{}, 1))
	for name, run := range map[string]func(){
		"value": func() {
			must(t, lk.Do(t.Context(), "job", time.Minute, func(ctx context.Context) error {
				if keyOf(t, rdb, o, "k") == "" {
					t.Error("not locked")
				}
				return nil
			}))
		},
		"error": func() {
			if err := lk.Do(t.Context(), "job", time.Minute, func(context.Context) error { return boom }); err != boom {
				t.Errorf("error: %v", err)
			}
		},
		"panic": func() {
			defer func() {
				if p := recover(); p != boom {
					t.Errorf("panic: %v", p)
				}
			}()
			_ = lk.Do(t.Context(), "job", time.Minute, func(context.Context) error { panic(boom) })
		},
		"Goexit": func() {
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = lk.Do(t.Context(), "job", time.Minute, func(context.Context) error { runtime.Goexit(); return nil })
			}()
			<-done
		},
		"cancelled": func() {
			err := lk.Do(cancelled, "job", time.Minute, func(ctx context.Context) error {
				if ctx.Value(ctxKey{}) != 1 {
					t.Error("ctx lost its values")
				}
				cancel()
				<-ctx.Done()
				return ctx.Err()
			})
			if err != context.Canceled {
				t.Errorf("cancelled: %v", err)
			}
		},
	} {
		run()
		if key := keyOf(t, rdb, o, "k"); key != "" {
			t.Errorf("%s: %s is left", name, key)
		}
	}
}

// node-redlock: a release error masked the routine's; redis-py #623, #1391: release after expiry raised.
func TestDoReturnsWhatFnReturnedWhateverBecomesOfTheRelease(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t)
	rdb := newClient(t, srv.Addr())
	seen := &log{}
	lk := newLocker(t, &lock.Options{Timeout: 100 * time.Millisecond, Observer: seen}, rdb)
	boom := errors.New("boom")
	for _, want := range []error{nil, boom} {
		redistest.Eventually(t, patient, func() bool {
			err := lk.Do(t.Context(), "job", 10*time.Second, func(context.Context) error {
				must(t, rdb.FlushAll(t.Context()).Err())
				return want
			})
			if errors.Is(err, lock.ErrNotAcquired) || errors.Is(err, lock.ErrUnavailable) {
				return false
			}
			if err != want {
				t.Errorf("deleted: %v, want %v", err, want)
			}
			return true
		})
	}
	var got error
	redistest.Eventually(t, patient, func() bool {
		ran := false
		got = lk.Do(t.Context(), "job", 10*time.Second, func(context.Context) error {
			ran = true
			must(t, srv.Stop())
			return boom
		})
		return ran
	})
	must(t, srv.Cont())
	if got != boom {
		t.Errorf("silent: %v", got)
	}
	// What the release did not do is done in the background.
	redistest.Eventually(t, patient, func() bool {
		return rdb.Exists(t.Context(), keyOf(t, rdb, &lock.Options{Name: "lock"}, "k")).Val() == 0
	})
	if s := lk.Stats(); s.NotReleased < 3 {
		t.Errorf("stats %+v, events %s", s, seen)
	}
}

// FusionCache #612, redis docs distributed-locks: what a lock cannot promise. The holder is paused, its lease
// ends, another one holds the lock, and then the first one goes on. Two are in fn at once; only the fencing
// numbers can tell which one may still write.
func TestPausedHolderRunsBesideTheNextOne(t *testing.T) {
	t.Parallel()
	lk, rdb, o := single(t)
	other := newLocker(t, o, rdb)
	l, err := lk.TryAcquire(t.Context(), "job", time.Second) // never renewed, as in a paused process
	must(t, err)
	err = other.Do(t.Context(), "job", time.Minute, func(ctx context.Context) error {
		if f := lock.FromContext(ctx).Fence(); f <= l.Fence() {
			t.Errorf("fence %d after %d", f, l.Fence())
		}
		must(t, lock.SetFenced(ctx, rdb, o.Name+":resource", "new", lock.FromContext(ctx).Fence(), time.Minute))
		only(t, lock.SetFenced(ctx, rdb, o.Name+":resource", "old", l.Fence(), time.Minute), lock.ErrStale)
		return nil
	})
	must(t, err)
	if got := rdb.HGet(t.Context(), o.Name+":resource", "value").Val(); got != "new" {
		t.Errorf("the resource holds %q", got)
	}
	wantErr(t, l.Release(t.Context()), lock.ErrLost)
}

func TestWhoHoldsALockCannotWaitForIt(t *testing.T) {
	t.Parallel()
	lk, _, _ := single(t)
	if lock.FromContext(t.Context()) != nil {
		t.Error("a lock from nowhere")
	}
	must(t, lk.Do(t.Context(), "a", time.Minute, func(ctx context.Context) error {
		return lk.Do(ctx, "b", time.Minute, func(ctx context.Context) error {
			if name := lock.FromContext(ctx).Name(); name != "b" {
				t.Errorf("the lock is %q", name)
			}
			within(t, 5*time.Second, "asking again", func() {
				_, err := lk.Acquire(ctx, "a", time.Minute)
				only(t, err, lock.ErrMisuse)
			})
			return nil
		})
	}))
}
