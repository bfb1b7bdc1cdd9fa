package stampede_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// fired returns the share of versions that a new pod each would load early.
func fired(beta float64, e stampede.Entry) float64 {
	const n = 100_000
	count := 0
	for range n / 1000 {
		pod := stampede.NewEarlyRefresh(beta)
		for range 1000 {
			e.Stamp = stampede.NewStamp()
			if pod.Due(&e) {
				count++
			}
		}
	}
	return float64(count) / n
}

func TestEarlyRefreshFiresWithTheProbabilityOfItsTheory(t *testing.T) {
	for _, c := range []struct{ beta, gapInLoads float64 }{{1, 0.5}, {1, 1}, {1, 2}, {2, 1}, {0.5, 1}} {
		e := stampede.Entry{TTL: time.Hour, Took: time.Second, Left: time.Duration(c.gapInLoads * float64(time.Second))}
		want := math.Exp(-c.gapInLoads / c.beta)
		if p := fired(c.beta, e); math.Abs(p-want) > 0.01 {
			t.Errorf("beta %v, %v load times before the end: %.3f, want %.3f", c.beta, c.gapInLoads, p, want)
		}
	}
}

func TestEarlyRefreshNeverFiresInTheFirstHalfOfTTL(t *testing.T) {
	e := stampede.Entry{TTL: time.Second, Took: time.Hour, Left: time.Second/2 + time.Millisecond}
	if p := fired(1, e); p != 0 {
		t.Errorf("a slow loader: %v", p)
	}
	e.Left = time.Second / 2
	if p := fired(1, e); p < 0.999 {
		t.Errorf("a slow loader from half of TTL on: %v", p)
	}
}

func TestEarlyRefreshIsOffWithoutBetaOrLoadTime(t *testing.T) {
	e := stampede.Entry{TTL: time.Hour, Took: time.Minute, Left: time.Nanosecond}
	if p := fired(0, e); p != 0 {
		t.Errorf("beta off: %v", p)
	}
	e.Took = 0 // by Set
	if p := fired(1, e); p != 0 {
		t.Errorf("unknown load time: %v", p)
	}
}

func TestEarlyRefreshIsDrawnOncePerPodAndVersion(t *testing.T) {
	e := stampede.Entry{TTL: time.Hour, Took: time.Second, Left: time.Second}
	for range 100 {
		pod := stampede.NewEarlyRefresh(1)
		e.Stamp = stampede.NewStamp()
		for first := pod.Due(&e); ; {
			for range 100 {
				if pod.Due(&e) != first {
					t.Fatal("the same pod and version decided anew")
				}
			}
			break
		}
	}
}

func TestEarlyLoadIsDoneBehindAndByOnePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := stampede.Policy{TTL: 10 * time.Second, Jitter: -1, Beta: 1000}
		store, src := new(stampede.MemoryStore), &source{takes: time.Second}
		a, b := newPod(t, store, stampede.Options{Policy: policy}), newPod(t, store, stampede.Options{Policy: policy})
		get(t.Context(), a.Guard, "k", src.load).is(t, 1, src.takes)
		time.Sleep(policy.TTL/2 - time.Millisecond)
		get(t.Context(), a.Guard, "k", src.load).is(t, 1, 0)
		get(t.Context(), b.Guard, "k", src.load).is(t, 1, 0)
		synctest.Wait()
		if n, _ := src.loads(); n != 1 {
			t.Errorf("%d loads before half of TTL", n)
		}
		time.Sleep(time.Millisecond)
		for range 10 {
			get(t.Context(), a.Guard, "k", src.load).is(t, 1, 0)
			get(t.Context(), b.Guard, "k", src.load).is(t, 1, 0)
			synctest.Wait()
		}
		time.Sleep(src.takes)
		synctest.Wait()
		get(t.Context(), a.Guard, "k", src.load).is(t, 2, 0)
		get(t.Context(), b.Guard, "k", src.load).is(t, 2, 0)
		if n, top := src.loads(); n != 2 || top != 1 {
			t.Errorf("%d loads, %d at once, want 2 and 1", n, top)
		}
	})
}
