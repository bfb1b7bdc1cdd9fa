package reports_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/stampedetest"
)

// medusajs/medusa#15143: all pods polled in step.
func TestPodsDoNotPollInStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pods, bin = 200, 10 * time.Millisecond
		fl, loads := fleet(t, pods, new(stampede.MemoryStore), stampede.Options{Name: "n"}), numbered(5*time.Second)
		var mu sync.Mutex
		bins, polls := map[time.Duration]int{}, 0
		epoch := time.Now()
		for _, f := range fl.Faulty {
			f.Script(func(c stampedetest.Call) (f stampedetest.Fault) {
				switch at := time.Since(epoch); {
				case c.Step == stampedetest.StepWatch:
					f.Err = stampede.ErrUnavailable // no push
				case c.Step == stampedetest.StepElect && at > 500*time.Millisecond && at < 5*time.Second:
					mu.Lock()
					defer mu.Unlock()
					bins[at.Truncate(bin)]++
					polls++
				}
				return f
			})
		}
		for _, a := range fl.GetAll(t.Context(), 2, "k", loads.Loader("k")) {
			if a.Value != 1 || a.Err != nil || a.Took > 5250*time.Millisecond {
				t.Errorf("Get = %d, %v after %v", a.Value, a.Err, a.Took)
			}
		}
		loads.AssertLoads(t, 1)
		for at, n := range bins {
			if n > pods/5 {
				t.Errorf("%d of %d pods polled within %v, at %v", n, pods, bin, at)
			}
		}
		if polls < pods || polls > pods*5*50 {
			t.Errorf("%d polls by %d pods in 5 s", polls, pods)
		}
	})
}

// redisson/redisson#763, redisson/redisson#5761, redisson/redisson#5070: a wake-up was missed, and who waited hung or ran out of time.
//
// Where the subscription stands and a message is lost all the same, who waits looks again when the lease would end: P3's poll interval is for
// a push that is known not to work.
func TestAMissedMessageCostsOneLeaseAtMost(t *testing.T) {
	for name, meddle := range map[string]func(f *stampedetest.Faulty){
		"all messages lost": func(f *stampedetest.Faulty) { f.Mute(true) },
		"lost now and then": func(f *stampedetest.Faulty) {
			f.Script(func(c stampedetest.Call) stampedetest.Fault {
				f.Mute(c.Step == stampedetest.StepElect && c.N%2 == 0)
				return stampedetest.Fault{}
			})
		},
		"no subscription": func(f *stampedetest.Faulty) {
			f.Script(func(c stampedetest.Call) (x stampedetest.Fault) {
				if c.Step == stampedetest.StepWatch {
					x.Err = errSource
				}
				return x
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fl := fleet(t, 4, new(stampede.MemoryStore), stampede.Options{Name: "n"})
				for _, f := range fl.Faulty[1:] {
					meddle(f)
				}
				for _, takes := range []time.Duration{50 * time.Millisecond, 900 * time.Millisecond, 4 * time.Second} {
					loads, key := numbered(takes), takes.String()
					for _, a := range fl.GetAll(t.Context(), 25, key, loads.Loader(key)) {
						if a.Value != 1 || a.Err != nil || a.Took > takes+time.Second+50*time.Millisecond {
							t.Errorf("Get = %d, %v after %v", a.Value, a.Err, a.Took)
						}
					}
					loads.AssertLoads(t, 1)
				}
			})
		})
	}
}

// hashicorp/consul#7523: all who waited woke up and contended for the lock again.
// nginx/nginx#1189: a fixed poll of 500 ms made short loads slow.
func TestWaitersAreWokenWithTheValueAndTakeNoLease(t *testing.T) {
	for _, takes := range []time.Duration{time.Millisecond, 50 * time.Millisecond, 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			fl, loads := fleet(t, 50, new(stampede.MemoryStore), stampede.Options{Name: "n"}), numbered(takes)
			for _, a := range fl.GetAll(t.Context(), 4, "k", loads.Loader("k")) {
				if a.Value != 1 || a.Err != nil || a.Took != takes {
					t.Errorf("Get = %d, %v after %v", a.Value, a.Err, a.Took)
				}
			}
			synctest.Wait()
			won := uint64(0)
			for i, pod := range fl.Pods {
				won += pod.Stats().LeasesWon
				// One when it came, one once it was subscribed, one when it was woken, and one for each 50 ms of a long wait at the most.
				if n := fl.Faulty[i].Calls(stampedetest.StepElect); n > 4+int(takes/time.Second)*2 {
					t.Errorf("%d elections in a pod", n)
				}
			}
			loads.AssertLoads(t, 1)
			if won != 1 {
				t.Errorf("%d leases were taken", won)
			}
		})
	}
}
