package stampede_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/stampedetest"
)

// A lease that the store did not take back stands until it ends. The pod that held it knows that there
// is nobody to follow.
func TestPodDoesNotFollowItsOwnLease(t *testing.T) {
	fail := func(context.Context) (int, error) { return 0, errBoom }
	for name, c := range map[string]struct {
		ending stampedetest.Step
		load   func(context.Context) (int, error)
	}{
		"after a load that failed":            {stampedetest.StepFail, fail},
		"after a commit without an answer":    {stampedetest.StepCommit, value(1)},
		"after a value that cannot be stored": {stampedetest.StepRelease, value(1)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := stampede.Options{Policy: steady, Lease: 10 * time.Second}
				if c.ending == stampedetest.StepRelease {
					o.MaxValueSize = 1
				}
				store := new(bytesStore)
				p := newPod(t, store, o)
				p.net.Script(func(call stampedetest.Call) stampedetest.Fault {
					switch call.Step {
					case stampedetest.StepFail, stampedetest.StepCommit, stampedetest.StepRelease:
						return stampedetest.Fault{Err: errors.New("not reached")}
					}
					return stampedetest.Fault{}
				})
				_ = get(t.Context(), p.Guard, "k", c.load)
				synctest.Wait()
				get(t.Context(), p.Guard, "k", value(2)).is(t, 2, 0)
			})
		})
	}
}
