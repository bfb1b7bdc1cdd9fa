package modeltest

import (
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// config is what a seed decides about a run before its first step.
type config struct {
	pods, keys int
	steps      int
	encoded    bool // entries hold bytes, and pods keep copies
	private    bool // loaders may keep others from their value
	failing    bool // most loads fail
	guesses    bool // pods begin with trust that what they have no copy of is not stored
	deaf       bool // reads do not notice that their ctx is cancelled
	unheard    bool // pods do not hear of drops, which are a hint only
	delivers   bool // what is committed comes with the wake-up
	writes     []method
	opts       stampede.Options
	weights    [numActions]int
	broken     mutant
}

// seated says whether loads need seats. Then who waits may do so for time to pass.
func (c *config) seated() bool { return c.opts.MaxLoads > 0 || c.opts.FleetLoads > 0 }

func newConfig(rng *rand.Rand, broken mutant) config {
	pick := func(d ...time.Duration) time.Duration { return d[rng.IntN(len(d))] }
	const ms = time.Millisecond
	c := config{
		pods: 2 + rng.IntN(2), keys: 1, steps: 80 + rng.IntN(160),
		encoded: rng.IntN(2) == 0, private: rng.IntN(3) == 0, deaf: rng.IntN(4) == 0,
		broken: broken,
	}
	if rng.IntN(4) == 0 {
		c.keys = 2 + rng.IntN(2)
	}
	c.opts = stampede.Options{
		Name: "model",
		Policy: stampede.Policy{
			TTL: pick(30*ms, 150*ms, 400*ms, 2000*ms), StaleFor: pick(-1, 300*ms, 3000*ms), StaleIfError: pick(-1, 3000*ms),
			NotFoundTTL: pick(-1, 300*ms), ErrorBackoff: pick(-1, 300*ms), MaxErrorBackoff: pick(-1, 2000*ms), Jitter: -1, Beta: -1,
		},
		LoadTimeout: 2 * time.Second, SoftTimeout: pick(0, 0, 300*ms), WaitTimeout: pick(0, 0, 700*ms),
		Hedge: []float64{0, 1, 1, 2}[rng.IntN(4)], FleetLoads: []int{0, 0, 0, 0, 0, 1}[rng.IntN(6)], MaxLoads: []int{0, 0, 0, 0, 0, 1}[rng.IntN(6)],
		Lease: pick(100*ms, 600*ms, 1000*ms, 5000*ms), StoreBudget: pick(50*ms, 250*ms),
		MaxAbandoned: []int{0, 0, 2}[rng.IntN(3)], OnWaitTimeout: stampede.WaitAction(rng.IntN(2)),
		Logger: slog.New(slog.DiscardHandler),
	}
	if c.opts.Policy.ErrorBackoff < 0 {
		c.opts.Policy.MaxErrorBackoff = 0
	}
	if rng.IntN(4) == 0 {
		c.opts.Policy.Jitter, c.opts.Policy.Beta = 0.2, 2
	}
	if rng.IntN(4) == 0 {
		c.failing = true
		c.opts.Policy.ErrorBackoff, c.opts.Policy.MaxErrorBackoff = 30*ms, 2000*ms
	}
	c.unheard = rng.IntN(3) == 0
	c.delivers = rng.IntN(2) == 0
	if c.encoded && rng.IntN(2) == 0 {
		c.opts.Local.TTL = pick(20*ms, 200*ms, 3000*ms)
	}
	c.writes = [][]method{{doSet, doDelete, doExpire}, {doSet}, {doDelete}, {doExpire}}[rng.IntN(4)]
	// A run that does everything at once seldom gets far with anything: each has some faults only.
	c.weights = weights
	few := 1 + rng.IntN(4)
	for a := firstFault; a < numActions; a++ {
		if rng.IntN(4) < few {
			c.weights[a] = 0
		}
	}
	if rng.IntN(3) == 0 {
		c.weights[actTime] *= 4
	}
	if rng.IntN(3) == 0 {
		c.weights[actWrite] *= 3
	}
	if c.opts.Tags = broken.ofTags() || broken == sound && rng.IntN(3) == 0; c.opts.Tags {
		c.writes = append(slices.Clone(c.writes), doExpireTag, doExpireTag)
		c.opts.Policy.TagSpread = pick(-1, 50*ms)
	}
	if c.guesses = c.encoded && !c.opts.Tags && rng.IntN(3) > 0; c.guesses {
		c.opts.SoftTimeout, c.opts.MaxLoads, c.opts.FleetLoads = 0, 0, 0
	}
	return c
}
