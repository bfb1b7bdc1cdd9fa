package stampedetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// Step names a method of [stampede.Store].
type Step string

// The steps that Faulty meddles with.
const (
	StepRead    Step = "Read"
	StepElect   Step = "Elect"
	StepCommit  Step = "Commit"
	StepRenew   Step = "Renew"
	StepFail    Step = "Fail"
	StepRelease Step = "Release"
	StepSet     Step = "Set"
	StepDelete  Step = "Delete"
	StepExpire  Step = "Expire"
	StepWatch   Step = "Watch"
	StepDrops   Step = "Drops" // counted only
	StepHealth  Step = "Health"

	StepTagTime   Step = "TagTime"
	StepTags      Step = "Tags"
	StepExpireTag Step = "ExpireTag"
	StepTagDrops  Step = "TagDrops" // counted only
)

// Call is one call of a step, as a script sees it.
type Call struct {
	Step Step
	Key  stampede.Key   // Delete, Expire: the first; steps about tags: the space alone
	Keys []stampede.Key // Delete, Expire
	N    int            // this is the N-th call of the step, from 1 on
	KeyN int            // and the KeyN-th with this key, from 1 on

	Tags []string // Tags, ExpireTag

	Ballot stampede.Ballot // Elect
	Lease  stampede.Stamp  // Commit, Renew, Fail, Release
}

// Fault is what becomes of a call. The zero Fault is none: the call is executed and answered.
//
// What is set happens in the order of the fields. Where a call has to wait for longer than its ctx
// lasts, it ends there with an error, as the contract demands, unless Deaf is set: before its
// execution it is then never executed, after it the answer is lost.
type Fault struct {
	Delay time.Duration // the call is executed so much later
	Gate  *Gate         // it is not executed before the gate opens

	// Copy receives the call, to be executed once more, or for the first time, whenever the test
	// likes: what a network does to commands that it holds up.
	Copy *Copy

	Err error // the call is not executed, and returns this

	// Full makes Commit give back the lease and return NotStored with this error, and Set return it,
	// without writing: a store that is full or read-only. For other steps it is as Err.
	Full error

	// EndLease ends the lease before the call is executed, for Elect after. Those who wait are told of
	// it, as they are not when a lease runs out. Only for Elect, Commit, Renew, Fail, Release.
	EndLease bool
	// Steal does as EndLease, and somebody else takes the lease for so long.
	Steal time.Duration

	Reply *Gate // the call is executed, but its answer does not arrive before the gate opens
	Lost  error // the call is executed, but its answer is lost: it returns this instead

	// Ghost makes a lease whose answer was lost stay until it runs out. Without, Faulty keeps the
	// contract and gives it back before the next call that it executes.
	Ghost bool
	// Deaf makes the waiting go on beyond the end of ctx, against the contract.
	Deaf bool
}

// Copy is a call that is kept to be executed later: see Fault.Copy. It may be used for one call.
type Copy struct {
	mu   sync.Mutex // protects exec
	exec func(context.Context) error
}

var errNoCall = errors.New("stampedetest: no call was made to copy")

func (c *Copy) keep(exec func(context.Context) error) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.exec = exec
}

// Execute executes the call, as often as it is called, on the store behind Faulty and whatever state
// Faulty is in. It returns an error if there was no call yet, or if the store returns one. An answer
// goes to nobody: an elect, say, leaves a lease that its pod knows nothing of.
func (c *Copy) Execute(ctx context.Context) error {
	c.mu.Lock()
	exec := c.exec
	c.mu.Unlock()
	if exec == nil {
		return errNoCall
	}
	return exec(ctx)
}
