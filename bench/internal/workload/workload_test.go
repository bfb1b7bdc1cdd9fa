package workload_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/herdgate/herdgate/bench/internal/contender"
	"github.com/herdgate/herdgate/bench/internal/fleet"
	"github.com/herdgate/herdgate/bench/internal/traffic"
	"github.com/herdgate/herdgate/bench/internal/workload"
	"github.com/herdgate/herdgate/internal/redistest"
)

var shared redistest.Shared

func TestMain(m *testing.M) {
	fleet.Main()
	traffic.Main()
	os.Exit(shared.Around(m).Run())
}

func newRig(t *testing.T) *workload.Rig {
	server := shared.Server(t)
	rig := &workload.Rig{Addr: server.Addr(), Server: server}
	t.Cleanup(func() { _ = rig.Close() })
	return rig
}

// perfect is a cache that all pods share and that loads so many times, at once, whenever a value has passed its
// TTL; callers wait. It does not ask Redis for anything, unless it says so.
func perfect(loads, gets int) contender.Contender {
	var mu sync.Mutex
	type entry struct {
		value []byte
		until time.Time
	}
	values := make(map[string]entry)
	return contender.Contender{Name: "perfect", Open: func(e *contender.Env) (contender.Cache, error) {
		rdb := e.Redis()
		return cache{
			get: func(ctx context.Context, key string) ([]byte, error) {
				for range gets {
					if err := rdb.Ping(ctx).Err(); err != nil { // connects, and is not counted
						return nil, err
					}
					if err := rdb.Exists(ctx, key).Err(); err != nil {
						return nil, err
					}
				}
				mu.Lock()
				defer mu.Unlock()
				if v := values[key]; time.Now().Before(v.until) {
					return v.value, nil
				}
				var wg sync.WaitGroup
				brought := make([][]byte, loads)
				for i := range loads {
					wg.Go(func() { brought[i], _ = e.Load(ctx, key) })
				}
				wg.Wait()
				values[key] = entry{brought[0], time.Now().Add(e.TTL)}
				return brought[0], nil
			},
			close: rdb.Close,
		}, nil
	}}
}

type cache struct {
	get   func(ctx context.Context, key string) ([]byte, error)
	close func() error
}

func (c cache) Get(ctx context.Context, key string) ([]byte, error) { return c.get(ctx, key) }
func (c cache) Close() error                                        { return c.close() }

