package stampede_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// slowStore takes its time for reads and elections, or as long as it is given.
type slowStore struct {
	stampede.MemoryStore
	read, elect time.Duration
}

func takeTime(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *slowStore) Read(ctx context.Context, key stampede.Key) (stampede.Entry, error) {
	if err := takeTime(ctx, s.read); err != nil {
		return stampede.Entry{}, err
	}
	return s.MemoryStore.Read(ctx, key)
}

func (s *slowStore) Elect(ctx context.Context, key stampede.Key, b stampede.Ballot) (stampede.Election, error) {
	if err := takeTime(ctx, s.elect); err != nil {
		return stampede.Election{}, err
	}
	return s.MemoryStore.Elect(ctx, key, b)
}

// One budget for a call, over all its rounds: the second round of a caller whose load was ended because its
// lease was lost has what the first one has left, without the time that its election took.
func TestElectionOfAnEarlierRoundIsOnTheBudgetOfTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowStore{read: 100 * time.Millisecond, elect: 140 * time.Millisecond}
		g := newGuard[int](t, store, stampede.Options{Name: "rounds", StoreBudget: 250 * time.Millisecond})
		key, ctx := stampede.Key{Space: "rounds", Key: "k"}, t.Context()
		var ended time.Time
		loads := 0
		v, err := g.Get(ctx, "k", func(ctx context.Context) (int, error) {
			if loads++; loads == 1 { // another pod takes the lease
				if err := store.Delete(ctx, key); err != nil {
					t.Error(err)
				}
				if _, err := store.Elect(ctx, key, stampede.Ballot{Token: stampede.NewToken(), Length: time.Minute}); err != nil {
					t.Error(err)
				}
				<-ctx.Done()
				ended = time.Now()
				return 0, ctx.Err()
			}
			if d := time.Since(ended); d > 10*time.Millisecond {
				t.Errorf("the second round asked the store for %v; 10ms were left", d)
			}
			return loads, nil
		})
		if v != 2 || err != nil {
			t.Errorf("Get = %d, %v", v, err)
		}
	})
}
