package stampede

import (
	"log/slog"
	"sync"
	"time"
)

// shortTTL finds out that TTL is short for what loads take: early refresh would then load, most of the
// time, before half of TTL has passed, and only its cap keeps it from that.
//
// The theory has the first load of a version begin about k = β·δ·ln(λ·β·δ) before the end of TTL, for λ
// requests in a unit of time. Here each pod draws once, so that the number n of pods takes the place of
// λ·β·δ. No pod knows either of them. But each load that begins early has measured it: the draw of the pod
// that was elected is beyond half of TTL or it is not. That it mostly is means, for more than a few pods,
//
//	TTL < 2·β·δ·ln(n / ln 2).
//
// So this counts loads, and nothing on the way to a hit.
type shortTTL struct {
	mu    sync.Mutex // protects what follows
	score int        // capped loads less others, not below zero
	said  bool
}

// shortEnough is the score that is not reached by chance where fewer than half of the loads are capped.
const shortEnough = 10

// saw counts a load that began when its predecessor was about to end, or had ended. It returns true once.
func (s *shortTTL) saw(capped bool) (say bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !capped {
		s.score = max(s.score-1, 0)
		return false
	}
	s.score = min(s.score+1, shortEnough)
	say = s.score == shortEnough && !s.said
	s.said = s.said || say
	return say
}

// capped says whether the pod's draw for e was beyond half of its TTL.
func (x *earlyRefresh) capped(e *Entry) bool {
	return x.beta > 0 && e.Took > 0 && x.gap(e) >= e.TTL/2
}

// smoothed is what a load of so long makes of the usual duration. It travels with the entry, so that all
// pods learn from each load. Stores keep whole milliseconds; it is rounded, since to cut would pull it
// down each time.
func smoothed(usual, took time.Duration) time.Duration {
	return (usual + (took-usual)/4).Round(time.Millisecond)
}

// learn is called after a load of e, which is to take the place of old.
func (j *job[T]) learn(old, e *Entry) {
	g := j.g
	if old.Freshness() == Dead || old.NotFound != e.NotFound || old.Took <= 0 {
		return // nothing to learn from
	}
	e.Took = smoothed(old.Took, e.Took)
	if j.q.reason != NearlyStale && j.q.reason != WentStale {
		return
	}
	if g.short.saw(j.q.reason == NearlyStale && g.early.capped(old)) {
		g.events.emit(EventShortTTL, j.k.Key, old.Took, nil)
		g.log(slog.LevelWarn, "stampede: TTL is short for what loads take: early refresh starts most of them at half of TTL",
			"guard", g.opts.Name, "key", j.k.Key, "ttl", old.TTL, "load", old.Took)
	}
}
