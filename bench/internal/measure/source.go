package measure

import (
	"context"
	"encoding/binary"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Source is what the caches load from: a stand-in for a database, in which a query takes a fixed time. It
// counts what it is asked, so nothing that a contender says about itself is believed. Until it is reset for the
// first time, loads take no time and do not hang: caches are being warmed.
type Source struct {
	// Took is how long a load takes.
	Took time.Duration
	// Capacity is how many loads are worked on at once; others queue. Zero: all.
	Capacity int
	// Hang says which loads never end and do not look at their ctx, until Release. Nil: none.
	Hang func(l Load) bool
	// Began is told of each load as it begins. Nil: nobody is told.
	Began func(l Load)

	once    sync.Once
	slots   chan struct{}
	release chan struct{}
	filler  []byte

	mu      sync.Mutex // protects what follows
	started bool       // it has been reset
	loads   []Load
	now     int
	most    int
	queue   int
	long    int
}

// Load is one load.
type Load struct {
	Pod   int
	Key   string
	Begin time.Time
	End   time.Time // zero while it runs
	OK    bool      // it brought a value
}

// ValueSize is the size of a value, unless a workload says otherwise.
const ValueSize = 1 << 10

func (s *Source) init() {
	s.once.Do(func() {
		s.release = make(chan struct{})
		if s.Capacity > 0 {
			s.slots = make(chan struct{}, s.Capacity)
		}
		// Random, so that nobody gains by compressing it.
		s.filler = make([]byte, 1<<20)
		rnd := rand.New(rand.NewPCG(1, 2))
		for i := 0; i < len(s.filler); i += 8 {
			binary.LittleEndian.PutUint64(s.filler[i:], rnd.Uint64())
		}
	})
}

// Load is a load of key by pod, of a value of so many bytes.
func (s *Source) Load(ctx context.Context, pod int, key string, size int) ([]byte, error) {
	s.init()
	s.mu.Lock()
	l := Load{Pod: pod, Key: key, Begin: time.Now()}
	i := len(s.loads)
	s.loads = append(s.loads, l)
	s.now++
	s.most = max(s.most, s.now)
	started := s.started
	s.mu.Unlock()
	var err error
	if started {
		if s.Began != nil {
			s.Began(l)
		}
		err = s.work(ctx, l)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now--
	if i < len(s.loads) && s.loads[i].Begin.Equal(l.Begin) { // not reset meanwhile
		s.loads[i].End, s.loads[i].OK = time.Now(), err == nil
	}
	if err != nil {
		return nil, err
	}
	return s.value(key, size), nil
}

func (s *Source) work(ctx context.Context, l Load) error {
	if s.Hang != nil && s.Hang(l) {
		<-s.release
		return context.Canceled
	}
	if s.slots != nil {
		s.waiting(1)
		select {
		case s.slots <- struct{}{}:
			s.waiting(-1)
			defer func() { <-s.slots }()
		case <-ctx.Done():
			s.waiting(-1)
			return ctx.Err()
		}
	}
	return sleep(ctx, s.Took)
}

func (s *Source) waiting(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue += n
	s.long = max(s.long, s.queue)
}

// pacers are for loads to sleep with.
var pacers sync.Pool

// sleep looks at ctx every few milliseconds.
func sleep(ctx context.Context, d time.Duration) error {
	p, _ := pacers.Get().(*Pacer)
	if p == nil {
		var err error
		if p, err = NewPacer(); err != nil {
			return err
		}
	}
	defer pacers.Put(p)
	for end := time.Now().Add(d); ; {
		left := time.Until(end)
		if left <= 0 {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		p.Sleep(min(left, 25*time.Millisecond))
	}
}

// Release ends the loads that hang.
func (s *Source) Release() {
	s.init()
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.release:
	default:
		close(s.release)
	}
}

// header is what a value begins with: the time of its making and the mark of its key.
const header = 16

// value holds the time of its making, from which Age tells how old it is, and the mark of its key.
func (s *Source) value(key string, size int) []byte {
	size = max(size, header)
	from := rand.IntN(max(1, len(s.filler)-size))
	v := slices.Clone(s.filler[from:min(from+size, len(s.filler))])
	binary.LittleEndian.PutUint64(v, uint64(time.Now().UnixNano()))
	binary.LittleEndian.PutUint64(v[8:], uint64(MarkOf(key)))
	return v
}

// Mark tells the values of one key from those of another, and from what is no value.
type Mark uint64

// MarkOf returns the mark of a key, which is the same in every process.
func MarkOf(key string) Mark {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // it never fails
	return Mark(h.Sum64())
}

// On says whether v is a value of so many bytes of the key that m marks. It is quick enough to be asked after each hit.
func (m Mark) On(v []byte, size int) bool {
	return len(v) == max(size, header) && Mark(binary.LittleEndian.Uint64(v[8:])) == m
}

// Age tells how long ago the load of a value ended; negative for what is no value of a Source.
func Age(v []byte) time.Duration {
	if len(v) < 8 {
		return -1
	}
	return time.Since(time.Unix(0, int64(binary.LittleEndian.Uint64(v))))
}

// Counted is what a Source counted.
type Counted struct {
	Loads []Load // in the order in which they began
	Most  int    // at once
	Queue int    // that waited for the source's capacity, at most
}

// Counted returns what was counted until now, or since Reset.
func (s *Source) Counted() Counted {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Counted{slices.Clone(s.loads), s.most, s.long}
}

// Reset begins to count anew.
func (s *Source) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started = true
	s.loads, s.most, s.long = nil, s.now, s.queue
}

// Expiries sorts the loads of one key, in order of their beginnings, by the expiry that they answered, and returns
// how many loads each had. A load answers a new expiry when it began more than a quarter of ttl after a
// load of the expiry before had brought a value.
func Expiries(loads []Load, ttl time.Duration) (perExpiry []int) {
	first := 0 // of the expiry
	for i, l := range loads {
		if i == 0 || answered(loads[first:i], l.Begin.Add(-ttl/4)) {
			first = i
			perExpiry = append(perExpiry, 0)
		}
		perExpiry[len(perExpiry)-1]++
	}
	return perExpiry
}

// answered says whether one of the loads had brought a value by the time t.
func answered(loads []Load, t time.Time) bool {
	return slices.ContainsFunc(loads, func(l Load) bool { return l.OK && l.End.Before(t) })
}
