package stampede

import (
	"errors"
	"fmt"
)

// Errors that Get, Fetch and the other methods of a guard return, and that a caller can match with
// errors.Is. A loader's own error passes through untouched.
var (
	// ErrNotFound is for loaders to return: there is no such thing. It is remembered for
	// Policy.NotFoundTTL and returned to callers meanwhile. It may be wrapped; what is remembered is
	// ErrNotFound alone.
	ErrNotFound = errors.New("stampede: not found")
	// ErrLoadTimeout: the load took longer than Options.LoadTimeout and was given up. It is also the
	// cause of the loader's ctx.
	ErrLoadTimeout = errors.New("stampede: load timed out")
	// ErrWaitTimeout: another pod's load did not end within Options.WaitTimeout, and
	// Options.OnWaitTimeout is FailWait.
	ErrWaitTimeout = errors.New("stampede: timed out waiting for another pod's load")
	// ErrLeaseLost is the cause of a loader's ctx whose lease now belongs to another pod. Callers
	// never get it.
	ErrLeaseLost = errors.New("stampede: lease lost to another pod")
	// ErrOverloaded: no load was started, because of Options.MaxLoads, FleetLoads or
	// MaxAbandoned, or MaxWaiters wait for it already.
	ErrOverloaded = errors.New("stampede: too many loads")
	// ErrReentrant: a loader asked for the key that it is loading. It is noticed only through the
	// loader's own ctx: a loader that asks with another ctx waits until LoadTimeout.
	ErrReentrant = errors.New("stampede: loader waits for its own key")
	// ErrClosed: the guard was closed and had nothing to serve.
	ErrClosed = errors.New("stampede: guard is closed")
	// ErrNoPrevious: a loader reported Load.NotModified, but there is no previous value.
	ErrNoPrevious = errors.New("stampede: not modified, but there is no previous value")
	// ErrGoexit: the loader ended its goroutine with runtime.Goexit.
	ErrGoexit = errors.New("stampede: loader called runtime.Goexit")
	// ErrBadKey: the key is empty.
	ErrBadKey = errors.New("stampede: empty key")
	// ErrNilLoader: the loader is nil.
	ErrNilLoader = errors.New("stampede: nil loader")
	// ErrNoGuard: the guard is nil or its zero value; guards are made by New.
	ErrNoGuard = errors.New("stampede: guard not made by New")
	// ErrTooLarge: an encoded value exceeds Options.MaxValueSize. Only Set returns it; a loaded value
	// that is too large is served but not stored.
	ErrTooLarge = errors.New("stampede: value too large")
	// ErrBadTag: a tag is empty or longer than MaxTagSize, or a load has more than MaxTags of them. Only
	// ExpireTag returns it; a loaded value with such tags is served but not stored.
	ErrBadTag = errors.New("stampede: bad tags")
	// ErrTagsOff: tags are used without Options.Tags. Only ExpireTag returns it; a loaded value with tags is
	// served but not stored.
	ErrTagsOff = errors.New("stampede: Options.Tags is off")
	// ErrReadOnly: the guard was switched to ReadOnly or Bypass. Only Set returns it; what was there
	// before may still be served.
	ErrReadOnly = errors.New("stampede: guard is read-only")
)

// Errors of stores.
var (
	// ErrUnavailable: the store does not answer, and was therefore not asked.
	ErrUnavailable = errors.New("stampede: store unavailable")
	// ErrOutcomeUnknown: the store did not answer; what was asked for may have been done, or may
	// still be.
	ErrOutcomeUnknown = errors.New("stampede: no answer from the store, outcome unknown")
)

// PanicError is what callers get when the loader panicked.
type PanicError struct {
	Value any    // what the loader panicked with
	Stack []byte // of the loader's goroutine
}

// Error names the panic's value and shows the stack.
func (p *PanicError) Error() string {
	return fmt.Sprintf("stampede: loader panicked: %v\n\n%s", p.Value, p.Stack)
}

// Unwrap returns the panic's value if it is an error, so that errors.Is sees http.ErrAbortHandler, say.
func (p *PanicError) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}
