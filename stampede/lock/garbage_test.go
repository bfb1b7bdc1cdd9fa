package lock_test

import (
	"bufio"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/stampede/lock"
)

// parrot is a server that answers each command in the same way.
func parrot(t *testing.T, reply string) *redis.Client {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go answer(c, reply)
		}
	}()
	rdb := redis.NewClient(&redis.Options{Addr: ln.Addr().String(), Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// answer reads commands, arrays of strings, until the connection ends.
func answer(c net.Conn, reply string) {
	defer func() { _ = c.Close() }()
	r := bufio.NewReader(c)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		words, _ := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "*")))
		for range words {
			size, err := r.ReadString('\n')
			if err != nil {
				return
			}
			n, _ := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(size, "$")))
			if _, err := r.Discard(n + 2); err != nil {
				return
			}
		}
		if _, err := c.Write([]byte(reply)); err != nil {
			return
		}
	}
}

// Whatever a server answers that is not Redis, or not one that we know: there is no lock, no panic, and no number.
func TestGarbageIsNoLock(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 40)
	for _, reply := range []string{
		"+OK\r\n", "-ERR what\r\n", "-NOPERM no\r\n", "$-1\r\n", "$0\r\n\r\n", "$5\r\nhello\r\n", "$40\r\n" + long + "\r\n",
		"*-1\r\n", "*0\r\n",
		":1\r\n", ":-5\r\n", ":9223372036854775807\r\n", "*3\r\n:1\r\n:2\r\n:3\r\n", "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n",
		"*4\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n$1\r\nd\r\n", "*4\r\n$-1\r\n$-1\r\n$-1\r\n$-1\r\n", "nonsense\r\n",
	} {
		ctx := t.Context()
		o := &lock.Options{Timeout: 200 * time.Millisecond, NodeTimeout: 200 * time.Millisecond, Tries: 2, Poll: 10 * time.Millisecond}
		within(t, patient, strconv.Quote(reply), func() {
			one := newLocker(t, o, parrot(t, reply))
			if l, err := one.TryAcquire(ctx, "job", time.Second); err == nil {
				t.Errorf("%q: a lock with number %d", reply, l.Fence())
			}
			if _, err := one.Acquire(ctx, "job", time.Second); err == nil {
				t.Errorf("%q: a lock", reply)
			}
			for _, fences := range []bool{false, true} {
				o.Fences = fences
				lk := newLocker(t, o, parrot(t, reply), parrot(t, reply), parrot(t, reply))
				if l, err := lk.TryAcquire(ctx, "job", time.Second); err == nil {
					t.Errorf("%q: a lock of three with number %d", reply, l.Fence())
				}
				if lk.InitFences(ctx) == nil || lk.SeedFences(ctx, 1) == nil {
					t.Errorf("%q: seeded", reply)
				}
				must(t, lk.Close())
			}
			must(t, one.Close())
		})
	}
}
