package measure_test

import (
	"slices"
	"testing"
	"time"

	"github.com/herdgate/herdgate/bench/internal/measure"
)

func TestArrivalsAreTheSameForEveryContender(t *testing.T) {
	a := measure.Arrivals{Rate: 1000, For: 10 * time.Second, Keys: 100, Zipf: 1.01, Seed: 3}
	first := a.List()
	if !slices.Equal(first, a.List()) {
		t.Error("two lists of the same arrivals differ")
	}
	if n := len(first); n < 9500 || n > 10_500 {
		t.Errorf("%d arrivals in 10s at 1000/s", n)
	}
	if !slices.IsSortedFunc(first, func(a, b measure.Arrival) int { return int(a.Due - b.Due) }) {
		t.Error("not in order of time")
	}
	a.Seed = 4
	if slices.Equal(first, a.List()) {
		t.Error("another pod has the same arrivals")
	}
}

func TestArrivalsComeInBursts(t *testing.T) {
	list := measure.Arrivals{Burst: 3, Every: time.Second, For: 2 * time.Second}.List()
	want := []measure.Arrival{{0, 0}, {0, 0}, {0, 0}, {time.Second, 1}, {time.Second, 1}, {time.Second, 1}}
	if !slices.Equal(list, want) {
		t.Errorf("got %v", list)
	}
}

func TestIdealLoadsAreThoseOfAPerfectCache(t *testing.T) {
	// At 0 s, 1 s ... 4 s two pods ask for one key each time another; key n is asked for at n seconds only.
	bursts := measure.Arrivals{Burst: 2, Every: time.Second, For: 5 * time.Second}
	if n := measure.IdealLoads([]measure.Arrivals{bursts, bursts}, time.Minute, 0, false); n != 5 {
		t.Errorf("%d loads of 5 keys that do not expire", n)
	}
	hot := measure.Arrivals{Rate: 10_000, For: 10 * time.Second}
	// It expires every 900 ms and takes 100 ms to load: at 0 s, 1 s ... 9 s.
	if n := measure.IdealLoads([]measure.Arrivals{hot, hot}, 900*time.Millisecond, 100*time.Millisecond, false); n != 10 {
		t.Errorf("%d loads of a hot key in 10 periods", n)
	}
	if n := measure.IdealLoads([]measure.Arrivals{hot}, 900*time.Millisecond, 100*time.Millisecond, true); n != 10 {
		t.Errorf("%d loads of a hot key that was there, in 9.1 periods", n)
	}
	if n := measure.IdealLoads([]measure.Arrivals{hot}, time.Minute, 0, true); n != 0 {
		t.Errorf("%d loads of a key that was there and stays", n)
	}
}
