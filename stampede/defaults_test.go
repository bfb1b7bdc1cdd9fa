package stampede_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/stampedetest"
)

// defaults are the documented defaults, each by one effect that can be seen from outside.
var defaults = map[string]func(t *testing.T, p pod){
	"TTL and Jitter": func(t *testing.T, p pod) {
		least, most := time.Hour, time.Duration(0)
		for i := range 200 {
			r := fetched(t, p.Guard, fmt.Sprint(i), say(1, func(*stampede.Load[int]) {}))
			least, most = min(least, r.FreshFor), max(most, r.FreshFor)
		}
		if most > time.Minute || most < 59*time.Second || least < 54*time.Second || least > 55*time.Second {
			t.Errorf("values are fresh for %v to %v, want 54s to 1m", least, most)
		}
	},
	"StaleFor": func(t *testing.T, p pod) {
		must(t, p.Set(t.Context(), "k", 1))
		time.Sleep(113 * time.Second)
		if r := fetched(t, p.Guard, "k", say(2, func(*stampede.Load[int]) {})); r.Value != 1 || r.Freshness != stampede.Stale {
			t.Errorf("%+v", r)
		}
		must(t, p.Set(t.Context(), "k", 1))
		time.Sleep(2 * time.Minute)
		if r := fetched(t, p.Guard, "k", say(2, func(*stampede.Load[int]) {})); r.Value != 2 {
			t.Errorf("%+v", r)
		}
	},
	"StaleIfError": func(t *testing.T, p pod) {
		must(t, p.Set(t.Context(), "k", 1))
		bad := &source{fails: errBoom}
		time.Sleep(10*time.Minute + 53*time.Second)
		get(t.Context(), p.Guard, "k", bad.load).is(t, 1, 0)
		time.Sleep(8 * time.Second)
		get(t.Context(), p.Guard, "k", bad.load).fails(t, errBoom, 0)
	},
	"NotFoundTTL": func(t *testing.T, p pod) {
		get(t.Context(), p.Guard, "k", (&source{fails: stampede.ErrNotFound}).load).fails(t, stampede.ErrNotFound, 0)
		time.Sleep(5*time.Second - time.Millisecond)
		get(t.Context(), p.Guard, "k", never(t)).fails(t, stampede.ErrNotFound, 0)
		time.Sleep(time.Millisecond)
		get(t.Context(), p.Guard, "k", value(1)).is(t, 1, 0)
	},
	"ErrorBackoff and MaxErrorBackoff": func(t *testing.T, p pod) {
		must(t, p.Set(t.Context(), "k", 1))
		must(t, p.Expire(t.Context(), "k"))
		bad := &source{fails: errBoom}
		for range 1210 {
			get(t.Context(), p.Guard, "k", bad.load).is(t, 1, 0)
			synctest.Wait()
			time.Sleep(100 * time.Millisecond)
		}
		// After 0, 1, 3, 7, 15, 31, 61 and 91 s, and a little earlier, by Jitter; perhaps once more.
		if n, _ := bad.loads(); n < 8 || n > 10 {
			t.Errorf("%d loads in two minutes, want 9", n)
		}
	},
	"LoadTimeout": func(t *testing.T, p pod) {
		get(t.Context(), p.Guard, "k", slowly(time.Minute, 1)).fails(t, stampede.ErrLoadTimeout, 30*time.Second)
		time.Sleep(time.Minute)
	},
	"SoftTimeout": func(t *testing.T, p pod) {
		must(t, p.Set(t.Context(), "k", 1))
		time.Sleep(3 * time.Minute)
		get(t.Context(), p.Guard, "k", slowly(29*time.Second, 2)).is(t, 2, 29*time.Second)
	},
	"WaitTimeout and OnWaitTimeout": func(t *testing.T, p pod) {
		lead := func() {
			_, _ = p.net.Elect(t.Context(), key("k"), stampede.Ballot{Token: stampede.NewToken(), Length: time.Hour})
		}
		lead()
		get(t.Context(), p.Guard, "k", value(1)).is(t, 1, 30*time.Second)
	},
	"Lease": func(t *testing.T, p pod) {
		var length time.Duration
		p.net.Script(func(c stampedetest.Call) stampedetest.Fault {
			if c.Step == stampedetest.StepElect {
				length = c.Ballot.Length
			}
			return stampedetest.Fault{}
		})
		get(t.Context(), p.Guard, "k", value(1)).is(t, 1, 0)
		if length != time.Second {
			t.Errorf("leases of %v", length)
		}
	},
	"MaxAbandoned": func(t *testing.T, p pod) {
		var answers []<-chan answer
		for i := range 64 {
			answers = append(answers, going(t.Context(), p.Guard, fmt.Sprint(i), slowly(time.Hour, 1)))
		}
		for _, a := range answers {
			(<-a).fails(t, stampede.ErrLoadTimeout, 30*time.Second)
		}
		get(t.Context(), p.Guard, "k", never(t)).fails(t, stampede.ErrOverloaded, 0)
		time.Sleep(time.Hour)
		get(t.Context(), p.Guard, "k", value(1)).is(t, 1, 0)
	},
	"StoreBudget": func(t *testing.T, p pod) {
		p.net.Hang()
		get(t.Context(), p.Guard, "k", value(1)).is(t, 1, 250*time.Millisecond)
	},
	"CopyBudget and Local": func(t *testing.T, p pod) {
		get(t.Context(), p.Guard, "k", value(1)).is(t, 1, 0)
		p.net.Hang()
		get(t.Context(), p.Guard, "k", never(t)).is(t, 1, 25*time.Millisecond)
	},
	"MaxValueSize": func(t *testing.T, p pod) {
		g := newGuard[[]byte](t, p.net, stampede.Options{Name: "large"})
		if err := g.Set(t.Context(), "k", make([]byte, 8<<20-5)); err != nil { // and its length
			t.Error(err)
		}
		if err := g.Set(t.Context(), "k", make([]byte, 8<<20)); !errors.Is(err, stampede.ErrTooLarge) {
			t.Error(err)
		}
	},
}

