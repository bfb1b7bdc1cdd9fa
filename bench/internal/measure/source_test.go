package measure_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/bench/internal/measure"
)

func TestSourceCountsLoadsAndHowManyRunAtOnce(t *testing.T) {
	s := &measure.Source{Took: 20 * time.Millisecond, Capacity: 2}
	begun := time.Now()
	for range 50 {
		if _, err := s.Load(context.Background(), 0, "warm", 8); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(begun); took > 500*time.Millisecond {
		t.Errorf("warming up took %v", took)
	}
	s.Reset()
	var wg sync.WaitGroup
	for pod := range 6 {
		wg.Go(func() {
			v, err := s.Load(context.Background(), pod, "k", 100)
			if err != nil || len(v) != 100 || measure.Age(v) < 0 || measure.Age(v) > time.Minute {
				t.Errorf("%d bytes, %v old, error %v", len(v), measure.Age(v), err)
			}
		})
	}
	wg.Wait()
	c := s.Counted()
	if len(c.Loads) != 6 || c.Most > 6 || c.Most < 3 || c.Queue < 1 || c.Queue > 4 {
		t.Errorf("%d loads, %d at once, %d queued", len(c.Loads), c.Most, c.Queue)
	}
	for _, l := range c.Loads {
		if !l.OK || l.End.Sub(l.Begin) < s.Took {
			t.Errorf("a load of %v, ok %v", l.End.Sub(l.Begin), l.OK)
		}
	}
	s.Reset()
	if c := s.Counted(); len(c.Loads) != 0 || c.Most != 0 {
		t.Errorf("after a reset: %+v", c)
	}
}

func TestSourceHangsUntilReleasedWhateverTheCtxSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &measure.Source{Hang: func(measure.Load) bool { return true }}
		s.Reset()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		var err error
		done := false
		go func() {
			_, err = s.Load(ctx, 0, "k", 8)
			done = true
		}()
		time.Sleep(time.Hour)
		synctest.Wait()
		if done {
			t.Fatal("it looked at its ctx")
		}
		s.Release()
		synctest.Wait()
		if !done || err == nil {
			t.Errorf("after the release: done %v, error %v", done, err)
		}
	})
}

func TestSourceEndsALoadWithItsCtx(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	s := &measure.Source{Took: time.Minute}
	s.Reset()
	if _, err := s.Load(ctx, 0, "k", 8); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if l := s.Counted().Loads[0]; l.OK || l.End.IsZero() {
		t.Errorf("counted as %+v", l)
	}
}

func TestExpiriesTellLoadsOfOneExpiryFromThoseOfTheNext(t *testing.T) {
	begin := time.Now()
	load := func(at, took int) measure.Load {
		return measure.Load{Begin: begin.Add(time.Duration(at) * time.Millisecond), End: begin.Add(time.Duration(at+took) * time.Millisecond), OK: true}
	}
	failed := load(0, 100)
	failed.OK = false
	for name, c := range map[string]struct {
		loads []measure.Load
		want  []int
	}{
		"none":                                {nil, nil},
		"one load for each":                   {[]measure.Load{load(0, 100), load(1100, 100), load(2200, 100)}, []int{1, 1, 1}},
		"two at once":                         {[]measure.Load{load(0, 100), load(5, 100), load(1100, 100), load(1101, 100)}, []int{2, 2}},
		"one right after the other":           {[]measure.Load{load(0, 100), load(110, 100), load(1100, 100)}, []int{2, 1}},
		"early, but not before half":          {[]measure.Load{load(0, 100), load(600, 100)}, []int{1, 1}},
		"a failed one, then one that was not": {[]measure.Load{failed, load(900, 100)}, []int{2}},
	} {
		if got := measure.Expiries(c.loads, time.Second); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestPacerSleepsForAsLongAsItIsTold(t *testing.T) {
	p, err := measure.NewPacer()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, d := range []time.Duration{-time.Second, 0, 100 * time.Microsecond, 10 * time.Millisecond} {
		begun := time.Now()
		p.Sleep(d)
		if slept := time.Since(begun); slept < d {
			t.Errorf("slept for %v, not %v", slept, d)
		}
	}
}
