package modeltest

import (
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
)

// setting returns the number in an environment variable.
func setting(t *testing.T, name string) (n uint64, ok bool) {
	s := os.Getenv(name)
	if s == "" {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n, true
}

func report(t *testing.T, seed uint64, v *verdict) {
	t.Helper()
	t.Errorf("seed %d: %s\nHERDGATE_SEED=%d runs it alone\n%s", seed, v.fault, seed, v.log())
}

// Whatever happens between pods and store, and in whatever order, the guard keeps its promises.
func TestGuardKeepsItsPromisesWhateverTheOrder(t *testing.T) {
	if seed, ok := setting(t, "HERDGATE_SEED"); ok {
		for range 20 {
			if v := run(t, seed, sound); v.fault != "" {
				report(t, seed, &v)
				return
			}
		}
		return
	}
	total, ok := setting(t, "HERDGATE_STEPS")
	switch {
	case ok:
	case raced:
		total = 50_000
	default:
		total = 1_000_000
	}
	var seeds, steps, faults atomic.Uint64
	var seen [numSights]atomic.Uint64
	t.Run("runs", func(t *testing.T) {
		for range min(runtime.GOMAXPROCS(0), 8) {
			t.Run("worker", func(t *testing.T) {
				t.Parallel()
				for steps.Load() < total && faults.Load() == 0 {
					seed := seeds.Add(1)
					v := run(t, seed, sound)
					steps.Add(uint64(v.steps))
					for i, n := range v.seen {
						seen[i].Add(uint64(n))
					}
					if v.fault != "" && faults.Add(1) == 1 {
						report(t, seed, &v)
					}
				}
			})
		}
	})
	t.Logf("%d steps in %d runs", steps.Load(), seeds.Load())
	for i := range seen {
		t.Logf("%7d %s", seen[i].Load(), sightNames[i])
		enough := uint64(50_000)
		if sight(i) == sawHedge { // once in some 40,000
			enough = 1_000_000
		}
		if seen[i].Load() == 0 && total >= enough && !t.Failed() {
			t.Errorf("never came about: %s", sightNames[i])
		}
	}
}

// The checks can fail: each of these faults of the store is found.
func TestChecksFindBrokenStores(t *testing.T) {
	most := 6000 // runs
	if raced {
		most = 60
	}
	for m := sound + 1; m < numMutants; m++ {
		t.Run(mutantNames[m], func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(most) {
				if v := run(t, seed, m); v.fault != "" {
					t.Logf("seed %d: %s", seed, v.fault)
					return
				}
			}
			if raced {
				t.Skipf("not found in %d runs, which are few", most)
			}
			t.Errorf("not found in %d runs", most)
		})
	}
}
