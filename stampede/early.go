package stampede

import (
	"hash/maphash"
	"math"
	"time"
)

// earlyRefresh decides when a load starts before an entry goes stale. The theory (XFetch, see
// Policy.Beta) draws a gap of -ln(u)·β·δ for u uniform in (0, 1] and δ the duration of the load, and
// loads when less than that is left. It draws at each request, so that popular keys, which draw often,
// load far too early; here the gap is drawn once for each pod and version of an entry. To draw again
// and get the same, u is a hash of the stamp.
type earlyRefresh struct {
	beta float64 // zero: off
	seed maphash.Seed
}

func newEarlyRefresh(beta float64) earlyRefresh {
	return earlyRefresh{beta, maphash.MakeSeed()}
}

// due says whether to load a fresh entry now.
func (x *earlyRefresh) due(e *Entry) bool {
	return e.FreshFor() <= x.gap(e)
}

// gap is how long before the end of its TTL an entry is loaded anew. Never before half of it.
func (x *earlyRefresh) gap(e *Entry) time.Duration {
	if x.beta == 0 || e.Took <= 0 {
		return 0
	}
	u := (float64(maphash.Bytes(x.seed, e.Stamp[:])>>11) + 1) / (1 << 53)
	return time.Duration(min(-math.Log(u)*x.beta*float64(e.Took), float64(e.TTL/2)))
}
