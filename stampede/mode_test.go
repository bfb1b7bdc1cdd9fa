package stampede_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/stampedetest"
)

// unlogged is for tests that switch: that is logged.
var unlogged = slog.New(slog.DiscardHandler)

// asked is how many calls of all steps, but for its subscription, a pod has made to the store.
func (p pod) asked() (n int) {
	for _, s := range []stampedetest.Step{stampedetest.StepRead, stampedetest.StepElect, stampedetest.StepCommit, stampedetest.StepRenew, stampedetest.StepFail,
		stampedetest.StepRelease, stampedetest.StepSet, stampedetest.StepDelete, stampedetest.StepExpire, stampedetest.StepWatch, stampedetest.StepHealth} {
		n += p.net.Calls(s)
	}
	return n
}

func TestBypassUsesNeitherTheStoreNorMemory(t *testing.T) {
	for name, trouble := range map[string]func(*stampedetest.Faulty){
		"store answers": func(*stampedetest.Faulty) {}, "store is down": func(f *stampedetest.Faulty) { f.Down(nil) }, "store hangs": (*stampedetest.Faulty).Hang,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, src := newPod(t, new(bytesStore), stampede.Options{Logger: unlogged, Policy: steady}), &source{takes: 100 * time.Millisecond}
				must(t, p.Set(t.Context(), "k", 9))
				get(t.Context(), p.Guard, "k", never(t)).is(t, 9, 0) // and a copy of it is in memory
				trouble(p.net)
				asked := p.asked()
				p.SetMode(stampede.Bypass)
				for range 3 {
					var callers [8]<-chan answer
					for i := range callers {
						callers[i] = going(t.Context(), p.Guard, "k", src.load)
					}
					for _, c := range callers {
						a := <-c
						a.within(t, max(a.v, 1), 2*src.takes) // who came late for one load waits for the next
					}
					synctest.Wait()
				}
				if _, ok, err := p.Peek(t.Context(), "k"); ok || err != nil {
					t.Errorf("Peek: %v, %v", ok, err)
				}
				must(t, p.Refresh(t.Context(), "k", never(t)))
				synctest.Wait()
				if n := p.asked() - asked; n != 0 {
					t.Errorf("the store was asked %d times", n)
				}
				if n, top := src.loads(); n < 3 || n > 6 || top != 1 {
					t.Errorf("%d loads, %d at once, want 3 to 6, and 1", n, top)
				}
				if s := p.Stats(); s.Bypassed != 24 || s.Misses != 0 {
					t.Errorf("%d bypassed, %d misses", s.Bypassed, s.Misses)
				}
				// What it has loaded was kept nowhere.
				p.SetMode(stampede.Normal)
				if a := get(t.Context(), p.Guard, "k", never(t)); a.v != 9 || a.err != nil {
					t.Errorf("back in Normal: %+v", a)
				}
				p.net.Up()
			})
		})
	}
}

func TestWhatGetReturnsInBypassIsFromALoadThatBeganDuringIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, src := newPod(t, new(bytesStore), stampede.Options{Logger: unlogged, Policy: steady}), &source{takes: time.Second}
		before := going(t.Context(), p.Guard, "k", src.load)
		synctest.Wait()
		p.SetMode(stampede.Bypass)
		first := going(t.Context(), p.Guard, "k", src.load)
		time.Sleep(src.takes / 2)
		second := going(t.Context(), p.Guard, "k", src.load)
		(<-before).is(t, 1, src.takes)
		(<-first).is(t, 2, src.takes)
		(<-second).is(t, 3, src.takes+src.takes/2)
	})
}

func TestErrorsAndMisbehaviourOfLoadersReachCallersInBypass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(bytesStore), stampede.Options{Logger: unlogged, Policy: steady, LoadTimeout: time.Minute})
		must(t, p.Set(t.Context(), "k", 9))
		p.SetMode(stampede.Bypass)
		get(t.Context(), p.Guard, "k", (&source{fails: errBoom}).load).fails(t, errBoom, 0)
		get(t.Context(), p.Guard, "k", (&source{fails: stampede.ErrNotFound}).load).fails(t, stampede.ErrNotFound, 0)
		get(t.Context(), p.Guard, "k", func(context.Context) (int, error) { panic(errBoom) }).fails(t, errBoom, 0)
		get(t.Context(), p.Guard, "k", slowly(2*time.Minute, 1)).fails(t, stampede.ErrLoadTimeout, time.Minute)
		get(t.Context(), p.Guard, "k", func(ctx context.Context) (int, error) { return p.Get(ctx, "k", value(1)) }).fails(t, stampede.ErrReentrant, 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		get(ctx, p.Guard, "k", slowly(time.Minute/2, 1)).fails(t, context.DeadlineExceeded, time.Second)
		time.Sleep(time.Minute)
		get(t.Context(), p.Guard, "k", value(7)).is(t, 7, 0)
		must(t, p.Close(t.Context()))
		get(t.Context(), p.Guard, "k", never(t)).fails(t, stampede.ErrClosed, 0)
	})
}

