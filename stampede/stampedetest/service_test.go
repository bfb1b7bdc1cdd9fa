package stampedetest_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/stampedetest"
)

// This file shows how to test a service that keeps something behind a guard: give it a MemoryStore, or a
// Faulty around one, and run the test in a bubble. Time passes as the test likes there, so "at once" and
// "after two seconds" are exact, and the tests take no time.

// shop is such a service.
type shop struct {
	prices *stampede.Guard[int]
	load   func(ctx context.Context, id string) (int, error)
}

func newShop(t *testing.T, store stampede.Store, load func(ctx context.Context, id string) (int, error)) *shop {
	t.Helper()
	prices, err := stampede.New[int](store, &stampede.Options{
		Name:   "price",
		Policy: stampede.Policy{TTL: time.Minute, StaleFor: 5 * time.Minute, StaleIfError: time.Hour},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &shop{prices, load}
}

func (s *shop) price(ctx context.Context, id string) (int, error) {
	return s.prices.Get(ctx, id, func(ctx context.Context) (int, error) { return s.load(ctx, id) })
}

func TestShopAsksOnceAndServesTheOldPriceMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		database := &stampedetest.Loads[int]{
			Value: func(_ string, n int) int { return 1000 * n },
			Takes: 2 * time.Second,
		}
		s := newShop(t, new(stampede.MemoryStore), database.Load)

		var customers sync.WaitGroup
		for range 100 {
			customers.Go(func() {
				if price, err := s.price(t.Context(), "lamp"); price != 1000 || err != nil {
					t.Error(price, err)
				}
			})
		}
		customers.Wait()
		if n := database.Count("lamp"); n != 1 {
			t.Errorf("%d queries", n)
		}

		time.Sleep(2 * time.Minute) // TTL has passed, StaleFor has not
		asked := time.Now()
		if price, err := s.price(t.Context(), "lamp"); price != 1000 || err != nil || time.Since(asked) > 0 {
			t.Error("not the old price at once:", price, err, time.Since(asked))
		}
		time.Sleep(3 * time.Second) // the load behind has ended
		if price, err := s.price(t.Context(), "lamp"); price != 2000 || err != nil {
			t.Error("not the new price:", price, err)
		}
	})
}

func TestShopServesTheOldPriceWhenTheDatabaseFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var database stampedetest.Loads[int]
		s := newShop(t, new(stampede.MemoryStore), database.Load)
		if err := s.prices.Set(t.Context(), "lamp", 1900); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute) // StaleFor has passed as well, StaleIfError has not
		database.Fail(1, errors.New("the database is down"))
		if price, err := s.price(t.Context(), "lamp"); price != 1900 || err != nil {
			t.Error(price, err)
		}
	})
}

func TestShopGoesOnWhenTheStoreDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := stampedetest.NewFaulty(new(stampede.MemoryStore))
		store.Script(func(stampedetest.Call) stampedetest.Fault {
			return stampedetest.Fault{Delay: time.Hour}
		})
		database := &stampedetest.Loads[int]{Value: func(string, int) int { return 1900 }}
		s := newShop(t, store, database.Load)
		asked := time.Now()
		price, err := s.price(t.Context(), "lamp")
		if price != 1900 || err != nil || time.Since(asked) > 250*time.Millisecond {
			t.Error(price, err, time.Since(asked))
		}
	})
}
