package flight_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/internal/flight"
)

func TestCallersOfAKeyShareOneFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g flight.Group[int]
		runs := 0
		run := func(f *flight.Flight[int]) int { runs++; time.Sleep(time.Second); return 42 }
		var tickets []flight.Ticket[int]
		for range 8 {
			tickets = append(tickets, g.Join("k", time.Time{}, run))
		}
		if !g.Flying("k") || g.Flying("other") || g.Start("k", run) {
			t.Error("a second flight of the key could start")
		}
		for i := range tickets {
			if tickets[i].Starter() != (i == 0) {
				t.Errorf("caller %d: starter %v", i, tickets[i].Starter())
			}
			if v := flight.Result[int](<-tickets[i].Done()); *v != 42 {
				t.Errorf("got %d", *v)
			}
			tickets[i].Leave()
		}
		if g.Flying("k") || runs != 1 {
			t.Errorf("flying %v after %d runs", g.Flying("k"), runs)
		}
		again := g.Join("k", time.Time{}, run)
		<-again.Done()
		if !again.Starter() || runs != 2 {
			t.Errorf("%d runs, want 2", runs)
		}
	})
}

func TestMarksTellWhoCameBeforeThemAlsoAcrossFlights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g flight.Group[flight.Mark]
		run := func(f *flight.Flight[flight.Mark]) flight.Mark {
			time.Sleep(time.Second)
			m := f.Mark()
			time.Sleep(2 * time.Second)
			return m
		}
		early := g.Join("k", time.Time{}, run)
		time.Sleep(1500 * time.Millisecond)
		late := g.Join("k", time.Time{}, run)
		first := *flight.Result[flight.Mark](<-early.Done())
		if early.Joined() >= first || late.Joined() < first || early.Joined() == 0 {
			t.Errorf("early %d, mark %d, late %d", early.Joined(), first, late.Joined())
		}
		next := g.Join("k", time.Time{}, run)
		if second := *flight.Result[flight.Mark](<-next.Done()); late.Joined() >= second || next.Joined() >= second {
			t.Errorf("late %d, next %d, mark %d", late.Joined(), next.Joined(), second)
		}
	})
}

func TestWhoWaitsIsCountedAndToldOfNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g flight.Group[int]
		c := g.Join("k", time.Time{}, func(f *flight.Flight[int]) int {
			time.Sleep(time.Second)
			if n := f.Waiting(); n != 1 {
				t.Errorf("%d wait, want 1", n)
			}
			f.Tell(1)
			time.Sleep(time.Second)
			f.Tell(2)
			time.Sleep(time.Second)
			if n := f.Waiting(); n != 0 {
				t.Errorf("%d wait, want 0", n)
			}
			return 3
		})
		other := g.Join("k", time.Time{}, nil)
		other.Leave()
		told, news := c.Early()
		if told != nil {
			t.Errorf("told %d before there was anything to tell", *told)
		}
		<-news
		told, news = c.Early()
		if *told != 1 {
			t.Errorf("told %d, want 1", *told)
		}
		<-news
		if told, _ = c.Early(); *told != 2 {
			t.Errorf("told %d, want 2", *told)
		}
		c.Leave()
		if v := flight.Result[int](<-c.Done()); *v != 3 {
			t.Errorf("got %d, want 3", *v)
		}
	})
}