func TestDefaultsAreAsDocumented(t *testing.T) {
	for name, check := range defaults {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { check(t, newPod(t, new(bytesStore), stampede.Options{})) })
		})
	}
}

func TestEntryPointsOfAGuardThatWasNotMadeSaySo(t *testing.T) {
	var none *stampede.Guard[int]
	for _, g := range []*stampede.Guard[int]{none, new(stampede.Guard[int])} {
		_, get := g.Get(t.Context(), "k", value(1))
		_, fetch := g.Fetch(t.Context(), "k", say(1, func(*stampede.Load[int]) {}))
		_, by := g.Getter(func(context.Context, string) (int, error) { return 1, nil }).Get(t.Context(), "k")
		_, _, peek := g.Peek(t.Context(), "k")
		for what, err := range map[string]error{
			"Get": get, "Fetch": fetch, "Getter": by, "Peek": peek, "Set": g.Set(t.Context(), "k", 1),
			"Delete": g.Delete(t.Context(), "k"), "Delete of nothing": g.Delete(t.Context()), "Expire": g.Expire(t.Context(), "k"),
			"Refresh": g.Refresh(t.Context(), "k", value(1)), "Close": g.Close(t.Context()),
		} {
			if err != stampede.ErrNoGuard {
				t.Errorf("%s: %v", what, err)
			}
		}
		if s := g.Stats(); s != (stampede.Stats{}) {
			t.Errorf("%+v", s)
		}
	}
}

func TestEmptyKeysAndNilLoadersAreErrors(t *testing.T) {
	g := newGuard[int](t, new(stampede.MemoryStore), stampede.Options{})
	_, get := g.Get(t.Context(), "", value(1))
	_, _, peek := g.Peek(t.Context(), "")
	for what, err := range map[string]error{"Get": get, "Peek": peek, "Set": g.Set(t.Context(), "", 1),
		"Delete": g.Delete(t.Context(), "k", ""), "Expire": g.Expire(t.Context(), ""), "Refresh": g.Refresh(t.Context(), "", value(1))} {
		if !errors.Is(err, stampede.ErrBadKey) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, get = g.Get(t.Context(), "k", nil)
	_, fetch := g.Fetch(t.Context(), "k", nil)
	_, by := g.Getter(nil).Get(t.Context(), "k")
	for what, err := range map[string]error{"Get": get, "Fetch": fetch, "Getter": by, "Refresh": g.Refresh(t.Context(), "k", nil)} {
		if !errors.Is(err, stampede.ErrNilLoader) {
			t.Errorf("%s: %v", what, err)
		}
	}
	must(t, g.Delete(t.Context()))
	must(t, g.Expire(t.Context()))
}

func TestKeysAreAnyBytes(t *testing.T) {
	g := newGuard[int](t, new(bytesStore), stampede.Options{})
	by := g.Getter(func(_ context.Context, key string) (int, error) { return len(key), nil })
	for _, k := range []string{"\x00", "\xff\xfe", "{}", "}{", "a b\n", string(make([]byte, 1<<20))} {
		if v, err := by.Get(t.Context(), k); v != len(k) || err != nil {
			t.Errorf("%.10q: %d, %v", k, v, err)
		}
		if r, ok, err := g.Peek(t.Context(), k); !ok || err != nil || r.Value != len(k) {
			t.Errorf("%.10q: %+v, %v, %v", k, r, ok, err)
		}
	}
}
