package measure

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Arrivals say when calls are due and for which key: an open loop, in which no call waits for the answer to
// another. They are a function of their fields alone, so that every contender gets the same ones.
type Arrivals struct {
	// Rate is the mean number of calls per second; they come independently of one another (a Poisson
	// process). Zero: bursts.
	Rate float64
	// For is how long calls come.
	For time.Duration

	// Burst is how many calls come at once, every Every, each time for a new key.
	Burst int
	Every time.Duration

	// Keys is how many keys there are. Zero: one.
	Keys int
	// Zipf is the exponent by which some keys are asked for more than others; above 1. Zero: all alike.
	Zipf float64

	// Seed makes the arrivals of one pod differ from those of another.
	Seed uint64
}

// Arrival is one call: when it is due, from the beginning, and the number of its key.
type Arrival struct {
	Due time.Duration
	Key int
}

// List returns all arrivals in order of time.
func (a Arrivals) List() []Arrival {
	if a.Rate == 0 {
		return a.bursts()
	}
	rnd := rand.New(rand.NewPCG(a.Seed, 1))
	key := func() int { return 0 }
	switch {
	case a.Zipf > 1 && a.Keys > 1:
		zipf := rand.NewZipf(rnd, a.Zipf, 1, uint64(a.Keys-1))
		key = func() int { return int(zipf.Uint64()) }
	case a.Keys > 1:
		key = func() int { return rnd.IntN(a.Keys) }
	}
	var list []Arrival
	gap := float64(time.Second) / a.Rate
	for at := gap * rnd.ExpFloat64(); at < float64(a.For); at += gap * rnd.ExpFloat64() {
		list = append(list, Arrival{time.Duration(at), key()})
	}
	return list
}

func (a Arrivals) bursts() (list []Arrival) {
	for round := range int(a.For / max(a.Every, 1)) {
		for range a.Burst {
			list = append(list, Arrival{time.Duration(round) * a.Every, round})
		}
	}
	return list
}

// KeyName is the name of key number n.
func KeyName(n int) string { return fmt.Sprintf("product-%d", n) }

// IdealLoads is how many loads a perfect cache makes for the arrivals of all pods: one for each arrival that
// finds its key neither within ttl of the end of its last load nor in that load.
// What is warm was loaded just before the beginning.
func IdealLoads(pods []Arrivals, ttl, load time.Duration, warm bool) int {
	var all []Arrival
	for _, a := range pods {
		all = append(all, a.List()...)
	}
	slices.SortStableFunc(all, func(a, b Arrival) int { return cmp.Compare(a.Due, b.Due) })
	freshUntil := make(map[int]time.Duration)
	n := 0
	for _, a := range all {
		until, ok := freshUntil[a.Key]
		if !ok && warm {
			until = ttl
			freshUntil[a.Key] = ttl
			ok = true
		}
		if ok && a.Due < until {
			continue
		}
		n++
		freshUntil[a.Key] = a.Due + load + ttl
	}
	return n
}