func TestStormShowsHowOftenAContenderLoads(t *testing.T) {
	rig := newRig(t)
	for loads := 1; loads <= 2; loads++ {
		r, err := workload.RunStorm(t.Context(), rig, perfect(loads, 3), 2, 8, 2600*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		want := float64(loads)
		if r.Values["per_expiry"] != want || r.Values["over_ideal"] != want || r.Values["most"] > want {
			t.Errorf("%d loads are shown as %v for an expiry, %v times the ideal, %v at once",
				loads, r.Values["per_expiry"], r.Values["over_ideal"], r.Values["most"])
		}
		if r.Values["requests"] != 3 || r.Values["scripted"] != 0 || r.Values["errors"] != 0 {
			t.Errorf("3 requests a call are shown as %v, %v of them in scripts, %v errors", r.Values["requests"], r.Values["scripted"], r.Values["errors"])
		}
		shown := 0
		for _, p := range r.Timeline {
			shown += p.Loads
		}
		if float64(shown) != r.Values["loads"] {
			t.Errorf("%d of %v loads are shown over time", shown, r.Values["loads"])
		}
	}
}

// A cache that fails at once must not look like one that answers at once.
func TestCallsThatFailFastAreNotFastCalls(t *testing.T) {
	rig := newRig(t)
	c := contender.Contender{Name: "failing", Open: func(e *contender.Env) (contender.Cache, error) {
		var calls atomic.Int64
		return cache{
			get: func(ctx context.Context, key string) ([]byte, error) {
				if calls.Add(1) > 4 { // it has been warmed
					return nil, errors.New("no")
				}
				return e.Load(ctx, key)
			},
			close: func() error { return nil },
		}, nil
	}}
	r, err := workload.RunStorm(t.Context(), rig, c, 1, 8, 500*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if r.Values["errors"] != r.Values["calls"] || r.Values["within5"] != 0 || r.Values["p50"] < 1000 {
		t.Errorf("%v errors of %v calls; %v %% within 5 ms, p50 %v ms", r.Values["errors"], r.Values["calls"], r.Values["within5"], r.Values["p50"])
	}
	if r, err = workload.RunCold(t.Context(), rig, c, 1, 3, 2); err != nil || r.Values["beyond"] < 1000 {
		t.Errorf("the slowest waited %v ms beyond the load, error %v", r.Values["beyond"], err)
	}
}

// misbehaving is a cache that brings what it is asked for until it has been told to do something else.
func misbehaving(calls int64, then func()) contender.Contender {
	return contender.Contender{Name: "misbehaving", Open: func(e *contender.Env) (contender.Cache, error) {
		var made atomic.Int64
		return cache{
			get: func(ctx context.Context, key string) ([]byte, error) {
				if made.Add(1) > calls {
					then()
				}
				return e.Load(ctx, key)
			},
			close: func() error { return nil },
		}, nil
	}}
}

func TestAContenderThatPanicsDoesNotEndTheOthersRuns(t *testing.T) {
	rig := newRig(t)
	c := misbehaving(4, func() { panic("oh") })
	r, err := workload.RunStorm(t.Context(), rig, c, 1, 8, 300*time.Millisecond)
	if err != nil || r.Values["errors"] == 0 || r.Errors["contender: panic: oh"] == 0 {
		t.Errorf("a storm shows errors %v, error %v", r.Errors, err)
	}
	if _, err := workload.RunHit(t.Context(), rig, c, true, 25*time.Millisecond); err == nil {
		t.Error("hits that panic are hits")
	}
}

// Requests over a connection that is not counted must not make a contender look as if it sent none.
func TestConnectionsThatAreNotCountedAreFound(t *testing.T) {
	rig := newRig(t)
	c := contender.Contender{Name: "hidden", Open: func(e *contender.Env) (contender.Cache, error) {
		e.Dial = nil
		rdb := e.Redis()
		return cache{
			get: func(ctx context.Context, key string) ([]byte, error) {
				if err := rdb.Exists(ctx, key).Err(); err != nil {
					return nil, err
				}
				return e.Load(ctx, key)
			},
			close: rdb.Close,
		}, nil
	}}
	if r, err := workload.RunStorm(t.Context(), rig, c, 2, 8, time.Second); err == nil {
		t.Errorf("%v requests a call, %v of them in scripts", r.Values["requests"], r.Values["scripted"])
	}
}

func TestHitsHaveToBringTheirValue(t *testing.T) {
	rig := newRig(t)
	for _, memory := range []bool{false, true} {
		empty := contender.Contender{Name: "empty", Open: func(e *contender.Env) (contender.Cache, error) {
			return cache{
				get:   func(context.Context, string) ([]byte, error) { return nil, nil },
				close: func() error { return nil },
			}, nil
		}}
		if r, err := workload.RunHit(t.Context(), rig, empty, memory, 25*time.Millisecond); err == nil {
			t.Errorf("a cache that returns nothing makes %v calls a second", r.Values["rate"])
		}
	}
}

func TestColdStartShowsTheWaitBeyondTheLoad(t *testing.T) {
	rig := newRig(t)
	r, err := workload.RunCold(t.Context(), rig, perfect(1, 1), 2, 3, 2)
	if err != nil {
		t.Fatal(err)
	}
	if r.Values["per_round"] != 1 || r.Values["requests_round"] != 3 {
		t.Errorf("%v loads in a round and %v requests of a pod, want 1 and 3", r.Values["per_round"], r.Values["requests_round"])
	}
	if b := r.Values["beyond"]; b < 0 || b > 150 {
		t.Errorf("the slowest waited %v ms beyond the load", b)
	}
}

// What the documentation says a call costs is what is measured.
func TestHerdgateCostsWhatItIsSaidToCost(t *testing.T) {
	rig := newRig(t)
	for name, want := range map[string]map[string]float64{
		"herdgate":    {"hit": 1, "miss": 2, "wait": 4, "stale": 2, "next": 1},
		"herdgate+L1": {"hit": 0, "miss": 2},
	} {
		r, err := workload.RunCost(t.Context(), rig, named(t, name))
		if err != nil {
			t.Fatal(err)
		}
		for call, n := range want {
			if got := r.Values[call]; got < n-0.5 || got > n+0.5 { // a starved machine renews a lease now and then; to unsubscribe is put off
				t.Errorf("%s: %v requests for %s, want %v", name, r.Values[call], call, n)
			}
		}
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

// wrapped is a cache before a handler that runs it so many times for each request.
func wrapped(runs int) contender.Contender {
	return contender.Contender{Name: "wrapped", Wrap: func(_ *contender.Env, h http.Handler) (contender.Web, error) {
		return contender.Web{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for range runs - 1 {
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
			w.Header().Set("Cache-Status", "wrapped; hit")
			h.ServeHTTP(w, r)
		}), Close: func() error { return nil }}, nil
	}}
}

func TestHTTPShowsHowOftenTheHandlerRuns(t *testing.T) {
	rig := newRig(t)
	for runs := 1; runs <= 2; runs++ {
		r, err := workload.RunWeb(t.Context(), rig, wrapped(runs))
		if err != nil {
			t.Fatal(err)
		}
		if r.Values["runs"] != float64(runs) || r.Values["requests"] != 0 {
			t.Errorf("%d runs for each request are shown as %v, with %v requests to Redis", runs, r.Values["runs"], r.Values["requests"])
		}
	}
	r, err := workload.RunWeb(t.Context(), rig, named(t, "herdgate"))
	if err != nil {
		t.Fatal(err)
	}
	// Requests that come together share a read.
	if n := r.Values["requests"]; r.Values["runs"] != 0 || n <= 0 || n > 1 {
		t.Errorf("a hit from Redis runs the handler %v times and asks Redis %v times", r.Values["runs"], n)
	}
}

func TestHTTPRefusesAnswersThatAreNotWhatIsMeasured(t *testing.T) {
	pass := contender.Contender{Name: "passes", Wrap: func(_ *contender.Env, h http.Handler) (contender.Web, error) {
		return contender.Web{Handler: h, Close: func() error { return nil }}, nil
	}}
	if _, err := workload.RunWeb(t.Context(), newRig(t), pass); err == nil {
		t.Error("a cache that never hits was measured as hits")
	}
}

func TestEveryWorkloadSaysWhatItMeasuresAndWhoTakesPart(t *testing.T) {
	names := make(map[string]bool)
	for _, w := range workload.All() {
		if names[w.Name] || w.Title == "" || w.About == "" || len(w.Columns) == 0 {
			t.Errorf("%q is not described, or twice", w.Name)
		}
		names[w.Name] = true
		keys := make(map[string]bool)
		for _, c := range w.Columns {
			if keys[c.Key] || c.Title == "" {
				t.Errorf("%s: column %q is there twice or has no title", w.Name, c.Key)
			}
			keys[c.Key] = true
		}
		own := false
		for _, c := range contender.All() {
			own = own || w.For(c) && (c.Name == "herdgate" || c.Name == "herdgate-memory")
		}
		if !own {
			t.Errorf("%s leaves herdgate out", w.Name)
		}
	}
}

// The plan has to fit what the Makefile promises, with time for opening and cleaning up.
func TestManyBusyGoroutinesTakeTurnsWithinASlice(t *testing.T) {
	server := shared.Server(t)
	rig := &workload.Rig{Addr: server.Addr(), Server: server}
	defer rig.Close()
	const par = 128
	had, shortest, err := workload.HitSlices(t.Context(), rig, nothing, par, 5)
	if err != nil {
		t.Fatal(err)
	}
	if had != par || shortest > 4 {
		t.Errorf("%d of %d goroutines had a turn, the shortest slice took %.1f times as long as it should", had, par, shortest)
	}
}

func TestAllRunsTogetherTakeNoLongerThanIsPromised(t *testing.T) {
	for _, quick := range []bool{true, false} {
		total, runs := time.Duration(0), 0
		for _, w := range workload.All() {
			before := total
			for _, v := range w.Variants(quick) {
				repeats := max(1, v.Repeats)
				for _, c := range contender.All() {
					if w.TakesPart(c, quick) {
						runs += repeats
						total += time.Duration(repeats) * v.Takes
					}
				}
			}
			t.Logf("%12s %v", w.Name, total-before)
		}
		limit := 24 * time.Minute
		if quick {
			limit = 160 * time.Second
		}
		t.Logf("quick=%v: %d runs, %v", quick, runs, total)
		if total > limit {
			t.Errorf("quick=%v: %d runs take %v, more than %v", quick, runs, total, limit)
		}
	}
}
