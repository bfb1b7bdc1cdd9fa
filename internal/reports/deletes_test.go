package reports_test

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// dgraph-io/ristretto#52: Set went through a queue, Delete did not, and Get returned what had been deleted.
func TestWhatWasDeletedIsNotServed(t *testing.T) {
	eachStore(t, func(t *testing.T, store stampede.Store) {
		fl := fleet(t, 2, store, stampede.Options{Policy: exactly(time.Minute, time.Minute)})
		for i := range 40 {
			key, a, b := strconv.Itoa(i), fl.Pods[i%2], fl.Pods[(i+1)%2]
			loads := numbered(0)
			must(t, a.Set(t.Context(), key, 50))
			must(t, b.Delete(t.Context(), key))
			wants(t, a, key, loads.Loader(key), 1)
			must(t, a.Delete(t.Context(), key))
			wants(t, b, key, loads.Loader(key), 2)
			must(t, b.Set(t.Context(), key, 51))
			wants(t, a, key, forbidden(t), 51)
			loads.AssertLoads(t, 2)
		}
	})
}

// Shopify/identity_cache#373: the key was invalidated while one client held the lock; another took a new one, and who waited for the
// first went on waiting for it.
func TestWhoWaitsForALeaseThatADeleteEndedFollowsTheNextOne(t *testing.T) {
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fl := fleet(t, 3, new(stampede.MemoryStore), stampede.Options{Name: "n"})
				loads := deaf(10 * time.Second)
				begun := time.Now()
				quick := func(context.Context) (int, error) {
					time.Sleep(time.Second)
					return 99, nil
				}
				crowd(4, func(i int) {
					time.Sleep(time.Duration(i) * 100 * time.Millisecond)
					switch i {
					case 0: // the leader from before the change, whose load is not waited for either
						wants(t, fl.Pods[0], "k", loads.Loader("k"), 99)
						if name == "Set" { // it finds that when its lease is to be renewed
							atMost(t, begun, 400*time.Millisecond)
						} else {
							atMost(t, begun, 300*time.Millisecond+time.Second)
						}
					case 1:
						wants(t, fl.Pods[1], "k", quick, 99)
						atMost(t, begun, 200*time.Millisecond+time.Second)
					case 2:
						must(t, change(t.Context(), fl.Pods[2], "k"))
						wants(t, fl.Pods[2], "k", quick, 99)
						atMost(t, begun, 200*time.Millisecond+time.Second)
					case 3:
						wants(t, fl.Pods[2], "k", quick, 99)
						atMost(t, begun, 300*time.Millisecond+time.Second)
					}
				})
				wants(t, fl.Pods[0], "k", forbidden(t), 99)
			})
		})
	}
}

// Shopify/identity_cache#373, again: under constant invalidation the queue before the lock grew.
func TestConstantDeletesDoNotStarveReaders(t *testing.T) {
	for _, pods := range []int{1, 4} {
		t.Run(strconv.Itoa(pods), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const load = 200 * time.Millisecond
				fl := fleet(t, pods, new(stampede.MemoryStore), stampede.Options{Name: "n"})
				epoch := time.Now()
				age := func(context.Context) (int, error) { // when it began
					began := int(time.Since(epoch))
					time.Sleep(load)
					return began + 1, nil
				}
				stop := time.Now().Add(5 * time.Second)
				crowd(101, func(i int) {
					if i == 0 {
						for ; time.Now().Before(stop); time.Sleep(50 * time.Millisecond) {
							must(t, fl.Pods[0].Delete(t.Context(), "k"))
						}
						return
					}
					time.Sleep(time.Duration(i) * 3 * time.Millisecond)
					for time.Now().Before(stop) {
						asked := time.Now()
						v, err := fl.Pods[i%pods].Get(t.Context(), "k", age)
						if err != nil {
							t.Error(err)
						}
						if began := epoch.Add(time.Duration(v - 1)); began.Before(asked) {
							t.Errorf("asked at %v, the value is of %v", asked.Sub(epoch), began.Sub(epoch))
						}
						atMost(t, asked, 2*load)
					}
				})
			})
		})
	}
}
