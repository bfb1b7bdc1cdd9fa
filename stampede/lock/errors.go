package lock

import (
	"errors"
	"fmt"
	"time"
)

// Errors that a caller can tell apart with errors.Is. Those about a lock carry its name.
var (
	// ErrNotAcquired: somebody else holds the lock. From Acquire and Do it means that waiting came to its
	// end: by Options.WaitTimeout, by Options.Tries, or by ctx, whose error is then matched, too.
	ErrNotAcquired = errors.New("lock: held by another")
	// ErrLost: the lock was held and is not any more. See [LostError].
	ErrLost = errors.New("lock: lost")
	// ErrReleased: the holder has released the lock. It is the cause of the ctx of a lock that was kept, and what
	// further calls on the lock return.
	ErrReleased = errors.New("lock: released")
	// ErrUnavailable: Redis did not answer, or could not do what it was asked for. Who holds the lock is
	// unknown. What was asked for may still be done; what that might grant is given back.
	ErrUnavailable = errors.New("lock: Redis is not available")
	// ErrTooFewNodes: of several servers, fewer than a majority answered.
	ErrTooFewNodes = errors.New("lock: too few servers answer")
	// ErrNoFences: too few servers know what fencing numbers were given out, so no further one can be. See
	// [Locker.InitFences] for the first time, and [Locker.SeedFences] for later.
	ErrNoFences = errors.New("lock: too few servers know the fencing numbers")
	// ErrStale: a resource refused an older fencing number than it has seen.
	ErrStale = errors.New("lock: an older fencing number")
	// ErrMisuse: the call or the options can never work: an empty name, a lease that is too short, an even
	// number of servers, two clients of one server, a lock that the ctx at hand already holds.
	ErrMisuse = errors.New("lock: misuse")
	// ErrClosed: the locker was closed.
	ErrClosed = errors.New("lock: locker is closed")
)

// Reason says why a lock was lost.
type Reason uint8

// Reasons for a loss.
const (
	Expired   Reason = iota // not renewed in time: no answers, or the process was paused
	Taken                   // found with another owner
	Gone                    // found absent: deleted, evicted, forgotten in a restart or failover
	HoldLimit               // held for Options.MaxHold; it goes on for the rest of its lease, but is not renewed
	Closed                  // the locker was closed, which ends renewals
)

// String says it in words.
func (r Reason) String() string {
	switch r {
	case Expired:
		return "not renewed in time"
	case Taken:
		return "another holds it"
	case Gone:
		return "it is gone from Redis"
	case HoldLimit:
		return "held for as long as MaxHold allows"
	case Closed:
		return "the locker was closed"
	}
	return "unknown"
}

// LostError says that a lock was lost: which, why, and since when. It matches ErrLost, and is the cause
// (context.Cause) of the ctx of a lock that is kept.
type LostError struct {
	Name   string
	Reason Reason
	Held   time.Time // until then it was held for sure
	Found  time.Time // when the loss was found
	// Err is what kept it from being renewed, if known. It is not unwrapped: a lock that is lost because Redis
	// did not answer is ErrLost and not ErrUnavailable.
	Err error
}

// Error says all of it.
func (e *LostError) Error() string {
	s := fmt.Sprintf("lock: lost %q: %s; held for sure until %s, found lost %s later",
		short(e.Name), e.Reason, e.Held.Format("15:04:05.000"), e.Found.Sub(e.Held).Round(time.Millisecond))
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is reports that e is an ErrLost.
func (*LostError) Is(target error) bool { return target == ErrLost }

// about adds the lock's name to err.
func about(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w (lock %q)", err, short(name))
}

// unavailable makes an ErrUnavailable of what a request ended with.
func unavailable(err error) error { return fmt.Errorf("%w: %w", ErrUnavailable, err) }

// short cuts a name for an error's text.
func short(name string) string {
	const enough = 64
	if len(name) <= enough {
		return name
	}
	return name[:enough] + "..."
}
