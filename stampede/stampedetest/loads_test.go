package stampedetest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede/stampedetest"
)

// complaints is a testing.TB that remembers failures.
type complaints struct {
	testing.TB
	said []string
}

func (c *complaints) Helper() {}
func (c *complaints) Errorf(format string, args ...any) {
	c.said = append(c.said, fmt.Sprintf(format, args...))
}

func TestLoadsCountsPerKeyAndAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &stampedetest.Loads[string]{Value: func(key string, n int) string { return fmt.Sprint(key, n) }, Takes: time.Second}
		var wg sync.WaitGroup
		for _, key := range []string{"a", "b", "b", "c"} {
			wg.Go(func() { _, _ = l.Load(t.Context(), key) })
		}
		synctest.Wait()
		if l.Running() != 4 || l.Running("b") != 2 {
			t.Errorf("%d running, %d of b; want 4, 2", l.Running(), l.Running("b"))
		}
		wg.Wait()
		l.AssertIdle(t)
		if v, err := l.Loader("a")(t.Context()); v != "a2" || err != nil {
			t.Errorf("the second load of a: %q, %v", v, err)
		}
		l.AssertLoads(t, 5)
		l.AssertLoads(t, 2, "a")
		l.AssertLoads(t, 0, "never")
		l.AssertMost(t, 4)
		l.AssertMost(t, 1, "a")

		c := &complaints{TB: t}
		l.AssertLoads(c, 4)
		l.AssertLoads(c, 3, "b")
		l.AssertMost(c, 3)
		l.AssertMost(c, 1, "b")
		l.AssertOneAtATime(c)
		if len(c.said) != 5 {
			t.Errorf("want 5 complaints, got %q", c.said)
		}
	})
}

func TestLoadsSaysWhatRuns(t *testing.T) {
	var l stampedetest.Loads[int]
	gate := new(stampedetest.Gate)
	l.Next(stampedetest.Fate{Gate: gate})
	done := make(chan struct{})
	go func() { defer close(done); _, _ = l.Load(t.Context(), "k") }()
	<-gate.Reached()
	c := &complaints{TB: t}
	l.AssertIdle(c)
	if len(c.said) != 1 {
		t.Error("no complaint of a load that runs")
	}
	gate.Open()
	<-done
	l.AssertIdle(t)
}

func TestLoadsFail(t *testing.T) {
	l := stampedetest.Loads[int]{Value: func(_ string, n int) int { return n }}
	l.Fail(2, errBroken)
	for range 2 {
		if _, err := l.Load(t.Context(), "k"); !errors.Is(err, errBroken) {
			t.Errorf("Load: %v, want the error it was told", err)
		}
	}
	if v, err := l.Load(t.Context(), "k"); v != 3 || err != nil {
		t.Errorf("Load: %d, %v; want 3", v, err)
	}
}

func TestLoadsPanicAndEndTheirGoroutineAndAreStillCounted(t *testing.T) {
	var l stampedetest.Loads[int]
	l.Next(stampedetest.Fate{Panic: "boom"}, stampedetest.Fate{Goexit: true})
	returned := false
	var wg sync.WaitGroup
	wg.Go(func() {
		defer func() {
			if v := recover(); v != "boom" {
				t.Errorf("recovered %v", v)
			}
		}()
		_, _ = l.Load(t.Context(), "k")
		returned = true
	})
	wg.Wait()
	wg.Go(func() {
		_, _ = l.Load(t.Context(), "k")
		returned = true
	})
	wg.Wait()
	if returned {
		t.Error("a load returned")
	}
	l.AssertLoads(t, 2)
	l.AssertIdle(t)
}

func TestLoadsHeedTheirContextUnlessDeaf(t *testing.T) {
	cause := errors.New("cause")
	for _, fate := range []stampedetest.Fate{{Takes: time.Hour}, {Gate: new(stampedetest.Gate)}, {Hang: true}} {
		synctest.Test(t, func(t *testing.T) {
			var l stampedetest.Loads[int]
			if fate.Gate != nil {
				fate.Gate = new(stampedetest.Gate)
			}
			l.Next(fate)
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(cause) })
			began := time.Now()
			if _, err := l.Load(ctx, "k"); !errors.Is(err, cause) || time.Since(began) != time.Second {
				t.Errorf("%+v: %v after %v", fate, err, time.Since(began))
			}
			if fate.Hang {
				return
			}
			fate.Deaf = true
			if fate.Gate != nil {
				fate.Gate = new(stampedetest.Gate)
				time.AfterFunc(time.Hour, fate.Gate.Open)
			}
			l.Next(fate)
			began = time.Now()
			if _, err := l.Load(ctx, "k"); err != nil || time.Since(began) != time.Hour {
				t.Errorf("deaf, %+v: %v after %v", fate, err, time.Since(began))
			}
		})
	}
}

func TestLoadsRefuseToHangForEver(t *testing.T) {
	var l stampedetest.Loads[int]
	l.Next(stampedetest.Fate{Hang: true, Deaf: true})
	defer func() {
		if v := fmt.Sprint(recover()); !strings.Contains(v, "Gate") {
			t.Errorf("recovered %v", v)
		}
	}()
	_, _ = l.Load(t.Context(), "k")
}

func TestLoadsFollowTheirScriptAfterWhatIsNext(t *testing.T) {
	l := stampedetest.Loads[int]{Value: func(_ string, n int) int { return n }}
	l.Next(stampedetest.Fate{})
	l.Script(func(r stampedetest.Run) stampedetest.Fate {
		if r.Key == "bad" && r.KeyN < 3 {
			return stampedetest.Fate{Err: errBroken}
		}
		return stampedetest.Fate{}
	})
	for i, want := range []error{nil, errBroken, nil} {
		if v, err := l.Load(t.Context(), "bad"); !errors.Is(err, want) || err == nil && v != i+1 {
			t.Errorf("load %d: %d, %v; want %v", i+1, v, err, want)
		}
	}
}