func TestReadOnlyServesWhatIsStoredAndStoresNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, src := new(bytesStore), &source{takes: 100 * time.Millisecond}
		a, b := newPod(t, store, stampede.Options{Logger: unlogged, Policy: steady}), newPod(t, store, stampede.Options{Logger: unlogged, Policy: steady})
		pods := []pod{a, b}
		must(t, a.Set(t.Context(), "k", 9))
		for _, p := range pods {
			p.SetMode(stampede.ReadOnly)
			get(t.Context(), p.Guard, "k", never(t)).is(t, 9, 0)
		}
		time.Sleep(steady.TTL)
		for _, p := range pods { // stale
			must(t, p.Refresh(t.Context(), "k", never(t)))
			get(t.Context(), p.Guard, "k", never(t)).is(t, 9, 0)
			synctest.Wait()
		}
		time.Sleep(steady.StaleFor)
		for i, p := range pods { // kept for when a load fails
			get(t.Context(), p.Guard, "k", (&source{fails: errBoom}).load).is(t, 9, 0)
			get(t.Context(), p.Guard, "k", src.load).is(t, i+1, src.takes)
		}
		var callers []<-chan answer
		for _, p := range pods { // nothing
			for range 8 {
				callers = append(callers, going(t.Context(), p.Guard, "cold", src.load))
			}
		}
		for _, c := range callers {
			a := <-c
			a.within(t, max(a.v, 3), 2*src.takes)
		}
		synctest.Wait()
		if n, _ := src.loads(); n > 2+2*2 { // one for each pod, and one more for those who came late for it
			t.Errorf("%d loads", n)
		}
		for _, p := range pods {
			for _, step := range []stampedetest.Step{stampedetest.StepElect, stampedetest.StepCommit, stampedetest.StepFail, stampedetest.StepRelease} {
				if n := p.net.Calls(step); n != 0 {
					t.Errorf("%v: %d calls", step, n)
				}
			}
			if _, ok, err := p.Peek(t.Context(), "cold"); ok || err != nil {
				t.Errorf("a value was stored: %v, %v", ok, err)
			}
		}
		// Nor is it kept in memory.
		a.net.Down(nil)
		get(t.Context(), a.Guard, "cold", value(77)).is(t, 77, 0)
		a.net.Up()
		a.SetMode(stampede.Normal)
		get(t.Context(), a.Guard, "cold", value(78)).is(t, 78, 0)
		get(t.Context(), b.Guard, "cold", never(t)).is(t, 78, 0)
	})
}

func TestLoadUnderWayIsNotStoredAfterASwitchAndGivesItsLeaseBack(t *testing.T) {
	for _, mode := range []stampede.Mode{stampede.ReadOnly, stampede.Bypass} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := new(bytesStore)
				a, b := newPod(t, store, stampede.Options{Logger: unlogged, Policy: steady, Lease: time.Minute}), newPod(t, store, stampede.Options{Logger: unlogged, Policy: steady})
				loading := going(t.Context(), a.Guard, "k", slowly(time.Second, 1))
				synctest.Wait()
				a.SetMode(mode)
				(<-loading).is(t, 1, time.Second)
				synctest.Wait()
				if _, ok, err := b.Peek(t.Context(), "k"); ok || err != nil {
					t.Errorf("it was stored: %v, %v", ok, err)
				}
				get(t.Context(), b.Guard, "k", value(2)).is(t, 2, 0)
				get(t.Context(), b.Guard, "k", never(t)).is(t, 2, 0)
			})
		})
	}
}

