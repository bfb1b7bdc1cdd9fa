package workload

import (
	"context"
	"time"

	"github.com/herdgate/herdgate/bench/internal/contender"
	"github.com/herdgate/herdgate/bench/internal/report"
)

func RunStorm(ctx context.Context, rig *Rig, c contender.Contender, pods, callers int, length time.Duration) (report.Result, error) {
	return runStorm(ctx, rig, c, stormSetup{pods: pods, callers: callers, length: length})
}

func RunCost(ctx context.Context, rig *Rig, c contender.Contender) (report.Result, error) {
	return runCost(ctx, rig, c)
}

// RunHit asks for one key, by one goroutine.
func RunHit(ctx context.Context, rig *Rig, c contender.Contender, memory bool, length time.Duration) (report.Result, error) {
	return runHit(ctx, rig, c, hitSetup{length: length, par: 1, keys: 1, memory: memory})
}

// RunWeb asks for a hit.
func RunWeb(ctx context.Context, rig *Rig, c contender.Contender) (report.Result, error) {
	s := webSetups(true)[0]
	s.slices = 2
	return runWeb(ctx, rig, c, s)
}

func RunCold(ctx context.Context, rig *Rig, c contender.Contender, pods, callers, rounds int) (report.Result, error) {
	return runCold(ctx, rig, c, coldSetup{pods: pods, callers: callers, rounds: rounds})
}

// HitSlices asks for one key in memory, by many goroutines. It returns how many of them had a turn, and how long the
// shortest slice took, in slices.
func HitSlices(ctx context.Context, rig *Rig, c contender.Contender, par, slices int) (had int, shortest float64, err error) {
	side := hitSide{setup: hitSetup{par: par, keys: 1, memory: true}}
	if err := side.open(ctx, rig, c); err != nil {
		return 0, 0, err
	}
	defer side.cache.Close()
	for range slices {
		was := side.took
		if err := side.slice(ctx, rig, true); err != nil {
			return 0, 0, err
		}
		if took := float64(side.took-was) / float64(hitSlice); shortest == 0 || took < shortest {
			shortest = took
		}
	}
	for i := range side.workers {
		if side.workers[i].next > 0 {
			had++
		}
	}
	return had, shortest, nil
}
