package redisstore

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/herdgate/herdgate/internal/entry"
	"github.com/herdgate/herdgate/stampede"
)

// Options configures a Store. The zero value and nil are good defaults.
type Options struct {
	// Timeout bounds each request to Redis, connecting included, whatever the deadline of the ctx that
	// a method is called with; the nearer of the two holds. It should leave room for a few round trips,
	// because a new connection needs four. Zero: 250 ms. Negative: New returns an error.
	Timeout time.Duration

	// MaxConns is how many requests other than reads may be under way at once, each on a connection of
	// its own; others wait for their turn within their time. Reads need six connections more at most, the
	// subscription one. In a cluster it counts for each node. Zero: 10 per CPU (GOMAXPROCS), at least 16.
	// Negative: New returns an error.
	MaxConns int

	// WakeSize is up to which size, in bytes and with its header of 84, a new entry is sent along with the message
	// that wakes those who wait for it, so that they need not ask. It costs Redis the bytes once for each
	// waiting pod, which would read them otherwise, and in a cluster once for each node. Zero: 4096.
	// Negative: never.
	WakeSize int

	// MaxEntrySize is up to which size, in bytes and with its header of 84, an entry is read and written.
	// Of anything larger under an entry's name, which somebody else must have put there, no more than that
	// is asked for; it is a miss with a Fault, and the next commit replaces it. A larger entry is not
	// written: Commit answers stampede.NotStored, Set fails, both with stampede.ErrTooLarge. So it should be at
	// least 84 more than stampede.Options.MaxValueSize of each guard on the Store, and the same wherever
	// entries are shared. Keep it to what can be read within Timeout. Zero: 8 MiB and 84, as guards store up
	// to 8 MiB by default. Negative: no bound. Less than 84: New returns an error.
	MaxEntrySize int

	// MaxTags bounds of how many tags of a space the last expiry is remembered, about 120 bytes each. When there are
	// more, entries from before the oldest of these expiries count as expired, if they have tags. It should be the
	// same wherever entries are shared. Zero: stampede.DefaultMaxTags, 100,000. Negative: New returns an error.
	MaxTags int

	// Logger receives changes of state and faults of the set-up, nothing per request. Nil:
	// slog.Default().
	Logger *slog.Logger

	// Observer is told stampede.EventStoreDown when Redis, or a node of a cluster, stops answering, with
	// the error that showed it, and stampede.EventStoreUp when all of it answers again. Calls come one at a
	// time and in order, on a goroutine of the Store; Close waits for a call that is under way, so it must
	// not be called from there. Nil: nobody is told.
	Observer stampede.Observer
}

// DefaultTimeout is what Options.Timeout is when it is zero.
const DefaultTimeout = 250 * time.Millisecond

// DefaultWakeSize is what Options.WakeSize is when it is zero.
const DefaultWakeSize = 4096

// DefaultMaxEntrySize is what Options.MaxEntrySize is when it is zero.
const DefaultMaxEntrySize = 8<<20 + entry.HeaderSize

// withDefaults returns a copy of o with the defaults filled in.
func (o *Options) withDefaults() (Options, error) {
	var opt Options
	if o != nil {
		opt = *o
	}
	var errs []error
	if opt.Timeout < 0 {
		errs = append(errs, fmt.Errorf("redisstore: Options.Timeout is %v: it must not be negative", opt.Timeout))
	}
	if opt.MaxConns < 0 {
		errs = append(errs, fmt.Errorf("redisstore: Options.MaxConns is %d: it must not be negative", opt.MaxConns))
	}
	if opt.MaxTags < 0 {
		errs = append(errs, fmt.Errorf("redisstore: Options.MaxTags is %d: it must not be negative", opt.MaxTags))
	}
	if opt.MaxEntrySize > 0 && opt.MaxEntrySize < entry.HeaderSize {
		errs = append(errs, fmt.Errorf("redisstore: Options.MaxEntrySize is %d: the header alone has %d bytes", opt.MaxEntrySize, entry.HeaderSize))
	}
	if opt.Timeout == 0 {
		opt.Timeout = DefaultTimeout
	}
	if opt.MaxConns == 0 {
		opt.MaxConns = max(10*runtime.GOMAXPROCS(0), 16)
	}
	if opt.WakeSize == 0 {
		opt.WakeSize = DefaultWakeSize
	}
	if opt.MaxEntrySize == 0 {
		opt.MaxEntrySize = DefaultMaxEntrySize
	}
	opt.MaxEntrySize = max(opt.MaxEntrySize, -1)
	if opt.MaxTags == 0 {
		opt.MaxTags = stampede.DefaultMaxTags
	}
	if opt.Logger == nil {
		opt.Logger = slog.Default()
	}
	return opt, errors.Join(errs...)
}
