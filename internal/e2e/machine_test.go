package e2e_test

import (
	"sync"
	"time"
)

// machine knows how late the machine was: tests share it with others, and what it did not run cannot have been quick.
var machine stalls

// stalls records when a timer fired late.
type stalls struct {
	mu  sync.Mutex // protects all
	all []stall
}

type stall struct {
	end  time.Time
	long time.Duration
}

const beat = 5 * time.Millisecond

// run measures until the function that it returns is called.
func (s *stalls) run() (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		last := time.Now()
		timer := time.NewTimer(beat)
		defer timer.Stop()
		for {
			select {
			case <-quit:
				return
			case <-timer.C:
			}
			now := time.Now()
			if late := now.Sub(last) - beat; late > beat {
				s.mu.Lock()
				s.all = append(s.all, stall{now, late})
				s.mu.Unlock()
			}
			last = now
			timer.Reset(beat)
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}

// between returns for how long the machine stood still between two times, in all.
func (s *stalls) between(from, to time.Time) (sum time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.all) - 1; i >= 0 && s.all[i].end.After(from); i-- {
		if x := s.all[i]; x.end.Add(-x.long).Before(to) {
			sum += x.long
		}
	}
	return sum
}

// tolerance is what a step may take beyond its bound on a busy machine: a fixed share, and three times what a single timer was
// late meanwhile, because several goroutines and processes take part in each step.
func tolerance(begun time.Time) time.Duration {
	return 250*time.Millisecond + 3*machine.between(begun, time.Now())
}

// tooLong says whether what has begun then took longer than its bound.
func tooLong(begun time.Time, bound time.Duration) bool {
	took := time.Since(begun)
	return took > bound && took > bound+tolerance(begun)
}
