package stampede_test

import (
	"context"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/stampedetest"
)

// record is an Observer that remembers, and panics when it is told to.
type record struct {
	mu     sync.Mutex // protects seen
	seen   map[stampede.EventKind]int
	panics bool
}

func (r *record) Observe(e stampede.Event) {
	r.mu.Lock()
	if r.seen == nil {
		r.seen = map[stampede.EventKind]int{}
	}
	r.seen[e.Kind]++
	r.mu.Unlock()
	if r.panics {
		panic(e.Kind.String())
	}
}

func TestEveryKindOfEventIsToldAndCounted(t *testing.T) {
	for name, panics := range map[string]bool{"calm": false, "panicking": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rec, store := &record{panics: panics}, new(bytesStore)
				o := stampede.Options{Policy: steady, Observer: rec, LoadTimeout: time.Second, MaxAbandoned: 1}
				a, b := newPod(t, store, o), newPod(t, store, o)
				bad := &source{fails: errBoom}
				lead := going(t.Context(), a.Guard, "k", slowly(500*time.Millisecond, 1))
				synctest.Wait()
				same, other := going(t.Context(), a.Guard, "k", never(t)), going(t.Context(), b.Guard, "k", never(t))
				(<-lead).is(t, 1, 500*time.Millisecond)
				(<-same).is(t, 1, 500*time.Millisecond)
				(<-other).is(t, 1, 500*time.Millisecond)
				get(t.Context(), a.Guard, "k", never(t)).is(t, 1, 0)
				a.net.Down(nil)
				get(t.Context(), a.Guard, "k", never(t)).is(t, 1, 0)
				a.net.Up()
				time.Sleep(steady.TTL)
				get(t.Context(), a.Guard, "k", bad.load).is(t, 1, 0)
				synctest.Wait()
				get(t.Context(), b.Guard, "k", never(t)).is(t, 1, 0)
				synctest.Wait()
				time.Sleep(steady.StaleFor)
				get(t.Context(), a.Guard, "k", bad.load).is(t, 1, 0)
				get(t.Context(), a.Guard, "panics", func(context.Context) (int, error) { panic("out") })
				loading := going(t.Context(), a.Guard, "refused", slowly(100*time.Millisecond, 1))
				synctest.Wait()
				must(t, a.Delete(t.Context(), "refused"))
				again := going(t.Context(), a.Guard, "refused", value(2))
				(<-loading).is(t, 1, 100*time.Millisecond)
				<-again
				a.net.Next(stampedetest.StepRenew, stampedetest.Fault{EndLease: true})
				get(t.Context(), a.Guard, "gone", slowly(500*time.Millisecond, 1)).is(t, 1, 500*time.Millisecond)
				a.net.Next(stampedetest.StepRenew, stampedetest.Fault{Steal: 10 * time.Millisecond})
				get(t.Context(), a.Guard, "lost", slowly(500*time.Millisecond, 1)).is(t, 1, 500*time.Millisecond)
				a.net.Next(stampedetest.StepCommit, stampedetest.Fault{Full: errServer})
				get(t.Context(), a.Guard, "full", value(1)).is(t, 1, 0)
				e, err := store.Read(t.Context(), key("full"))
				must(t, err)
				e.TTL, e.Data = time.Minute, []byte{0xc1}
				must(t, store.Set(t.Context(), key("full"), e))
				get(t.Context(), a.Guard, "full", value(2)).is(t, 2, 0)
				get(t.Context(), a.Guard, "slow", slowly(2*time.Second, 1)).fails(t, stampede.ErrLoadTimeout, time.Second)
				get(t.Context(), a.Guard, "over", never(t)).fails(t, stampede.ErrOverloaded, 0)
				o.Local.TTL = time.Second
				c := newPod(t, store, o)
				for range 2 {
					get(t.Context(), c.Guard, "local", value(1)).is(t, 1, 0)
				}
				time.Sleep(2 * time.Second)
				going(t.Context(), a.Guard, "hangs", (&source{takes: time.Second}).load)
				synctest.Wait()
				o.Hedge, o.Local.TTL = 1, 0
				h := newPod(t, store, o)
				get(t.Context(), h.Guard, "first", slowly(100*time.Millisecond, 1)).is(t, 1, 100*time.Millisecond)
				get(t.Context(), h.Guard, "hangs", value(2)).is(t, 2, 100*time.Millisecond)
				b.SetMode(stampede.Bypass)
				get(t.Context(), b.Guard, "k", value(1)).is(t, 1, 0)
				b.SetMode(stampede.Normal)
				o.Local.TTL, o.Policy.Beta = 0, 1000
				d := newPod(t, store, o)
				get(t.Context(), d.Guard, "early", slowly(100*time.Millisecond, 1)).is(t, 1, 100*time.Millisecond)
				for range 40 {
					time.Sleep(steady.TTL / 2)
					get(t.Context(), d.Guard, "early", slowly(100*time.Millisecond, 1)).is(t, 1, 0)
				}

				synctest.Wait()
				rec.mu.Lock()
				defer rec.mu.Unlock()
				for k := stampede.EventHit; k < stampede.EventStoreDown; k++ {
					if rec.seen[k] == 0 {
						t.Errorf("no event %v", k)
					}
				}
				s := total(a.Stats(), b.Stats(), c.Stats(), d.Stats(), h.Stats())
				for kind, n := range map[stampede.EventKind]uint64{
					stampede.EventHit: s.Hits, stampede.EventLocalHit: s.LocalHits, stampede.EventStale: s.Stale, stampede.EventCopy: s.Copies,
					stampede.EventMiss: s.Misses, stampede.EventIfError: s.IfError, stampede.EventWaited: s.Waited,
					stampede.EventWaitedForPod: s.WaitedForPod, stampede.EventAgain: s.Again,
					stampede.EventLoad: s.Loads, stampede.EventLoaded: s.Loaded, stampede.EventLoadFailed: s.LoadsFailed,
					stampede.EventLoadPanicked: s.LoadsPanicked, stampede.EventLoadTimedOut: s.LoadsTimedOut,
					stampede.EventLeaseWon: s.LeasesWon, stampede.EventLeaseHeld: s.LeasesHeld,
					stampede.EventLeaseRenewed: s.LeasesRenewed, stampede.EventLeaseLost: s.LeasesLost,
					stampede.EventLeaseGone: s.LeasesGone, stampede.EventCommitted: s.Committed,
					stampede.EventRefused: s.Refused, stampede.EventNotStored: s.NotStored,
					stampede.EventBackOff: s.BackOffs, stampede.EventOverloaded: s.Overloaded,
					stampede.EventBadEntry: s.BadEntries, stampede.EventTrouble: s.Trouble,
					stampede.EventBypass: s.Bypassed, stampede.EventShortTTL: s.ShortTTL,
				} {
					if int(n) != rec.seen[kind] {
						t.Errorf("%v: %d counted, %d told", kind, n, rec.seen[kind])
					}
				}
			})
		})
	}
}

