package measure_test

import (
	"testing"
	"time"

	"github.com/herdgate/herdgate/bench/internal/measure"
)

func TestLatencyKnowsQuantilesWithinThreeDigits(t *testing.T) {
	l := measure.NewLatency()
	for i := range 1000 {
		l.Record(time.Duration(i+1) * time.Millisecond)
	}
	for q, want := range map[float64]time.Duration{0.5: 500 * time.Millisecond, 0.99: 990 * time.Millisecond, 1: time.Second} {
		if got := l.Quantile(q); got < want || got > want+want/500 {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if got := l.Within(250 * time.Millisecond); got < 0.248 || got > 0.25 {
		t.Errorf("a share of %v within 250ms", got)
	}
	if l.Max() < time.Second || l.Count() != 1000 {
		t.Errorf("the longest of %d is %v", l.Count(), l.Max())
	}
}

func TestLatencyCountsWhatIsBeyondItsBounds(t *testing.T) {
	l := measure.NewLatency()
	l.Record(-time.Second)
	l.Record(time.Hour)
	if l.Count() != 2 || l.Max() < 9*time.Minute {
		t.Errorf("%d recorded, the longest %v", l.Count(), l.Max())
	}
}

func TestLatencySurvivesEncodingAndMerging(t *testing.T) {
	a, b := measure.NewLatency(), measure.NewLatency()
	a.Record(time.Millisecond)
	b.Record(time.Second)
	text, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := measure.DecodeLatency(text)
	if err != nil {
		t.Fatal(err)
	}
	a.Merge(back)
	if a.Count() != 2 || (a.Max()-b.Max()).Abs() > b.Max()/100 {
		t.Errorf("%d merged, the longest %v", a.Count(), a.Max())
	}
}
