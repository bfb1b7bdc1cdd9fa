package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/stampede/lock"
)

// patient is how long tests wait for what has to come.
const patient = 20 * time.Second

// slowMachine are options with which a machine under load does not look like a Redis that is gone.
func slowMachine() *lock.Options {
	return &lock.Options{Name: fmt.Sprintf("test-%d", names.Add(1)), Timeout: 5 * time.Second}
}

var names atomic.Int64

func newClient(t testing.TB, addr string) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func newLocker(t testing.TB, o *lock.Options, clients ...redis.UniversalClient) *lock.Locker {
	t.Helper()
	lk, err := lock.New(o, clients...)
	must(t, err)
	t.Cleanup(func() { must(t, lk.Close()) })
	return lk
}

// single is a Locker of its own name on the shared server, and a client to look behind it.
func single(t testing.TB) (*lock.Locker, *redis.Client, *lock.Options) {
	t.Helper()
	o := slowMachine()
	rdb := newClient(t, shared.Server(t).Addr())
	return newLocker(t, o, rdb), rdb, o
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

// only fails the test when err matches another of the errors that callers are to tell apart.
func only(t testing.TB, err, want error) {
	t.Helper()
	wantErr(t, err, want)
	for _, other := range []error{lock.ErrNotAcquired, lock.ErrLost, lock.ErrReleased, lock.ErrUnavailable, lock.ErrTooFewNodes,
		lock.ErrNoFences, lock.ErrStale, lock.ErrMisuse, lock.ErrClosed} {
		if !errors.Is(want, other) && errors.Is(err, other) {
			t.Fatalf("%v is %v as well as %v", err, other, want)
		}
	}
}

func keyOf(t testing.TB, rdb redis.Cmdable, o *lock.Options, kind string) string {
	t.Helper()
	keys, err := rdb.Keys(context.Background(), o.Name+":{*}:"+kind+":*").Result()
	must(t, err)
	if len(keys) == 0 {
		return ""
	}
	if len(keys) > 1 {
		t.Fatalf("keys %q", keys)
	}
	return keys[0]
}

// within fails the test when f takes longer than d.
func within(t testing.TB, d time.Duration, what string, f func()) {
	t.Helper()
	begun := time.Now()
	f()
	if took := time.Since(begun); took > d {
		t.Errorf("%s took %v, want at most %v", what, took, d)
	}
}

// arrived waits for c.
func arrived(t testing.TB, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patient):
		t.Fatalf("%s did not come", what)
	}
}

// log collects events.
type log struct {
	mu     sync.Mutex // protects events
	events []lock.Event
}

func (l *log) Observe(e lock.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var s []string
	for _, e := range l.events {
		s = append(s, e.Kind.String())
	}
	return strings.Join(s, " ")
}

func digits(n uint64) string { return strconv.FormatUint(n, 10) }
