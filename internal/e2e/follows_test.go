package e2e_test

import (
	"sync"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// follows are the times in which pods waited for loads of other pods.
type follows struct {
	mu  sync.Mutex // protects all
	all []follow
}

type follow struct {
	pod, key   string
	from, till time.Time
}

// of returns what observes the guard of a pod.
func (f *follows) of(pod string) stampede.Observer {
	return stampede.ObserverFunc(func(e stampede.Event) {
		if e.Kind != stampede.EventWaitedForPod {
			return
		}
		now := time.Now()
		f.mu.Lock()
		defer f.mu.Unlock()
		f.all = append(f.all, follow{pod, e.Key, now.Add(-e.Took), now})
	})
}

// took says whether the caller's pod waited for another one during a call.
func (f *follows) took(x *called) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, y := range f.all {
		if y.pod == x.pod && y.key == x.key && y.from.Before(x.ended) && y.till.After(x.begun) {
			return true
		}
	}
	return false
}
