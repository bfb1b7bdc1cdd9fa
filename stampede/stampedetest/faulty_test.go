package stampedetest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/stampedetest"
)

var (
	errBroken = errors.New("broken")
	k1        = stampede.Key{Space: "test", Key: "k1"}
	k2        = stampede.Key{Space: "test", Key: "k2"}
	payload   = stampede.Entry{Value: "payload", TTL: time.Hour, StaleFor: time.Hour}
)

func newFaulty() (*stampedetest.Faulty, *stampede.MemoryStore) {
	inner := new(stampede.MemoryStore)
	return stampedetest.NewFaulty(inner), inner
}

func ballot() stampede.Ballot {
	return stampede.Ballot{Token: stampede.NewToken(), Length: time.Hour}
}

func lead(t *testing.T, s stampede.Store, k stampede.Key) stampede.Stamp {
	t.Helper()
	el, err := s.Elect(t.Context(), k, ballot())
	if err != nil || el.Role != stampede.RoleLeader {
		t.Fatalf("Elect: role %d, %v; want the leader's", el.Role, err)
	}
	return el.Lease
}

func stored(t *testing.T, s stampede.Store, k stampede.Key) bool {
	t.Helper()
	e, err := s.Read(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	return e.Stamp != stampede.Stamp{}
}

func TestFaultyWithoutFaultsKeepsTheContract(t *testing.T) {
	stampedetest.TestStore(t, func(*testing.T) stampede.Store {
		f, _ := newFaulty()
		return f
	}, stampedetest.InBubble())
}

func TestFaultyKeepsTheContractWhileItHangsOrIsDown(t *testing.T) {
	for name, silence := range map[string]func(*stampedetest.Faulty){
		"hanging": func(f *stampedetest.Faulty) { f.Hang() },
		"down":    func(f *stampedetest.Faulty) { f.Down(nil) },
		"losing every answer": func(f *stampedetest.Faulty) {
			f.Script(func(stampedetest.Call) stampedetest.Fault { return stampedetest.Fault{Lost: errBroken} })
		},
		"never answering": func(f *stampedetest.Faulty) {
			f.Script(func(stampedetest.Call) stampedetest.Fault { return stampedetest.Fault{Reply: new(stampedetest.Gate)} })
		},
		"slow": func(f *stampedetest.Faulty) {
			f.Script(func(stampedetest.Call) stampedetest.Fault { return stampedetest.Fault{Delay: time.Hour} })
		},
	} {
		t.Run(name, func(t *testing.T) {
			stampedetest.TestStore(t, func(*testing.T) stampede.Store {
				f, _ := newFaulty()
				return f
			}, stampedetest.InBubble(), stampedetest.OnlySilence(), stampedetest.Silence(func(_ testing.TB, s stampede.Store) func() {
				f := s.(*stampedetest.Faulty)
				silence(f)
				return func() { f.Up(); f.Script(nil) }
			}))
		})
	}
}

func TestFaultyFailsBeforeExecuting(t *testing.T) {
	f, inner := newFaulty()
	f.Next(stampedetest.StepSet, stampedetest.Fault{Err: errBroken})
	if err := f.Set(t.Context(), k1, payload); !errors.Is(err, errBroken) {
		t.Errorf("Set: %v, want the script's error", err)
	}
	if stored(t, inner, k1) {
		t.Error("the Set was executed")
	}
	if err := f.Set(t.Context(), k1, payload); err != nil || !stored(t, inner, k1) {
		t.Errorf("the next Set: %v", err)
	}
	if f.Calls(stampedetest.StepSet) != 2 || f.Executed(stampedetest.StepSet) != 1 {
		t.Errorf("%d Sets called, %d executed; want 2, 1", f.Calls(stampedetest.StepSet), f.Executed(stampedetest.StepSet))
	}
}

func TestFaultyLosesAnswers(t *testing.T) {
	f, inner := newFaulty()
	lease := lead(t, f, k1)
	f.Next(stampedetest.StepCommit, stampedetest.Fault{Lost: errBroken})
	v, err := f.Commit(t.Context(), k1, lease, payload)
	if v != stampede.Unknown || !errors.Is(err, errBroken) {
		t.Errorf("Commit: %d, %v; want Unknown and the script's error", v, err)
	}
	if !stored(t, inner, k1) {
		t.Error("the Commit was not executed")
	}
	f.Next(stampedetest.StepSet, stampedetest.Fault{Lost: errBroken})
	if err := f.Set(t.Context(), k2, payload); !errors.Is(err, errBroken) || !errors.Is(err, stampede.ErrOutcomeUnknown) {
		t.Errorf("Set: %v, want the script's error and ErrOutcomeUnknown", err)
	}
	if !stored(t, inner, k2) {
		t.Error("the Set was not executed")
	}
}

func TestFaultyGivesBackALeaseThatItsLeaderDoesNotKnowOf(t *testing.T) {
	for _, ghost := range []bool{false, true} {
		f, _ := newFaulty()
		f.Next(stampedetest.StepElect, stampedetest.Fault{Lost: errBroken, Ghost: ghost})
		if el, err := f.Elect(t.Context(), k1, ballot()); !errors.Is(err, errBroken) || el.Role != 0 {
			t.Errorf("Elect: %+v, %v", el, err)
		}
		want := stampede.RoleLeader
		if ghost {
			want = stampede.RoleFollower
		}
		if el, _ := f.Elect(t.Context(), k1, ballot()); el.Role != want {
			t.Errorf("ghost %v: role %d, want %d", ghost, el.Role, want)
		}
	}
}

func TestFaultyExecutesACopyLater(t *testing.T) {
	f, inner := newFaulty()
	var late stampedetest.Copy
	if late.Execute(t.Context()) == nil {
		t.Error("a copy of no call was executed")
	}
	f.Next(stampedetest.StepSet, stampedetest.Fault{Err: stampede.ErrOutcomeUnknown, Copy: &late})
	_ = f.Set(t.Context(), k1, payload)
	if stored(t, inner, k1) {
		t.Error("the Set was executed at once")
	}
	f.Down(nil)
	for range 2 {
		_ = inner.Delete(t.Context(), k1)
		if err := late.Execute(t.Context()); err != nil || !stored(t, inner, k1) {
			t.Errorf("the copy was not executed: %v", err)
		}
	}
}

func TestFaultyLateCopyOfAnElectCannotReviveARight(t *testing.T) {
	f, _ := newFaulty()
	var late stampedetest.Copy
	f.Next(stampedetest.StepElect, stampedetest.Fault{Copy: &late})
	lease := lead(t, f, k1)
	_ = f.Delete(t.Context(), k1)
	if err := late.Execute(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v, err := f.Commit(t.Context(), k1, lease, payload); v != stampede.Refused || err != nil {
		t.Errorf("Commit: %d, %v; want Refused", v, err)
	}
}

func TestFaultyEndsAndStealsLeases(t *testing.T) {
	f, _ := newFaulty()
	renew := func(lease stampede.Stamp) stampede.Holding {
		h, err := f.Renew(t.Context(), k1, lease, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	f.Script(func(c stampedetest.Call) stampedetest.Fault {
		return stampedetest.Fault{EndLease: c.Step == stampedetest.StepRenew && c.KeyN == 2}
	})
	lease := lead(t, f, k1)
	if got := []stampede.Holding{renew(lease), renew(lease)}; got[0] != stampede.Held || got[1] != stampede.Absent {
		t.Errorf("Renew: %v, want Held, then Absent", got)
	}
	lease = lead(t, f, k1)
	f.Next(stampedetest.StepRenew, stampedetest.Fault{Steal: time.Hour})
	if got := renew(lease); got != stampede.Taken {
		t.Errorf("Renew: %d, want Taken", got)
	}
	_ = f.Delete(t.Context(), k1)
	f.Next(stampedetest.StepElect, stampedetest.Fault{Steal: time.Hour})
	lease = lead(t, f, k1)
	if v, _ := f.Commit(t.Context(), k1, lease, payload); v != stampede.Refused {
		t.Errorf("Commit after the lease was stolen: %d, want Refused", v)
	}
}

func TestFaultyCanBeFull(t *testing.T) {
	f, inner := newFaulty()
	lease := lead(t, f, k1)
	full := stampedetest.Fault{Full: errBroken}
	f.Next(stampedetest.StepCommit, full)
	f.Next(stampedetest.StepSet, full)
	if v, err := f.Commit(t.Context(), k1, lease, payload); v != stampede.NotStored || !errors.Is(err, errBroken) {
		t.Errorf("Commit: %d, %v; want NotStored and the script's error", v, err)
	}
	if err := f.Set(t.Context(), k1, payload); !errors.Is(err, errBroken) || errors.Is(err, stampede.ErrOutcomeUnknown) {
		t.Errorf("Set: %v, want the script's error and a known outcome", err)
	}
	if stored(t, inner, k1) {
		t.Error("something was written")
	}
	lead(t, f, k1) // the lease was given back
}

func TestFaultyCallsWaitAtAGate(t *testing.T) {
	f, inner := newFaulty()
	gate := new(stampedetest.Gate)
	f.Script(func(c stampedetest.Call) stampedetest.Fault {
		if c.Step == stampedetest.StepSet && c.Key == k1 {
			return stampedetest.Fault{Gate: gate}
		}
		return stampedetest.Fault{}
	})
	done := make(chan error)
	go func() { done <- f.Set(t.Context(), k1, payload) }()
	<-gate.Reached()
	if err := f.Set(t.Context(), k2, payload); err != nil {
		t.Error(err)
	}
	if stored(t, inner, k1) || gate.Waiting() != 1 {
		t.Error("the Set did not wait")
	}
	gate.Open()
	if err := <-done; err != nil || !stored(t, inner, k1) {
		t.Errorf("the Set was not executed: %v", err)
	}
	if err := f.Set(t.Context(), k1, payload); err != nil {
		t.Error("an open gate holds up a call:", err)
	}
}

func TestFaultyAnswerWaitsAtAGate(t *testing.T) {
	f, inner := newFaulty()
	gate := new(stampedetest.Gate)
	f.Next(stampedetest.StepSet, stampedetest.Fault{Reply: gate})
	done := make(chan error)
	go func() { done <- f.Set(t.Context(), k1, payload) }()
	<-gate.Reached()
	if !stored(t, inner, k1) {
		t.Error("the Set was not executed before its answer")
	}
	gate.Open()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestFaultyReturnsByTheDeadlineUnlessDeaf(t *testing.T) {
	for name, fault := range map[string]stampedetest.Fault{
		"delay": {Delay: time.Minute},
		"gate":  {Gate: new(stampedetest.Gate)},
		"reply": {Reply: new(stampedetest.Gate)},
	} {
		for _, deaf := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				f, _ := newFaulty()
				if fault.Gate != nil {
					fault.Gate = new(stampedetest.Gate)
					time.AfterFunc(time.Minute, fault.Gate.Open)
				}
				if fault.Reply != nil {
					fault.Reply = new(stampedetest.Gate)
					time.AfterFunc(time.Minute, fault.Reply.Open)
				}
				fault.Deaf = deaf
				f.Next(stampedetest.StepRead, fault)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				began := time.Now()
				_, err := f.Read(ctx, k1)
				took := time.Since(began)
				switch {
				case deaf && (took != time.Minute || err != nil):
					t.Errorf("%s, deaf: %v after %v, want an answer after a minute", name, err, took)
				case !deaf && (took != time.Second || !errors.Is(err, context.DeadlineExceeded)):
					t.Errorf("%s: %v after %v, want the deadline's error after a second", name, err, took)
				}
			})
		}
	}
}

func TestFaultyHangsUntilItIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, inner := newFaulty()
		f.Hang()
		done := make(chan error, 2)
		go func() { done <- f.Set(t.Context(), k1, payload) }()
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			done <- f.Set(ctx, k2, payload)
		}()
		time.Sleep(time.Minute)
		if err := <-done; !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, stampede.ErrOutcomeUnknown) {
			t.Errorf("Set: %v, want the deadline's error and ErrOutcomeUnknown", err)
		}
		f.Up()
		if err := <-done; err != nil {
			t.Errorf("the Set that waited: %v", err)
		}
		if !stored(t, inner, k1) || stored(t, inner, k2) {
			t.Error("want k1 stored, and k2 not: its caller had gone")
		}
	})
}