// total adds up counts.
func total(all ...stampede.Stats) (sum stampede.Stats) {
	to := reflect.ValueOf(&sum).Elem()
	for _, s := range all {
		from := reflect.ValueOf(s)
		for i := range from.NumField() {
			if f := to.Field(i); f.CanUint() {
				f.SetUint(f.Uint() + from.Field(i).Uint())
			}
		}
	}
	return sum
}

func TestGuardsOfOneNameWithDifferentTypesMissAndSaySoOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		o := stampede.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
		store := new(stampede.MemoryStore)
		ints, texts := newGuard[int](t, store, o), newGuard[string](t, store, o)
		for range 5 {
			if v, err := ints.Get(t.Context(), "k", value(7)); v != 7 || err != nil {
				t.Errorf("%d, %v", v, err)
			}
			if v, err := texts.Get(t.Context(), "k", value("seven")); v != "seven" || err != nil {
				t.Errorf("%q, %v", v, err)
			}
		}
		if n := strings.Count(log.String(), "another type"); n != 2 { // by each of them
			t.Errorf("said %d times:\n%s", n, log.String())
		}
	})
}

func TestRefreshLoadsBehindAndOncePerFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, src := new(stampede.MemoryStore), &source{takes: time.Second / 2}
		a, b := newPod(t, store, stampede.Options{Policy: steady}), newPod(t, store, stampede.Options{Policy: steady})
		must(t, a.Set(t.Context(), "k", 9))
		begun := time.Now()
		for range 5 {
			must(t, a.Refresh(t.Context(), "k", src.load))
			must(t, b.Refresh(t.Context(), "k", src.load))
			synctest.Wait()
		}
		get(t.Context(), a.Guard, "k", never(t)).is(t, 9, 0)
		if d := time.Since(begun); d != 0 {
			t.Errorf("Refresh waited %v", d)
		}
		time.Sleep(src.takes)
		synctest.Wait()
		get(t.Context(), b.Guard, "k", never(t)).is(t, 1, 0)
		if n, _ := src.loads(); n != 1 {
			t.Errorf("%d loads, want 1", n)
		}
	})
}
