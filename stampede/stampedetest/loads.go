package stampedetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
)

// Loads makes loaders that are counted and do what the test says. The zero Loads is ready to use: its
// loads return the zero T at once. It is safe for concurrent use.
type Loads[T any] struct {
	// Value makes what the n-th load of key returns, n from 1 on. Nil: the zero T.
	Value func(key string, n int) T
	// Takes is how long a load lasts that is told nothing else.
	Takes time.Duration

	mu sync.Mutex // protects all that follows

	script  func(Run) Fate
	next    []Fate
	all     tally
	ofKey   map[string]*tally
	overlap []string // of loads of one key
}

// tally counts loads.
type tally struct{ begun, running, most int }

func (t *tally) begin() {
	t.begun++
	t.running++
	t.most = max(t.most, t.running)
}

// Run is one load, as a script sees it.
type Run struct {
	Key  string
	N    int // this is the N-th load, from 1 on
	KeyN int // and the KeyN-th of its key, from 1 on
}

// Fate is what becomes of a load. The zero Fate is a load that succeeds.
//
// What is set happens in the order of the fields. A load whose ctx ends while it waits returns the
// ctx's cause, unless Deaf is set.
type Fate struct {
	Takes  time.Duration // instead of Loads.Takes
	Gate   *Gate         // the load goes on when the gate opens
	Hang   bool          // it waits until its ctx ends
	Err    error         // it returns this
	Panic  any           // it panics with this
	Goexit bool          // it ends its goroutine
	Deaf   bool          // it waits for Takes and Gate whatever becomes of its ctx
}

var errDeafHang = errors.New("stampedetest: a load that hangs and is deaf would never end: give it a Gate")

// Script lets decide decide what becomes of each load from now on; nil: nothing. decide may be called
// by many goroutines at once.
func (l *Loads[T]) Script(decide func(Run) Fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.script = decide
}

// Next prepares the fates of the next loads, one each. They come before the script.
func (l *Loads[T]) Next(fates ...Fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next = append(l.next, fates...)
}

// Fail lets the next n loads fail with err.
func (l *Loads[T]) Fail(n int, err error) {
	for range n {
		l.Next(Fate{Err: err})
	}
}

// Loader returns a loader of key: for Guard.Get.
func (l *Loads[T]) Loader(key string) func(ctx context.Context) (T, error) {
	return func(ctx context.Context) (T, error) { return l.Load(ctx, key) }
}

// Load runs one load of key: for Guard.Getter, and for loaders of the test's own.
func (l *Loads[T]) Load(ctx context.Context, key string) (v T, err error) {
	run, fate := l.begin(key)
	defer l.end(key) // also of a panic, and of Goexit
	if fate.Hang && fate.Deaf {
		panic(errDeafHang)
	}
	wait := ctx
	if fate.Deaf {
		wait = context.WithoutCancel(ctx)
	}
	if fate.Takes > 0 {
		timer := time.NewTimer(fate.Takes)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-wait.Done():
			return v, context.Cause(ctx)
		}
	}
	if fate.Gate.wait(wait) != nil {
		return v, context.Cause(ctx)
	}
	if fate.Hang {
		<-ctx.Done()
		return v, context.Cause(ctx)
	}
	switch {
	case fate.Err != nil:
		return v, fate.Err
	case fate.Panic != nil:
		panic(fate.Panic)
	case fate.Goexit:
		runtime.Goexit()
	case l.Value != nil:
		v = l.Value(key, run.KeyN)
	}
	return v, nil
}

func (l *Loads[T]) begin(key string) (run Run, fate Fate) {
	l.mu.Lock()
	of := l.tally(key)
	of.begin()
	l.all.begin()
	if of.running == 2 {
		l.overlap = append(l.overlap, key)
	}
	run = Run{Key: key, N: l.all.begun, KeyN: of.begun}
	script := l.script
	if len(l.next) > 0 {
		fate, l.next, script = l.next[0], l.next[1:], nil
	}
	l.mu.Unlock()
	if script != nil {
		fate = script(run)
	}
	if fate.Takes == 0 {
		fate.Takes = l.Takes
	}
	return run, fate
}

func (l *Loads[T]) end(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all.running--
	l.tally(key).running--
}

// tally returns the tally of key. The mutex is held.
func (l *Loads[T]) tally(key string) *tally {
	of := l.ofKey[key]
	if of == nil {
		if l.ofKey == nil {
			l.ofKey = map[string]*tally{}
		}
		of = new(tally)
		l.ofKey[key] = of
	}
	return of
}

// counts returns a copy of the tally of all loads, or of those of the one key that is given.
func (l *Loads[T]) counts(key []string) tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(key) > 1 {
		panic("stampedetest: Loads counts one key or all of them")
	}
	if len(key) == 1 {
		return *l.tally(key[0])
	}
	return l.all
}

// Count returns how many loads have begun; of key, if one is given.
func (l *Loads[T]) Count(key ...string) int { return l.counts(key).begun }

// Running returns how many loads are running now; of key, if one is given.
func (l *Loads[T]) Running(key ...string) int { return l.counts(key).running }

// Most returns how many loads have been running at one time at most; of key, if one is given.
func (l *Loads[T]) Most(key ...string) int { return l.counts(key).most }

// AssertLoads fails the test unless as many loads have begun as wanted; of key, if one is given.
func (l *Loads[T]) AssertLoads(t testing.TB, want int, key ...string) {
	t.Helper()
	if got := l.Count(key...); got != want {
		t.Errorf("%d loads%s, want %d", got, of(key), want)
	}
}

// AssertMost fails the test if more loads than allowed have been running at a time; of key, if one is
// given.
func (l *Loads[T]) AssertMost(t testing.TB, allowed int, key ...string) {
	t.Helper()
	if got := l.Most(key...); got > allowed {
		t.Errorf("%d loads%s at a time, want at most %d", got, of(key), allowed)
	}
}

// AssertOneAtATime fails the test if two loads of any one key have been running at a time.
func (l *Loads[T]) AssertOneAtATime(t testing.TB) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.overlap) > 0 {
		t.Errorf("loads of one key ran at a time: %q", l.overlap)
	}
}

// AssertIdle fails the test if a load is running.
func (l *Loads[T]) AssertIdle(t testing.TB) {
	t.Helper()
	if n := l.Running(); n > 0 {
		t.Errorf("%d loads are still running", n)
	}
}

func of(key []string) string {
	if len(key) == 0 {
		return ""
	}
	return fmt.Sprintf(" of %q", key[0])
}