func TestFaultyThatGoesDownWhileItHangsLetsTheWaitingGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := newFaulty()
		f.Hang()
		done := make(chan error, 1)
		go func() { done <- f.Health(t.Context()) }()
		synctest.Wait()
		f.Down(errBroken)
		if err := <-done; !errors.Is(err, errBroken) {
			t.Errorf("Health: %v, want the error of Down", err)
		}
	})
}

func TestFaultyDownLosesSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, inner := newFaulty()
		w := f.Watch(k1)
		defer w.Close()
		var drops []string
		defer f.Drops(k1.Space, func(key string) { drops = append(drops, key) })()
		<-w.Ready()
		f.Down(nil)
		<-w.C() // the loss is told
		ready := w.Ready()
		select {
		case <-ready:
			t.Error("a lost watch is ready")
		default:
		}
		_ = inner.Delete(t.Context(), k1)
		synctest.Wait()
		if len(w.C()) > 0 || len(drops) > 0 {
			t.Error("told of a change while down")
		}
		f.Up()
		<-ready
		<-w.C() // what was missed
		_ = f.Delete(t.Context(), k1)
		<-w.C()
		if len(drops) != 1 {
			t.Errorf("%d drops told, want 1", len(drops))
		}
	})
}

func TestFaultyMuteLosesPushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := newFaulty()
		f.Next(stampedetest.StepWatch, stampedetest.Fault{Err: errBroken})
		dead := f.Watch(k1)
		w := f.Watch(k1)
		f.Mute(true)
		_ = f.Delete(t.Context(), k1)
		synctest.Wait()
		if len(w.C()) > 0 {
			t.Error("told of a change while mute")
		}
		f.Mute(false)
		_ = f.Delete(t.Context(), k1)
		<-w.C()
		synctest.Wait()
		select {
		case <-dead.Ready():
			t.Error("a watch that failed is ready")
		case <-dead.C():
			t.Error("a watch that failed is told of a change")
		default:
		}
		w.Close()
		dead.Close()
	})
}

