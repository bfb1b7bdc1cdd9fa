package lock_test

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/internal/redistest"
	"github.com/herdgate/herdgate/stampede/lock"
)

// The same server under two names, in two databases or behind two proxies counts once: what it grants twice is no
// majority.
func TestRedlockDoesNotTakeOneServerForTwo(t *testing.T) {
	t.Parallel()
	one, two, three := redistest.Server(t), redistest.Server(t), redistest.Server(t)
	_, port, err := net.SplitHostPort(one.Addr())
	must(t, err)
	other := func(o redis.Options) *redis.Client {
		rdb := redis.NewClient(&o)
		t.Cleanup(func() { _ = rdb.Close() })
		return rdb
	}
	alias := redistest.Proxy(t, one.Addr())
	ctx := t.Context()
	for name, second := range map[string]*redis.Client{
		"another name":     other(redis.Options{Addr: net.JoinHostPort("localhost", port)}),
		"another database": other(redis.Options{Addr: one.Addr(), DB: 1}),
		"a proxy":          other(redis.Options{Addr: alias.Addr()}),
	} {
		o := slowMachine()
		lk, err := lock.New(o, newClient(t, one.Addr()), second, newClient(t, two.Addr()))
		if err != nil {
			only(t, err, lock.ErrMisuse)
			continue
		}
		for range 2 { // each time
			_, err = lk.TryAcquire(ctx, "job", time.Minute)
			only(t, err, lock.ErrMisuse)
		}
		_, err = lk.Acquire(ctx, "job", time.Minute)
		only(t, err, lock.ErrMisuse)
		must(t, lk.Close())
		o.Fences = true
		lk, err = lock.New(o, newClient(t, one.Addr()), second, newClient(t, two.Addr()))
		must(t, err)
		only(t, lk.InitFences(ctx), lock.ErrMisuse)
		only(t, lk.SeedFences(ctx, 1), lock.ErrMisuse)
		must(t, lk.Close())
		if n := newClient(t, two.Addr()).DBSize(ctx).Val(); n != 0 {
			t.Errorf("%s: %d keys are left", name, n)
		}
	}
	// One that was down at first is asked before it counts.
	must(t, alias.RefuseNew(true))
	lk := newLocker(t, slowMachine(), newClient(t, one.Addr()), newClient(t, alias.Addr()), newClient(t, three.Addr()))
	l, err := lk.TryAcquire(ctx, "job", time.Minute)
	must(t, err)
	must(t, alias.RefuseNew(false))
	must(t, l.Extend(ctx, time.Minute))
	redistest.Eventually(t, patient, func() bool {
		_, err = lk.TryAcquire(ctx, "other", time.Minute)
		return errors.Is(err, lock.ErrMisuse)
	})
	must(t, l.Release(ctx))
}
