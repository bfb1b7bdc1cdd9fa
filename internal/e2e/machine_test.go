package e2e_test

import (
	"bufio"
	"net"
	"sync"
	"time"

	"github.com/herdgate/herdgate/internal/redisproc"
)

// machine knows how late the machine was: tests share it with others, and what it did not run cannot have been quick.
var machine stalls

// stalls records when an answer was late that an untroubled Redis gave to a lone client.
type stalls struct {
	mu   sync.Mutex // protects what follows
	all  []stall
	last time.Time // beat; zero: it is not measured
}

type stall struct {
	end  time.Time
	long time.Duration
}

const beat = 5 * time.Millisecond

// run measures until the function that it returns is called. Without a Redis it goes by timers alone.
func (s *stalls) run() (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	control := newControl()
	go func() {
		defer close(done)
		s.tick()
		timer := time.NewTimer(beat)
		defer timer.Stop()
		for {
			select {
			case <-quit:
				return
			case <-timer.C:
			}
			control.ask()
			s.tick()
			timer.Reset(beat)
		}
	}()
	return func() {
		close(quit)
		<-done
		control.close()
	}
}

// tick is a beat.
func (s *stalls) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x, ok := s.current(); ok {
		s.all = append(s.all, x)
	}
	s.last = time.Now()
}

// current returns the stall that goes on, if one does: what ends before it does was late as well. s.mu is held.
func (s *stalls) current() (x stall, ok bool) {
	x.end = time.Now()
	x.long = x.end.Sub(s.last) - beat
	return x, !s.last.IsZero() && x.long > beat
}

// control is a Redis that nobody troubles.
type control struct {
	server *redisproc.Server
	conn   net.Conn
	answer *bufio.Reader
}

func newControl() *control {
	server, err := redisproc.Start(redisproc.Options{})
	if err != nil {
		return &control{}
	}
	conn, err := net.Dial("tcp", server.Addr())
	if err != nil {
		return &control{server: server}
	}
	return &control{server, conn, bufio.NewReader(conn)}
}

func (c *control) ask() {
	if c.conn == nil {
		return
	}
	_, _ = c.conn.Write([]byte("PING\r\n"))
	_, _ = c.answer.ReadString('\n')
}

func (c *control) close() {
	if c.conn != nil {
		c.conn.Close()
	}
	if c.server != nil {
		c.server.Close()
	}
}

// busy says whether the machine was so busy that times and rates prove nothing.
func (s *stalls) busy(from, to time.Time) bool {
	return s.between(from, to) > to.Sub(from)/2
}

// late returns by how much what ran between two times may have been late. A stall may hit the one thread that holds a lock, and spare
// the one that measures: what that has seen in the second before counts as well.
func (s *stalls) late(from, to time.Time) time.Duration {
	return s.between(from.Add(-time.Second), to)
}

// between returns for how long the machine stood still between two times, in all.
func (s *stalls) between(from, to time.Time) (sum time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	add := func(x stall) {
		if x.end.After(from) && x.end.Add(-x.long).Before(to) {
			sum += x.long
		}
	}
	if x, ok := s.current(); ok {
		add(x)
	}
	for i := len(s.all) - 1; i >= 0 && s.all[i].end.After(from); i-- {
		add(s.all[i])
	}
	return sum
}

// tolerance is what a step may take beyond its bound on a busy machine: a fixed share, and three times what a single timer was
// late meanwhile, because several goroutines and processes take part in each step.
func tolerance(begun time.Time) time.Duration {
	return 250*time.Millisecond + 3*machine.late(begun, time.Now())
}

// tooLong says whether what has begun then took longer than its bound.
func tooLong(begun time.Time, bound time.Duration) bool {
	took := time.Since(begun)
	return took > bound && took > bound+tolerance(begun)
}