func TestFaultyMeddlesWithTags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := newFaulty()
		var heard []string
		stop := f.TagDrops("test", func(tag string) { heard = append(heard, tag) })
		defer stop()
		at, err := f.TagTime(t.Context(), "test")
		if err != nil {
			t.Fatal(err)
		}
		f.Script(func(c stampedetest.Call) stampedetest.Fault {
			if c.Step == stampedetest.StepExpireTag && c.Tags[0] == "broken" && c.Key.Space == "test" {
				return stampedetest.Fault{Err: errBroken}
			}
			return stampedetest.Fault{}
		})
		if err := f.ExpireTag(t.Context(), "test", "broken"); !errors.Is(err, errBroken) {
			t.Errorf("ExpireTag: %v", err)
		}
		f.Mute(true)
		_ = f.ExpireTag(t.Context(), "test", "muted")
		f.Mute(false)
		_ = f.ExpireTag(t.Context(), "test", "fine")
		s, err := f.Tags(t.Context(), "test", "broken", "muted", "fine")
		if err != nil || s.Numbers[0] != 0 || s.Numbers[1] <= at.Number || s.Numbers[2] <= s.Numbers[1] {
			t.Errorf("Tags: %+v, %v", s, err)
		}
		if len(heard) != 1 || heard[0] != "fine" {
			t.Errorf("told of %q", heard)
		}
		f.Down(errBroken)
		if _, err := f.Tags(t.Context(), "test", "fine"); !errors.Is(err, errBroken) {
			t.Errorf("Tags while down: %v", err)
		}
		if c, e := f.Calls(stampedetest.StepExpireTag), f.Executed(stampedetest.StepExpireTag); c != 3 || e != 2 {
			t.Errorf("%d calls, %d executed", c, e)
		}
		none := stampedetest.NewFaulty(struct{ stampede.Store }{new(stampede.MemoryStore)})
		if _, err := none.TagTime(t.Context(), "test"); err == nil {
			t.Error("TagTime of a store without tags")
		}
	})
}
