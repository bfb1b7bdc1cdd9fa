package stampedetest

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/herdgate/herdgate/stampede"
)

// Demands returns the names of the suite's tests.
func Demands(opts ...Option) (names []string) {
	for _, test := range storeTests(newConfig(opts)) {
		names = append(names, test.name)
	}
	return names
}

// Complaints runs one test of the suite in a bubble and returns what it says against the store.
func Complaints(t *testing.T, demand string, open func() stampede.Store, opts ...Option) []string {
	t.Helper()
	cfg := newConfig(append(opts, InBubble()))
	for _, test := range storeTests(cfg) {
		if test.name != demand {
			continue
		}
		var r *recorder
		synctest.Test(t, func(t *testing.T) {
			r = &recorder{TB: t}
			var done sync.WaitGroup
			done.Go(func() { test.run(newCheck(r, open(), cfg)) }) // may end with Goexit
			done.Wait()
		})
		return r.said
	}
	t.Fatalf("the suite has no test %s", demand)
	return nil
}

// recorder is a testing.TB that remembers failures instead of failing.
type recorder struct {
	testing.TB

	mu   sync.Mutex // protects said
	said []string
}

func (r *recorder) say(s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, s)
}

func (r *recorder) Error(args ...any)                 { r.say(fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.say(fmt.Sprintf(format, args...)) }
func (r *recorder) Fatal(args ...any)                 { r.Error(args...); runtime.Goexit() }
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...); runtime.Goexit() }

// OnlySilence leaves out all tests but those of Silence.
func OnlySilence() Option { return option(func(c *config) { c.only = silenceTests }) }
