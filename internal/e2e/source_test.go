package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// source is the database behind the cache. It counts: loads are never guessed from timing.
type source struct {
	took time.Duration // of a load
	ttl  func(key string) time.Duration

	mu      sync.Mutex // protects what follows
	loads   []loaded
	running map[string]int // by pod and key
	worst   int            // loads of a key that ran at once in one pod
}

type loaded struct {
	pod, key string
	begun    time.Time
	leased   bool
}

func newSource(took time.Duration) *source {
	return &source{took: took, running: map[string]int{}}
}

// loader returns the loader of key in a pod. Keys that begin with "nothing" are not found.
func (s *source) loader(pod, key string) func(context.Context, *stampede.Load[string]) (string, error) {
	return func(ctx context.Context, l *stampede.Load[string]) (string, error) {
		n := s.begin(pod, key, l.Leased())
		defer s.end(pod, key)
		if s.ttl != nil {
			l.TTL(s.ttl(key))
		}
		if !pause(ctx, s.took) {
			return "", context.Cause(ctx)
		}
		if strings.HasPrefix(key, "nothing") {
			return "", stampede.ErrNotFound
		}
		return fmt.Sprintf("%s#%d", key, n), nil
	}
}

func (s *source) begin(pod, key string, leased bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loads = append(s.loads, loaded{pod, key, time.Now(), leased})
	s.running[pod+" "+key]++
	s.worst = max(s.worst, s.running[pod+" "+key])
	return len(s.loads)
}

func (s *source) end(pod, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[pod+" "+key]--
}

// count returns how many loads of keys with this prefix began in the time from..to.
func (s *source) count(prefix string, from, to time.Time) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.loads {
		if strings.HasPrefix(l.key, prefix) && !l.begun.Before(from) && l.begun.Before(to) {
			n++
		}
	}
	return n
}

// most returns the loads of the pod and key with the most of them, among keys with this prefix and loads that began in that time,
// and how many pods and keys there are.
func (s *source) most(prefix string, from, to time.Time) (top []loaded, distinct int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	by := map[string][]loaded{}
	for _, l := range s.loads {
		if strings.HasPrefix(l.key, prefix) && !l.begun.Before(from) && l.begun.Before(to) {
			who := l.pod + " " + l.key
			if by[who] = append(by[who], l); len(by[who]) > len(top) {
				top = by[who]
			}
		}
	}
	return top, len(by)
}

func (s *source) atOnce() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.worst
}