func TestDeleteAndExpireWorkInEveryModeAndSetOnlyInNormal(t *testing.T) {
	for _, mode := range []stampede.Mode{stampede.Normal, stampede.ReadOnly, stampede.Bypass} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := new(bytesStore)
				a, b := newPod(t, store, stampede.Options{Logger: unlogged, Policy: steady}), newPod(t, store, stampede.Options{Logger: unlogged, Policy: steady})
				must(t, errors.Join(a.Set(t.Context(), "deleted", 1), a.Set(t.Context(), "expired", 1), a.Set(t.Context(), "set", 1)))
				a.SetMode(mode)
				if a.Mode() != mode {
					t.Errorf("Mode is %v", a.Mode())
				}
				must(t, a.Delete(t.Context(), "deleted"))
				must(t, a.Expire(t.Context(), "expired"))
				want := 1
				switch err := a.Set(t.Context(), "set", 2); {
				case mode == stampede.Normal:
					must(t, err)
					want = 2
				case !errors.Is(err, stampede.ErrReadOnly):
					t.Errorf("Set: %v", err)
				}
				if _, ok, err := b.Peek(t.Context(), "deleted"); ok || err != nil {
					t.Errorf("it is still there: %v, %v", ok, err)
				}
				if r, ok, err := b.Peek(t.Context(), "expired"); !ok || r.Freshness != stampede.Stale || err != nil {
					t.Errorf("it is %v, %v, %v", r.Freshness, ok, err)
				}
				get(t.Context(), b.Guard, "set", never(t)).is(t, want, 0)
				a.net.Down(nil)
				if a.Delete(t.Context(), "set") == nil {
					t.Error("Delete says that it has deleted")
				}
				a.net.Up()
			})
		})
	}
}

// Whatever moment a switch comes at, callers get values.
func TestSwitchingUnderLoadCostsNobodyAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, src := new(bytesStore), &source{takes: 30 * time.Millisecond}
		policy := stampede.Policy{TTL: 100 * time.Millisecond, StaleFor: 50 * time.Millisecond, Jitter: -1}
		a, b := newPod(t, store, stampede.Options{Logger: unlogged, Policy: policy}), newPod(t, store, stampede.Options{Logger: unlogged, Policy: policy})
		end := time.Now().Add(5 * time.Second)
		var wg sync.WaitGroup
		for i, p := range []pod{a, b} {
			for j := range 4 {
				wg.Go(func() {
					for time.Now().Before(end) {
						if a := get(t.Context(), p.Guard, "k", src.load); a.err != nil || a.v == 0 || a.took > 4*src.takes {
							t.Errorf("%+v", a)
						}
						time.Sleep(time.Duration(1+i+3*j) * time.Millisecond)
					}
				})
			}
			wg.Go(func() {
				for n := 0; time.Now().Before(end); n++ {
					p.SetMode(stampede.Mode(n % 3))
					time.Sleep(time.Duration(17+7*i) * time.Millisecond)
				}
				p.SetMode(stampede.Normal)
			})
		}
		wg.Wait()
		synctest.Wait()
		if n, top := src.loads(); n < 10 || top > 4 { // one for each pod, and one more of before a switch to Bypass
			t.Errorf("%d loads, %d at once", n, top)
		}
		time.Sleep(time.Second) // loads of before have ended, and so has the marker of one that was not stored
		before, _ := src.loads()
		for range 100 { // all is as it was
			must(t, get(t.Context(), a.Guard, "k", src.load).err)
			must(t, get(t.Context(), b.Guard, "k", src.load).err)
		}
		synctest.Wait()
		if n, _ := src.loads(); n > before+1 {
			t.Errorf("%d loads for a hundred callers", n-before)
		}
	})
}

func TestChangesOfTheModeAreLoggedOnce(t *testing.T) {
	var log strings.Builder
	g := newGuard[int](t, new(stampede.MemoryStore), stampede.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for _, m := range []stampede.Mode{stampede.Normal, stampede.Bypass, stampede.Bypass, stampede.ReadOnly, stampede.Normal, stampede.Normal} {
		g.SetMode(m)
	}
	if n := strings.Count(log.String(), "\n"); n != 3 || !strings.Contains(log.String(), "mode=read_only was=bypass") {
		t.Errorf("%s", log.String())
	}
}

func TestModesAreText(t *testing.T) {
	type config struct{ Mode stampede.Mode }
	for _, m := range []stampede.Mode{stampede.Normal, stampede.ReadOnly, stampede.Bypass} {
		text, err := json.Marshal(config{m})
		var back config
		if err := errors.Join(err, json.Unmarshal(text, &back)); err != nil || back.Mode != m {
			t.Errorf("%s came back as %v, %v", text, back.Mode, err)
		}
	}
	m := stampede.Bypass
	if err := m.UnmarshalText([]byte("off")); err == nil || m != stampede.Bypass {
		t.Errorf("%v, %v", m, err)
	}
}

func TestSwitchingToNoModePanics(t *testing.T) {
	g := newGuard[int](t, new(stampede.MemoryStore), stampede.Options{})
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	g.SetMode(stampede.Bypass + 1)
}

func TestModeOfAGuardThatNewHasNotMade(t *testing.T) {
	for _, g := range []*stampede.Guard[int]{nil, new(stampede.Guard[int])} {
		g.SetMode(stampede.Bypass)
		if g.Mode() != stampede.Normal {
			t.Errorf("%v", g.Mode())
		}
	}
}
