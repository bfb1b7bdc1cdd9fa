package measure

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Latency is a distribution of durations from 100 ns to ten minutes with three significant digits; what is
// beyond counts as the nearest of the two. It is not safe for concurrent use: each goroutine fills its
// own, and they are merged.
type Latency struct {
	h *hdrhistogram.Histogram
}

const (
	shortest = int64(100 * time.Nanosecond)
	longest  = int64(10 * time.Minute)
	digits   = 3
)

// NewLatency returns an empty distribution.
func NewLatency() *Latency {
	return &Latency{hdrhistogram.New(shortest, longest, digits)}
}

// Record adds d.
func (l *Latency) Record(d time.Duration) {
	_ = l.h.RecordValue(min(max(int64(d), shortest), longest)) // within the bounds, so it cannot fail
}

// Merge adds all of other.
func (l *Latency) Merge(other *Latency) { l.h.Merge(other.h) }

// Count returns how many durations were recorded.
func (l *Latency) Count() int64 { return l.h.TotalCount() }

// Quantile returns the duration that a share q of all does not exceed; q is from 0 to 1.
func (l *Latency) Quantile(q float64) time.Duration {
	return time.Duration(l.h.ValueAtQuantile(100 * q))
}

// Max returns the longest duration; 0 when there is none.
func (l *Latency) Max() time.Duration { return time.Duration(l.h.Max()) }

// Within returns the share that took at most d, from 0 to 1; 1 when there is none.
func (l *Latency) Within(d time.Duration) float64 {
	if l.Count() == 0 {
		return 1
	}
	var n int64
	for _, bar := range l.h.Distribution() {
		if bar.To <= int64(d) {
			n += bar.Count
		}
	}
	return float64(n) / float64(l.Count())
}

// Encode returns the distribution as text, in HdrHistogram's compressed format, which its other tools read. To
// two digits: there are many of them in a file, and they become pictures.
func (l *Latency) Encode() (string, error) {
	coarse := hdrhistogram.New(shortest, longest, 2)
	coarse.Merge(l.h)
	text, err := coarse.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	return string(text), err
}

// DecodeLatency reads what Encode returned.
func DecodeLatency(text string) (*Latency, error) {
	h, err := hdrhistogram.Decode([]byte(text))
	if err != nil {
		return nil, err
	}
	return &Latency{h}, nil
}
