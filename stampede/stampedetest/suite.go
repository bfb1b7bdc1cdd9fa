package stampedetest

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// TestStore checks a store against the contract of [stampede.Store], in subtests whose names say
// what is asked for. open returns a store to test; it is called once for each subtest and may return
// the same one every time, since no two subtests use the same keys. What it opens it closes with
// t.Cleanup.
//
// Without options time is real, and a run spends some seconds waiting, less with [Parallel]. A store
// whose clock can be moved is tested faster, and more exactly, with [InBubble] or [Advance].
func TestStore(t *testing.T, open func(t *testing.T) stampede.Store, opts ...Option) {
	t.Helper()
	cfg := newConfig(opts)
	for _, test := range storeTests(cfg) {
		t.Run(test.name, func(t *testing.T) {
			body := func(t *testing.T) { test.run(newCheck(t, open(t), cfg)) }
			switch {
			case cfg.bubble:
				synctest.Test(t, body)
				return
			case cfg.parallel:
				t.Parallel()
			}
			body(t)
		})
	}
}

// Option changes what TestStore does.
type Option interface{ apply(*config) }

type option func(*config)

func (o option) apply(c *config) { o(c) }

// InBubble runs each subtest, and open, in a bubble of testing/synctest. Everything that the store
// does must be of the bubble: no goroutine and no connection from outside.
func InBubble() Option { return option(func(c *config) { c.bubble = true }) }

// Parallel runs the subtests in parallel, where time is real: most of a run is waiting. It is not for
// stores that share what Advance or Silence act on.
func Parallel() Option { return option(func(c *config) { c.parallel = true }) }

// Advance tells how time passes for a store whose clock does not go by itself: fn lets d pass for
// store. Together with InBubble it must also sleep for d if the store looks at the bubble's clock.
func Advance(fn func(store stampede.Store, d time.Duration)) Option {
	return option(func(c *config) { c.advance = fn })
}

// Garbage adds tests of entries that cannot be decoded: fn overwrites the entry of key with bytes
// that make no sense, and leaves its remaining life as it is.
func Garbage(fn func(t testing.TB, store stampede.Store, key stampede.Key)) Option {
	return option(func(c *config) { c.garbage = fn })
}

// Silence adds tests of a store that does not answer: fn makes whatever is behind store swallow all
// it is sent, or execute it later, until restore is called.
func Silence(fn func(t testing.TB, store stampede.Store) (restore func())) Option {
	return option(func(c *config) { c.silence = fn })
}

type config struct {
	bubble   bool
	parallel bool
	advance  func(stampede.Store, time.Duration)
	garbage  func(testing.TB, stampede.Store, stampede.Key)
	silence  func(testing.TB, stampede.Store) func()
	only     []storeTest // for the tests of the suite
}

func newConfig(opts []Option) *config {
	cfg := new(config)
	for _, o := range opts {
		o.apply(cfg)
	}
	if cfg.bubble && cfg.advance == nil {
		cfg.advance = func(_ stampede.Store, d time.Duration) { <-time.After(d) }
	}
	return cfg
}

// storeTest is one demand of the contract.
type storeTest struct {
	name string
	run  func(*check)
}

func storeTests(cfg *config) []storeTest {
	if cfg.only != nil {
		return cfg.only
	}
	tests := slices.Concat(readTests, electTests, commitTests, leaseTests, backoffTests, setTests, deleteTests,
		expireTests, markedTests, watchTests, keyTests, answerTests, raceTests, tagTests)
	if cfg.garbage != nil {
		tests = append(tests, garbageTests...)
	}
	if cfg.silence != nil {
		tests = append(tests, silenceTests...)
	}
	return tests
}
