package fleet_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/herdgate/herdgate/bench/internal/contender"
	"github.com/herdgate/herdgate/bench/internal/fleet"
	"github.com/herdgate/herdgate/bench/internal/measure"
)

// fake is a contender whose Get is a function of its Env.
func fake(get func(e *contender.Env, ctx context.Context, key string) ([]byte, error)) contender.Contender {
	return contender.Contender{Name: "fake", Open: func(e *contender.Env) (contender.Cache, error) { return fakeCache{e, get}, nil }}
}

type fakeCache struct {
	env *contender.Env
	get func(e *contender.Env, ctx context.Context, key string) ([]byte, error)
}

func (f fakeCache) Get(ctx context.Context, key string) ([]byte, error) {
	return f.get(f.env, ctx, key)
}
func (fakeCache) Close() error { return nil }

func run(t *testing.T, c contender.Contender, pods int, spec fleet.Spec, source *measure.Source) fleet.Outcomes {
	t.Helper()
	specs := make([]fleet.Spec, pods)
	for i := range specs {
		specs[i] = spec
		specs[i].Arrivals.Seed = uint64(i)
	}
	f, err := fleet.Open(t.Context(), c, specs, source, false)
	if err != nil {
		t.Fatal(err)
	}
	source.Reset()
	out, err := f.Run(t.Context(), time.Now().Add(fleet.Lead))
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return out
}

// A loop that makes its next call when the last one has returned sees one slow call where users see hundreds:
// coordinated omission.
func TestCallsWhileTheCacheStallsAllCountAsSlow(t *testing.T) {
	var mu sync.Mutex
	var stallAt time.Time
	c := fake(func(e *contender.Env, ctx context.Context, key string) ([]byte, error) {
		mu.Lock() // one at a time, as over one connection
		defer mu.Unlock()
		if stallAt.IsZero() {
			stallAt = time.Now().Add(300 * time.Millisecond)
		}
		if now := time.Now(); now.After(stallAt) {
			stallAt = now.Add(time.Hour)
			time.Sleep(400 * time.Millisecond) // real time: the stall
		}
		return e.Load(ctx, key)
	})
	const rate = 500
	out := run(t, c, 1, fleet.Spec{Arrivals: measure.Arrivals{Rate: rate, For: time.Second}, CallTimeout: 5 * time.Second}, new(measure.Source))
	slow := 0
	for _, s := range out.Samples {
		if s.Took > 100*time.Millisecond {
			slow++
		}
	}
	// Those that were due in the first 300 ms of the stall waited for more than 100 ms.
	if want := rate * 3 / 10 * 8 / 10; slow < want {
		t.Errorf("%d of %d calls count as slow, want %d at least", slow, len(out.Samples), want)
	}
}

func TestCallsTellServedLoadedFailedAndUnanswered(t *testing.T) {
	gone := make(chan struct{})
	t.Cleanup(func() { close(gone) })
	c := fake(func(e *contender.Env, ctx context.Context, key string) ([]byte, error) {
		switch key[len(key)-1] {
		case '0':
			return e.Load(ctx, key)
		case '1':
			return e.Load(context.Background(), key) // for another call
		case '2':
			return nil, errors.New("no value on port 6379")
		case '3':
			<-gone
		}
		return nil, nil
	})
	out := run(t, c, 1, fleet.Spec{
		Arrivals: measure.Arrivals{Burst: 1, Every: 10 * time.Millisecond, For: 50 * time.Millisecond}, CallTimeout: time.Second, Grace: 100 * time.Millisecond,
	}, new(measure.Source))
	want := []fleet.Outcome{fleet.Loaded, fleet.Served, fleet.Failed, fleet.Unanswered, fleet.Failed}
	if len(out.Samples) != len(want) {
		t.Fatalf("%d samples, want %d", len(out.Samples), len(want))
	}
	for i, s := range out.Samples {
		if s.Outcome != want[i] {
			t.Errorf("call %d ended as %d, want %d", i, s.Outcome, want[i])
		}
	}
	if unanswered := out.Samples[3]; unanswered.Took < 100*time.Millisecond {
		t.Errorf("a call that was never answered took %v", unanswered.Took)
	}
	if out.Errors["no value on port ####"] != 1 || out.Errors["not a value of the key"] != 1 {
		t.Errorf("errors: %v", out.Errors)
	}
}

