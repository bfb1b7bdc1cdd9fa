package lock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/stampede/lock"
)

// exampleRedis is a stand-in for Redis; a program has the address of its own.
func exampleRedis() (addr string, stop func()) {
	m, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	m.ClockTTL(true)
	return m.Addr(), m.Close
}

func Example() {
	addr, stop := exampleRedis()
	defer stop()
	ctx := context.Background()
	send := func(_ context.Context, fence uint64) error {
		fmt.Println("sent, with a fencing number:", fence > 0)
		return nil
	}

	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	lk, err := lock.New(nil, rdb)
	if err != nil {
		panic(err)
	}
	defer lk.Close()

	err = lk.Do(ctx, "invoices", 10*time.Second, func(ctx context.Context) error {
		return send(ctx, lock.FromContext(ctx).Fence()) // ctx ends when the lock is lost
	})
	fmt.Println(err)
	// Output:
	// sent, with a fencing number: true
	// <nil>
}

func ExampleLocker_TryAcquire() {
	addr, stop := exampleRedis()
	defer stop()
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	lk, err := lock.New(nil, rdb)
	if err != nil {
		panic(err)
	}
	defer lk.Close()

	nightly, err := lk.TryAcquire(ctx, "nightly", time.Minute)
	fmt.Println("first:", err)
	_, err = lk.TryAcquire(ctx, "nightly", time.Minute)
	if errors.Is(err, lock.ErrNotAcquired) {
		fmt.Println("second: somebody else is at it")
	}
	fmt.Println("released:", nightly.Release(ctx))
	// Output:
	// first: <nil>
	// second: somebody else is at it
	// released: <nil>
}

func ExampleLocker_Acquire() {
	addr, stop := exampleRedis()
	defer stop()
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	lk, err := lock.New(&lock.Options{WaitTimeout: 50 * time.Millisecond}, rdb)
	if err != nil {
		panic(err)
	}
	defer lk.Close()

	l, err := lk.Acquire(ctx, "import", time.Minute)
	if err != nil {
		panic(err)
	}
	_, err = lk.Acquire(ctx, "import", time.Minute)
	fmt.Println(err)
	fmt.Println(l.Release(ctx))
	// Output:
	// lock: held by another (lock "import"): waited for 50ms
	// <nil>
}

func ExampleLock_Extend() {
	addr, stop := exampleRedis()
	defer stop()
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	lk, err := lock.New(nil, rdb)
	if err != nil {
		panic(err)
	}
	defer lk.Close()

	l, err := lk.Acquire(ctx, "import", time.Second)
	if err != nil {
		panic(err)
	}
	if err := l.Extend(ctx, time.Minute); err != nil {
		panic(err)
	}
	fmt.Println(l.Validity() > 50*time.Second)
	rdb.FlushAll(ctx)
	err = l.Extend(ctx, time.Minute)
	var lost *lock.LostError
	fmt.Println(errors.Is(err, lock.ErrLost), errors.As(err, &lost) && lost.Reason == lock.Gone)
	// Output:
	// true
	// true true
}

func ExampleLock_Keep() {
	addr, stop := exampleRedis()
	defer stop()
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	lk, err := lock.New(nil, rdb)
	if err != nil {
		panic(err)
	}
	defer lk.Close()

	l, err := lk.Acquire(ctx, "leader", 200*time.Millisecond)
	if err != nil {
		panic(err)
	}
	held, resign := l.Keep(ctx)
	defer resign()
	rdb.FlushAll(ctx)
	<-held.Done()
	fmt.Println(errors.Is(context.Cause(held), lock.ErrLost))
	// Output:
	// true
}

func ExampleSetFenced() {
	addr, stop := exampleRedis()
	defer stop()
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()

	fmt.Println(lock.SetFenced(ctx, rdb, "config", "new", 34, time.Hour))
	err := lock.SetFenced(ctx, rdb, "config", "old", 33, time.Hour)
	fmt.Println(errors.Is(err, lock.ErrStale), rdb.HGet(ctx, "config", "value").Val())
	// Output:
	// <nil>
	// true new
}

// A script of one's own that refuses older fencing numbers: here, one that counts.
func Example_fenceLua() {
	addr, stop := exampleRedis()
	defer stop()
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()

	count := redis.NewScript(lock.FenceLua + `
		if not fence_admits(KEYS[1], ARGV[1]) then return redis.error_reply('STALE fence') end
		return redis.call('HINCRBY', KEYS[1], 'count', 1)`)
	for _, fence := range []uint64{33, 34, 33} {
		n, err := count.Run(ctx, rdb, []string{"counter"}, fence).Int()
		fmt.Println(n, err)
	}
	// Output:
	// 1 <nil>
	// 2 <nil>
	// 0 STALE fence
}

// Redlock: three independent masters, with fencing numbers.
func ExampleNew_redlock() {
	ctx := context.Background()
	var clients []redis.UniversalClient
	for range 3 {
		addr, stop := exampleRedis()
		defer stop() //nolint:gocritic // three
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		defer rdb.Close() //nolint:gocritic // three
		clients = append(clients, rdb)
	}

	lk, err := lock.New(&lock.Options{Fences: true, NodeTimeout: time.Second}, clients...)
	if err != nil {
		panic(err)
	}
	defer lk.Close()
	if err := lk.InitFences(ctx); err != nil { // a step of setting the servers up
		panic(err)
	}
	last := uint64(0)
	for range 3 {
		if err := lk.Do(ctx, "invoices", 10*time.Second, func(ctx context.Context) error {
			fence := lock.FromContext(ctx).Fence()
			fmt.Println("higher:", fence > last)
			last = fence
			return nil
		}); err != nil {
			panic(err)
		}
	}
	// Output:
	// higher: true
	// higher: true
	// higher: true
}
