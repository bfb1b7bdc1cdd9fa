package lock

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Options configures a [Locker]. The zero value and nil are good defaults. How long a lock is held (its
// lease) is no option: each Do, Acquire and TryAcquire says it. A duration of more than a year counts as a
// year.
type Options struct {
	// Name is the namespace of the locks in Redis and a label in events: lockers of the same Name, in
	// whatever process, share their locks. It must not hold '{' or '}'. Empty: "lock".
	Name string

	// Timeout bounds each request to a server, connecting included. Zero: 250 ms. Negative: New returns an
	// error.
	Timeout time.Duration

	// NodeTimeout bounds each request to one of several servers (Redlock) instead of Timeout: waiting long
	// for one that is down would use up the lease that the others granted. Zero: a twentieth of the lease,
	// but at least 10 ms and at most Timeout. Negative: New returns an error.
	NodeTimeout time.Duration

	// WaitTimeout is how long Acquire and Do wait for a lock at most, whatever their ctx; the nearer of the
	// two holds. It has nothing to do with the lease. Zero: 30 s. Negative: as long as ctx lets them.
	WaitTimeout time.Duration

	// Tries is how often Acquire and Do ask for a lock at most. Zero: as often as there is time for.
	// Negative: New returns an error.
	Tries int

	// Poll is the longest pause between two tries where nobody tells that a lock was released: the pauses
	// are random and grow from a twelfth of it. Where the release is told (one server or Cluster, once the
	// subscription stands), it is four times as long and only there for messages that are lost. Zero:
	// 250 ms. Less than 1 ms counts as 1 ms. Negative: New returns an error.
	Poll time.Duration

	// MaxHold is how long a lock that is kept (by Do or Lock.Keep) may be held in all: then its ctx ends and
	// it is renewed no more, so that a holder that hangs does not lock out all others for ever. Zero: 1 h.
	// Negative: no end.
	MaxHold time.Duration

	// Fences asks for a fencing number with each lock of a locker on several servers, which have to be
	// initialised once: see [Locker.InitFences]. It costs two more round trips. With one server there is always one, and
	// it costs none; the field does not matter there.
	Fences bool

	// Observer is told what happens. Nil: nobody is.
	Observer Observer
}

// Defaults of Options.
const (
	DefaultName        = "lock"
	DefaultTimeout     = 250 * time.Millisecond
	DefaultWaitTimeout = 30 * time.Second
	DefaultPoll        = 250 * time.Millisecond
	DefaultMaxHold     = time.Hour
)

const (
	// MinLease is the shortest lease that may be asked for. Useful ones are much longer than a round trip.
	MinLease = 10 * time.Millisecond
	// MaxLease is the longest. Useful ones are much shorter: others are locked out for so long by a holder
	// that dies.
	MaxLease = 365 * 24 * time.Hour
)

const (
	// minPoll keeps waiters from asking without a pause.
	minPoll = time.Millisecond
	// maxDuration keeps sums of durations from overflowing.
	maxDuration = 365 * 24 * time.Hour
)

// withDefaults returns a copy of o with the defaults filled in, and all that is wrong with it.
func (o *Options) withDefaults() (Options, error) {
	var opt Options
	if o != nil {
		opt = *o
	}
	var errs []error
	if strings.ContainsAny(opt.Name, "{}") {
		errs = append(errs, fmt.Errorf("%w: Options.Name is %q: it must not hold '{' or '}'", ErrMisuse, opt.Name))
	}
	for name, d := range map[string]time.Duration{"Timeout": opt.Timeout, "NodeTimeout": opt.NodeTimeout, "Poll": opt.Poll} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("%w: Options.%s is %v: it must not be negative", ErrMisuse, name, d))
		}
	}
	if opt.Tries < 0 {
		errs = append(errs, fmt.Errorf("%w: Options.Tries is %d: it must not be negative", ErrMisuse, opt.Tries))
	}
	if opt.Name == "" {
		opt.Name = DefaultName
	}
	setDefault(&opt.Timeout, DefaultTimeout)
	setDefault(&opt.WaitTimeout, DefaultWaitTimeout)
	setDefault(&opt.Poll, DefaultPoll)
	setDefault(&opt.MaxHold, DefaultMaxHold)
	opt.Poll = max(opt.Poll, minPoll)
	opt.NodeTimeout = min(opt.NodeTimeout, maxDuration)
	return opt, errors.Join(errs...)
}

func setDefault(d *time.Duration, to time.Duration) {
	if *d == 0 {
		*d = to
	}
	*d = min(*d, maxDuration)
}

// checkLease says what is wrong with a lease.
func checkLease(ttl time.Duration) error {
	if ttl < MinLease || ttl > MaxLease {
		return fmt.Errorf("%w: a lease of %v: it must be at least %v and at most %v", ErrMisuse, ttl, MinLease, MaxLease)
	}
	return nil
}

// timeoutFor is how long a request about a lease of length ttl may take.
func (lk *Locker) timeoutFor(ttl time.Duration) time.Duration {
	switch {
	case len(lk.nodes) == 1:
		return lk.opt.Timeout
	case lk.opt.NodeTimeout > 0:
		return lk.opt.NodeTimeout
	}
	return min(max(ttl/20, 10*time.Millisecond), lk.opt.Timeout)
}