func TestPodsInProcessesMeasureAsPodsHereDo(t *testing.T) {
	server := shared.Server(t)
	for _, procs := range []bool{false, true} {
		t.Run("procs="+strconv.FormatBool(procs), func(t *testing.T) {
			source := &measure.Source{Took: 5 * time.Millisecond}
			var specs []fleet.Spec
			prefix := rand.Text() + ":" // the tests of a package share a server
			for i := range 2 {
				specs = append(specs, fleet.Spec{
					Params:      contender.Params{TTL: time.Minute, LoadTimeout: time.Second},
					Redis:       server.Addr(),
					Prefix:      prefix,
					Arrivals:    measure.Arrivals{Rate: 200, For: 300 * time.Millisecond, Seed: uint64(i)},
					CallTimeout: 5 * time.Second,
					Warm:        1,
				})
			}
			f, err := fleet.Open(t.Context(), named(t, "none"), specs, source, procs)
			if err != nil {
				t.Fatal(err)
			}
			warm := len(source.Counted().Loads)
			out, err := f.Run(t.Context(), time.Now().Add(fleet.Lead))
			if err := errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
			if warm != 3 { // one of each pod's own, one that they share
				t.Errorf("%d loads to warm up, want 3", warm)
			}
			if n := len(source.Counted().Loads) - warm; n != 0 {
				t.Errorf("%d loads of what was there", n)
			}
			calls := len(specs[0].Arrivals.List()) + len(specs[1].Arrivals.List())
			if len(out.Samples) != calls || out.Sent.Commands["get"] != int64(calls) || out.Sent.Requests != int64(calls) {
				t.Errorf("%d samples and %+v, want %d of each", len(out.Samples), out.Sent, calls)
			}
			if out.CPU <= 0 || len(out.Errors) != 0 || out.Lost != 0 {
				t.Errorf("processor time %v, errors %v, %d pods lost", out.CPU, out.Errors, out.Lost)
			}
		})
	}
}

func TestAPodWhoseProcessIsKilledIsLostAndNobodyElse(t *testing.T) {
	server := shared.Server(t)
	source := new(measure.Source)
	specs := make([]fleet.Spec, 2)
	for i := range specs {
		specs[i] = fleet.Spec{
			Params: contender.Params{TTL: time.Minute, LoadTimeout: time.Second}, Redis: server.Addr(), Prefix: rand.Text() + ":",
			Arrivals: measure.Arrivals{Rate: 100, For: 500 * time.Millisecond, Seed: uint64(i)}, CallTimeout: 5 * time.Second,
		}
	}
	f, err := fleet.Open(t.Context(), named(t, "none"), specs, source, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Kill(1); err != nil {
		t.Fatal(err)
	}
	out, err := f.Run(t.Context(), time.Now().Add(fleet.Lead))
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	if want := len(specs[0].Arrivals.List()); out.Lost != 1 || len(out.Samples) != want {
		t.Errorf("%d lost, %d samples, want 1 and %d", out.Lost, len(out.Samples), want)
	}
}

func named(t *testing.T, name string) contender.Contender {
	for _, c := range contender.All() {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no contender %q", name)
	return contender.Contender{}
}

// A cache that answers with another key's value, or with what was never loaded, serves nobody.
func TestWhatIsNoValueOfTheKeyIsAFailure(t *testing.T) {
	for name, answer := range map[string]func(v []byte) []byte{
		"of another key": func([]byte) []byte {
			v, _ := new(measure.Source).Load(t.Context(), 0, "another", measure.ValueSize)
			return v
		},
		"garbage":  func([]byte) []byte { return make([]byte, measure.ValueSize) },
		"cut off":  func(v []byte) []byte { return v[:100] },
		"too long": func(v []byte) []byte { return append(v, 0) },
	} {
		c := fake(func(e *contender.Env, ctx context.Context, key string) ([]byte, error) {
			v, err := e.Load(ctx, key)
			if strings.HasSuffix(key, measure.KeyName(1)) {
				v = answer(v)
			}
			return v, err
		})
		out := run(t, c, 1, fleet.Spec{
			Arrivals: measure.Arrivals{Burst: 1, Every: 10 * time.Millisecond, For: 30 * time.Millisecond}, CallTimeout: time.Second,
		}, new(measure.Source))
		if out.Errors["not a value of the key"] != 1 || out.Samples[1].Outcome != fleet.Failed {
			t.Errorf("%s: %+v, errors %v", name, out.Samples, out.Errors)
		}
	}
}
