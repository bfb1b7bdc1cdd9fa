package e2e_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// recovery waits until each pod is served by Redis again, and returns how long that took at most since Redis was back. A pod is
// when its breaker is closed, what it loads is stored, what is stored is read, and all changes work. Each is tried until it does:
// on a busy machine now and then one is too late.
func recovery(t *testing.T, c *callers, pods []*pod, back time.Time) time.Duration {
	t.Helper()
	var wg sync.WaitGroup
	for _, p := range pods {
		wg.Go(func() {
			for what, check := range signsOfLife(c, p) {
				for {
					err := check()
					if err == nil {
						break
					}
					busy := machine.busy(back, time.Now())
					if !busy && tooLong(back, time.Second) {
						t.Errorf("%s: %v after Redis was back: %s: %v", p.name, time.Since(back), what, err)
						return
					}
					if time.Since(back) > 30*time.Second { // and busy all the time
						t.Errorf("%s: not recovered after %v on a busy machine: %s: %v", p.name, time.Since(back), what, err)
						return
					}
					wait(beat)
				}
			}
		})
	}
	wg.Wait()
	return time.Since(back)
}

func signsOfLife(c *callers, p *pod) map[string]func() error {
	signs := changesOf(p)
	signs["breaker"] = func() error {
		if p.isDown() {
			return errors.New("is open")
		}
		return nil
	}
	round := 0
	signs["load"] = func() error {
		round++
		x := c.call(p, cold, fmt.Sprintf("%s-again-%s-%d", cold, p.name, round))
		if x.err == nil && !x.result.Stored {
			return errors.New("was not stored")
		}
		return x.err
	}
	for i := range keysOfAKind {
		key := fmt.Sprintf("%s%d", hot, i)
		signs[key] = func() error {
			x := c.call(p, hot, key)
			if x.err == nil && x.result.From != stampede.FromStore {
				return fmt.Errorf("is from %v, not from the store", x.result.From)
			}
			return x.err
		}
	}
	return signs
}
