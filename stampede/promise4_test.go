package stampede_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/stampedetest"
)

// P4: fenced commit.

// changes are what ends a lease without its leader. What Set leaves is 99.
var changes = map[string]func(context.Context, *stampede.Guard[int]) error{
	"Delete": func(ctx context.Context, g *stampede.Guard[int]) error { return g.Delete(ctx, "k") },
	"Expire": func(ctx context.Context, g *stampede.Guard[int]) error { return g.Expire(ctx, "k") },
	"Set":    func(ctx context.Context, g *stampede.Guard[int]) error { return g.Set(ctx, "k", 99) },
}

func TestLoadFromBeforeAChangeDoesNotOverwriteIt(t *testing.T) {
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := new(stampede.MemoryStore)
				a, b := newPod(t, store, stampede.Options{Policy: steady}), newPod(t, store, stampede.Options{Policy: steady})
				must(t, a.Set(t.Context(), "k", 1))
				time.Sleep(steady.TTL)
				get(t.Context(), a.Guard, "k", slowly(100*time.Millisecond, 2)).is(t, 1, 0)
				synctest.Wait()
				must(t, change(t.Context(), b.Guard))
				time.Sleep(200 * time.Millisecond)
				synctest.Wait()
				if s := a.Stats(); s.Refused != 1 || s.Committed != 0 {
					t.Errorf("%d commits refused, %d accepted, want 1 and 0", s.Refused, s.Committed)
				}
				r, ok, err := b.Peek(t.Context(), "k")
				switch {
				case err != nil:
					t.Error(err)
				case name == "Delete" && ok, name == "Expire" && (r.Value != 1 || r.Freshness != stampede.Stale),
					name == "Set" && r.Value != 99:
					t.Errorf("after %s and a load from before it: %+v, %v", name, r, ok)
				}
			})
		})
	}
}

func TestPodThatSleptThroughItsLeaseDoesNotOverwriteTheNextOnesValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		a, b := newPod(t, store, stampede.Options{}), newPod(t, store, stampede.Options{})
		paused := going(t.Context(), a.Guard, "k", slowly(3*time.Second, 1))
		synctest.Wait()
		a.net.Hang()
		time.Sleep(2 * time.Second)
		get(t.Context(), b.Guard, "k", value(2)).is(t, 2, 0)
		a.net.Up()
		(<-paused).is(t, 2, 2*time.Second) // told what is there instead
		time.Sleep(time.Second)            // now its load ends
		synctest.Wait()
		get(t.Context(), b.Guard, "k", never(t)).is(t, 2, 0)
		if s := a.Stats(); s.Refused != 1 {
			t.Errorf("%d commits refused, want 1", s.Refused)
		}
	})
}

func TestLateCopyOfACommitChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{})
		var late stampedetest.Copy
		p.net.Next(stampedetest.StepCommit, stampedetest.Fault{Copy: &late})
		get(t.Context(), p.Guard, "k", value(1)).is(t, 1, 0)
		must(t, p.Delete(t.Context(), "k"))
		must(t, late.Execute(t.Context()))
		get(t.Context(), p.Guard, "k", value(2)).is(t, 2, 0)
		must(t, late.Execute(t.Context()))
		get(t.Context(), p.Guard, "k", never(t)).is(t, 2, 0)
	})
}

func TestLateCopyOfAnElectionDoesNotReviveTheRightToCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{})
		var late stampedetest.Copy
		p.net.Next(stampedetest.StepElect, stampedetest.Fault{Copy: &late})
		old := going(t.Context(), p.Guard, "k", slowly(100*time.Millisecond, 1))
		synctest.Wait()
		must(t, p.Delete(t.Context(), "k"))
		must(t, late.Execute(t.Context()))
		(<-old).is(t, 1, 100*time.Millisecond)
		if _, ok, err := p.Peek(t.Context(), "k"); ok || err != nil {
			t.Errorf("a load from before the Delete was stored: %v, %v", ok, err)
		}
	})
}
