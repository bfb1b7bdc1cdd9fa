package tally_test

import (
	"sync"
	"testing"

	"github.com/herdgate/herdgate/internal/tally"
)

func TestNothingIsLost(t *testing.T) {
	const goroutines, each = 100, 1000
	var c tally.Counter
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for range each {
				c.Inc()
			}
		})
	}
	wg.Wait()
	if n := c.Load(); n != goroutines*each {
		t.Errorf("counted %d, want %d", n, goroutines*each)
	}
}

func TestCountingAllocatesNothing(t *testing.T) {
	var c tally.Counter
	if n := testing.AllocsPerRun(100, c.Inc); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
