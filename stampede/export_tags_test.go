package stampede

import "time"

// MaxSpread is how many expiries a pod remembers.
const MaxSpread = maxSpread

// Spread is what a pod knows of turns.
type Spread struct{ s spread }

// NewSpread returns one that knows nothing yet.
func NewSpread(over time.Duration) *Spread { return &Spread{spread{over: over}} }

// Due says whether it is the turn of key.
func (s *Spread) Due(key string, epoch, number uint64) bool { return s.s.due(key, epoch, number) }
