package stampede_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/stampedetest"
)

// Tags.

// atOnce is a policy under which nothing goes stale by itself, and what a tag has expired is loaded at once.
var atOnce = stampede.Policy{TTL: time.Hour, StaleFor: time.Hour, Jitter: -1, Beta: -1, TagSpread: -1}

// windowless is the same without anything stale.
var windowless = stampede.Policy{TTL: time.Hour, StaleFor: -1, StaleIfError: -1, Jitter: -1, Beta: -1}

func tagging(p stampede.Policy) stampede.Options { return stampede.Options{Policy: p, Tags: true} }

// tagged is a loader that gives tags to what load brings.
func tagged(load func(context.Context) (int, error), tags ...string) fetch {
	return func(ctx context.Context, l *stampede.Load[int]) (int, error) {
		l.Tags(tags...)
		return load(ctx)
	}
}

// fetching is a Fetch on a goroutine of its own.
func fetching(t *testing.T, g *stampede.Guard[int], key string, load fetch) <-chan stampede.Result[int] {
	c := make(chan stampede.Result[int], 1)
	go func() {
		r, err := g.Fetch(t.Context(), key, load)
		if err != nil {
			t.Errorf("Fetch: %v", err)
		}
		c <- r
	}()
	return c
}

func holds(t *testing.T, r stampede.Result[int], v int, fr stampede.Freshness) {
	t.Helper()
	if r.Value != v || r.Freshness != fr {
		t.Errorf("got %d, %v, from %v; want %d, %v", r.Value, r.Freshness, r.From, v, fr)
	}
}

func TestExpireTagMakesItsEntriesStaleInAllPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		a, b := newPod(t, store, tagging(atOnce)), newPod(t, store, tagging(atOnce))
		fetched(t, a.Guard, "red", tagged(value(1), "color", "red"))
		fetched(t, a.Guard, "blue", tagged(value(1), "color", "blue", "color"))
		fetched(t, a.Guard, "plain", tagged(value(1)))
		must(t, b.ExpireTag(t.Context(), "red"))
		must(t, b.ExpireTag(t.Context(), "green"))
		for _, p := range []pod{a, b} {
			holds(t, fetched(t, p.Guard, "blue", tagged(never(t))), 1, stampede.Fresh)
			holds(t, fetched(t, p.Guard, "plain", tagged(never(t))), 1, stampede.Fresh)
		}
		r, ok, err := b.Peek(t.Context(), "red")
		if must(t, err); !ok {
			t.Error("Peek finds nothing")
		}
		holds(t, r, 1, stampede.Stale)
		if r = fetched(t, a.Guard, "red", tagged(value(2), "color", "red")); !r.Behind || r.FreshFor > 0 || r.Age != time.Hour {
			t.Errorf("%+v", r)
		}
		holds(t, r, 1, stampede.Stale)
		synctest.Wait()
		holds(t, fetched(t, b.Guard, "red", tagged(never(t))), 2, stampede.Fresh)
		must(t, a.ExpireTag(t.Context(), "color"))
		for _, key := range []string{"red", "blue"} {
			if r := fetched(t, b.Guard, key, tagged(value(3))); r.Freshness != stampede.Stale {
				t.Errorf("%s is %v", key, r.Freshness)
			}
		}
		synctest.Wait() // they have no tags any more
		must(t, a.ExpireTag(t.Context(), "color"))
		holds(t, fetched(t, b.Guard, "red", tagged(never(t))), 3, stampede.Fresh)
	})
}

func TestWhatATagExpiresIsTreatedByItsWindows(t *testing.T) {
	for name, c := range map[string]struct {
		policy stampede.Policy
		load   func(context.Context) (int, error)
		want   int
		err    error
	}{
		"no window":      {windowless, value(2), 2, nil},
		"if error, fine": {stampede.Policy{TTL: time.Hour, StaleFor: -1, StaleIfError: time.Hour}, value(2), 2, nil},
		"if error, not":  {stampede.Policy{TTL: time.Hour, StaleFor: -1, StaleIfError: time.Hour}, func(context.Context) (int, error) { return 0, errBoom }, 1, nil},
		"none, failing":  {windowless, func(context.Context) (int, error) { return 0, errBoom }, 0, errBoom},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPod(t, new(bytesStore), tagging(c.policy))
				fetched(t, p.Guard, "k", tagged(value(1), "x"))
				must(t, p.ExpireTag(t.Context(), "x"))
				r, err := p.Fetch(t.Context(), "k", tagged(c.load, "x"))
				if r.Value != c.want || !errors.Is(err, c.err) {
					t.Errorf("%d, %v; want %d, %v", r.Value, err, c.want, c.err)
				}
			})
		})
	}
}

func TestTagExpiredEntryIsServedStaleToItsOwnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := stampede.Policy{TTL: time.Second, StaleFor: time.Second, StaleIfError: -1, ErrorBackoff: -1, Jitter: -1, Beta: -1, TagSpread: -1}
		p := newPod(t, new(stampede.MemoryStore), tagging(policy))
		fails := tagged(func(context.Context) (int, error) { return 0, errBoom }, "x")
		fetched(t, p.Guard, "k", tagged(value(1), "x"))
		must(t, p.ExpireTag(t.Context(), "x"))
		time.Sleep(2*time.Second - time.Millisecond)
		holds(t, fetched(t, p.Guard, "k", fails), 1, stampede.Stale)
		time.Sleep(time.Millisecond)
		if _, err := p.Fetch(t.Context(), "k", fails); !errors.Is(err, errBoom) {
			t.Errorf("%v after its end", err)
		}
	})
}

func TestAbsenceExpiresByItsTags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := atOnce
		policy.NotFoundTTL = time.Hour
		p := newPod(t, new(stampede.MemoryStore), tagging(policy))
		none := tagged(func(context.Context) (int, error) { return 0, stampede.ErrNotFound }, "x")
		for range 2 {
			if _, err := p.Fetch(t.Context(), "k", none); !errors.Is(err, stampede.ErrNotFound) {
				t.Error(err)
			}
		}
		if n := p.Stats().Loads; n != 1 {
			t.Errorf("%d loads", n)
		}
		must(t, p.ExpireTag(t.Context(), "x"))
		holds(t, fetched(t, p.Guard, "k", tagged(value(1))), 1, stampede.Fresh)
	})
}

// A load that began before an ExpireTag is stored after it.

func TestLoadFromBeforeAnExpireTagIsStaleWhenItIsStored(t *testing.T) {
	for name, local := range map[string]time.Duration{"": 0, "with a memory tier": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := new(bytesStore)
				o := tagging(atOnce)
				o.Local.TTL = local
				a, b := newPod(t, store, o), newPod(t, store, o)
				early := fetching(t, a.Guard, "k", tagged(slowly(tick, 1), "x"))
				time.Sleep(tick / 2)
				must(t, b.ExpireTag(t.Context(), "x"))
				holds(t, <-early, 1, stampede.Fresh) // it came before
				for _, p := range []pod{a, b} {
					r, ok, err := p.Peek(t.Context(), "k")
					if must(t, err); !ok {
						t.Error("it is not stored")
					}
					holds(t, r, 1, stampede.Stale)
				}
				holds(t, fetched(t, a.Guard, "k", tagged(value(2), "x")), 1, stampede.Stale)
				synctest.Wait()
				r, _, err := b.Peek(t.Context(), "k")
				must(t, err)
				holds(t, r, 2, stampede.Fresh)
			})
		})
	}
}

func TestWhoComesAfterAnExpireTagDoesNotGetALoadFromBeforeItAsFresh(t *testing.T) {
	for _, policy := range []stampede.Policy{atOnce, windowless} {
		for _, delivers := range []bool{true, false} {
			t.Run(fmt.Sprintf("stale for %v, delivers %v", policy.StaleFor, delivers), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := new(bytesStore)
					o := tagging(policy)
					a, b := newPod(t, store, o), newPod(t, store, o)
					b.net.Mute(!delivers)
					next := &source{}
					after := tagged(func(ctx context.Context) (int, error) {
						n, err := next.load(ctx)
						return n + 100, err
					}, "x")
					early := fetching(t, a.Guard, "k", tagged(slowly(time.Second, 1), "x"))
					time.Sleep(tick)
					waits := fetching(t, b.Guard, "k", after)
					time.Sleep(tick)
					must(t, b.ExpireTag(t.Context(), "x"))
					var late []<-chan stampede.Result[int]
					for _, p := range []pod{a, a, b, b} {
						late = append(late, fetching(t, p.Guard, "k", after))
					}
					holds(t, <-early, 1, stampede.Fresh)
					<-waits // it may have either
					for _, c := range late {
						if r := <-c; r.Value < 100 && r.Freshness == stampede.Fresh {
							t.Errorf("%d, %v, from %v", r.Value, r.Freshness, r.From)
						}
					}
					synctest.Wait()
					if n, top := next.loads(); n != 1 || top != 1 {
						t.Errorf("%d loads after it, %d at a time", n, top)
					}
				})
			})
		}
	}
}

func TestCommitVouchesForTagsThatDidNotExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), tagging(atOnce))
		early := fetching(t, p.Guard, "k", tagged(slowly(tick, 1), "x"))
		time.Sleep(tick / 2)
		before := p.net.Calls(stampedetest.StepTags)
		must(t, p.ExpireTag(t.Context(), "y"))
		late := fetching(t, p.Guard, "k", tagged(never(t)))
		<-early
		holds(t, <-late, 1, stampede.Fresh)
		if n := p.net.Calls(stampedetest.StepTags) - before; n != 1 {
			t.Errorf("the tags were asked for %d times", n)
		}
		if n := p.Stats().Again; n != 0 {
			t.Errorf("%d went round again", n)
		}
	})
}

func TestUnknownTagsDoNotVouch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), tagging(windowless))
		early := fetching(t, p.Guard, "k", tagged(slowly(tick, 1), "x"))
		time.Sleep(tick / 2)
		p.net.Next(stampedetest.StepTags, stampedetest.Fault{Err: errServer})
		late := fetching(t, p.Guard, "k", tagged(value(2)))
		<-early
		holds(t, <-late, 1, stampede.Fresh) // read anew
		if n := p.Stats().Again; n != 1 {
			t.Errorf("%d went round again, want 1", n)
		}
	})
}

// Under a marker the first load is stored, and its number is as old as that of a leader.

func TestLoadUnderAMarkerHasTags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stampede.MemoryStore)
		a, b := newPod(t, store, tagging(atOnce)), newPod(t, store, tagging(atOnce))
		fails := func(context.Context) (int, error) { return 0, errBoom }
		if _, err := a.Get(t.Context(), "k", fails); !errors.Is(err, errBoom) {
			t.Fatal(err)
		}
		synctest.Wait()
		early := fetching(t, a.Guard, "k", tagged(slowly(tick, 1), "x"))
		time.Sleep(tick / 2)
		must(t, b.ExpireTag(t.Context(), "x"))
		late := fetching(t, a.Guard, "k", tagged(value(2), "x"))
		holds(t, <-early, 1, stampede.Fresh)
		holds(t, <-late, 1, stampede.Stale)
		synctest.Wait()
		if s := a.Stats(); s.Committed != 2 || s.LeasesWon != 2 || s.Loads != 3 { // the second load had none
			t.Errorf("%+v", s)
		}
	})
}

// The record.

// amnesiac is a store that can lose its record of tags.
type amnesiac struct {
	bytesStore

	mu   sync.Mutex // protects tags
	tags *stampede.MemoryStore
}

func (s *amnesiac) record() *stampede.MemoryStore {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tags
}

func (s *amnesiac) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tags = new(stampede.MemoryStore)
}

func (s *amnesiac) TagTime(ctx context.Context, space string) (stampede.TagTime, error) {
	return s.record().TagTime(ctx, space)
}

func (s *amnesiac) Tags(ctx context.Context, space string, tags ...string) (stampede.TagState, error) {
	return s.record().Tags(ctx, space, tags...)
}

func (s *amnesiac) ExpireTag(ctx context.Context, space, tag string) error {
	return s.record().ExpireTag(ctx, space, tag)
}

func TestLostRecordExpiresAllTags(t *testing.T) {
	for name, made := range map[string]bool{"and there is none": false, "and there is a new one": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &amnesiac{tags: new(stampede.MemoryStore)}
				a, b := newPod(t, store, tagging(atOnce)), newPod(t, store, tagging(atOnce))
				fetched(t, a.Guard, "k", tagged(value(1), "x"))
				fetched(t, a.Guard, "plain", tagged(value(1)))
				slow := fetching(t, a.Guard, "slow", tagged(slowly(tick, 1), "x"))
				time.Sleep(tick / 2)
				store.forget()
				if made {
					fetched(t, b.Guard, "another", tagged(value(1), "x"))
				} else {
					must(t, b.ExpireTag(t.Context(), "x")) // it finds nothing to do, and all is well
				}
				<-slow
				for _, key := range []string{"k", "slow"} {
					holds(t, fetched(t, b.Guard, key, tagged(value(2), "x")), 1, stampede.Stale)
				}
				holds(t, fetched(t, b.Guard, "plain", tagged(never(t))), 1, stampede.Fresh)
				synctest.Wait()
				holds(t, fetched(t, b.Guard, "k", tagged(never(t))), 2, stampede.Fresh)
			})
		})
	}
}

func TestForgottenTagsExpireWhatWasLoadedBeforeTheirExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, &stampede.MemoryStore{MaxTags: 2}, tagging(atOnce))
		fetched(t, p.Guard, "old", tagged(value(1), "a"))
		must(t, p.ExpireTag(t.Context(), "a"))
		fetched(t, p.Guard, "newer", tagged(value(1), "z"))
		must(t, p.ExpireTag(t.Context(), "b"))
		holds(t, fetched(t, p.Guard, "newer", tagged(never(t))), 1, stampede.Fresh)
		must(t, p.ExpireTag(t.Context(), "c")) // a is forgotten
		holds(t, fetched(t, p.Guard, "newer", tagged(never(t))), 1, stampede.Fresh)
		r, _, err := p.Peek(t.Context(), "old")
		must(t, err)
		holds(t, r, 1, stampede.Stale)
		must(t, p.ExpireTag(t.Context(), "d")) // and b
		if r, _, err = p.Peek(t.Context(), "newer"); err != nil || r.Freshness != stampede.Stale {
			t.Errorf("from before the expiry of a tag that was forgotten: %v, %v", r.Freshness, err)
		}
	})
}

// What it costs, and when the store is in trouble.

func TestTagsCostNothingWhereThereAreNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(bytesStore), tagging(atOnce))
		off := newPod(t, new(bytesStore), stampede.Options{Policy: atOnce})
		for range 3 {
			get(t.Context(), p.Guard, "k", value(1)).is(t, 1, 0)
			get(t.Context(), off.Guard, "k", value(1)).is(t, 1, 0)
		}
		if n := p.net.Calls(stampedetest.StepTags); n != 0 {
			t.Errorf("tags were asked for %d times", n)
		}
		if n := p.net.Calls(stampedetest.StepTagTime); n != 1 {
			t.Errorf("one load: %d requests before it", n)
		}
		if n := off.net.Calls(stampedetest.StepTagTime) + off.net.Calls(stampedetest.StepTagDrops); n != 0 {
			t.Errorf("%d requests without Options.Tags", n)
		}
	})
}

func TestGetManyAsksOnceForAllTags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), tagging(atOnce))
		keys, want := k(0, 20)
		for i, key := range keys {
			fetched(t, p.Guard, key, tagged(value(i), fmt.Sprint("t", i%3), "all", fmt.Sprint("own", i)))
		}
		must(t, p.ExpireTag(t.Context(), "t1"))
		before := p.net.Calls(stampedetest.StepTags)
		var elections stampedetest.Gate
		p.net.Script(func(c stampedetest.Call) stampedetest.Fault {
			if c.Step == stampedetest.StepElect {
				return stampedetest.Fault{Gate: &elections}
			}
			return stampedetest.Fault{}
		})
		s := new(shelf)
		got, err := p.GetMany(t.Context(), keys, s.load)
		if err != nil || len(got) != len(want) {
			t.Errorf("%v, %v", got, err)
		}
		if n := p.net.Calls(stampedetest.StepTags) - before; n != 1 {
			t.Errorf("tags were asked for %d times", n)
		}
		elections.Open()
		synctest.Wait()
		var stale []string
		for i, key := range keys {
			if i%3 == 1 {
				stale = append(stale, key)
			}
		}
		if calls := s.asked(); len(calls) != 1 || !slices.Equal(calls[0], stale) {
			t.Errorf("loaded behind: %v, want %v", calls, stale)
		}
	})
}

func TestStoreThatDoesNotTellOfTagsIsInTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(bytesStore)
		a, b := newPod(t, store, tagging(atOnce)), newPod(t, store, tagging(atOnce))
		fetched(t, a.Guard, "k", tagged(value(1), "x"))
		for _, p := range []pod{a, b} {
			p.net.Script(func(c stampedetest.Call) stampedetest.Fault {
				if c.Step == stampedetest.StepTags {
					return stampedetest.Fault{Err: errServer}
				}
				return stampedetest.Fault{}
			})
		}
		if r := fetched(t, a.Guard, "k", tagged(never(t))); r.Value != 1 || r.From != stampede.FromCopy {
			t.Errorf("with a copy: %+v", r)
		}
		if r := fetched(t, b.Guard, "k", tagged(value(2), "x")); r.Value != 2 || r.From != stampede.FromLoad || r.Stored {
			t.Errorf("without one: %+v", r)
		}
		if _, _, err := b.Peek(t.Context(), "k"); !errors.Is(err, errServer) {
			t.Errorf("Peek: %v", err)
		}
		if a.Stats().Trouble == 0 || b.Stats().Trouble == 0 {
			t.Error("no trouble was counted")
		}
		keys, _ := k(0, 2)
		fetched(t, a.Guard, keys[0], tagged(value(0), "x"))
		fetched(t, a.Guard, keys[1], tagged(value(1)))
		s := new(shelf)
		if got, err := b.GetMany(t.Context(), keys, s.load); err != nil || len(got) != 2 || len(s.asked()) != 1 || len(s.asked()[0]) != 1 {
			t.Errorf("GetMany: %v, %v, loaded %v", got, err, s.asked())
		}
	})
}

func TestTagsAreAskedForWithinTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := tagging(atOnce)
		o.StoreBudget, o.Local.Entries = 100*time.Millisecond, -1
		p := newPod(t, new(bytesStore), o)
		fetched(t, p.Guard, "k", tagged(value(1), "x"))
		var hung stampedetest.Gate
		p.net.Script(func(c stampedetest.Call) stampedetest.Fault {
			if c.Step == stampedetest.StepTags || c.Step == stampedetest.StepTagTime {
				return stampedetest.Fault{Gate: &hung}
			}
			return stampedetest.Fault{Delay: 40 * time.Millisecond}
		})
		begun := time.Now()
		fetched(t, p.Guard, "k", tagged(value(2), "x"))
		fetched(t, p.Guard, "cold", tagged(value(2), "x"))
		if d := time.Since(begun); d > 2*o.StoreBudget+2*time.Nanosecond {
			t.Errorf("two calls took %v", d)
		}
		hung.Open()
		synctest.Wait()
	})
}

func TestValueWhoseTagsCannotBeKeptIsServedAndNotStored(t *testing.T) {
	long := strings.Repeat("t", stampede.MaxTagSize)
	var many []string
	for i := range stampede.MaxTags + 1 {
		many = append(many, fmt.Sprint(i))
	}
	for name, c := range map[string]struct {
		o     stampede.Options
		tags  []string
		fault error
		want  error
	}{
		"off":           {o: stampede.Options{}, tags: []string{"x"}, want: stampede.ErrTagsOff},
		"empty":         {o: tagging(atOnce), tags: []string{"x", ""}, want: stampede.ErrBadTag},
		"long":          {o: tagging(atOnce), tags: []string{long + "t"}, want: stampede.ErrBadTag},
		"many":          {o: tagging(atOnce), tags: many, want: stampede.ErrBadTag},
		"undated":       {o: tagging(atOnce), tags: []string{"x"}, fault: errServer, want: errServer},
		"too large":     {o: stampede.Options{Policy: atOnce, Tags: true, MaxValueSize: 20}, tags: []string{"1234"}, want: stampede.ErrTooLarge},
		"fine":          {o: tagging(atOnce), tags: append(many[1:], many[1:]...)},
		"large":         {o: stampede.Options{Policy: atOnce, Tags: true, MaxValueSize: 20}, tags: []string{"1"}},
		"none, undated": {o: tagging(atOnce), fault: errServer},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var why []error
				c.o.Observer = stampede.ObserverFunc(func(e stampede.Event) {
					mu.Lock()
					defer mu.Unlock()
					if e.Kind == stampede.EventNotStored {
						why = append(why, e.Err)
					}
				})
				p := newPod(t, new(bytesStore), c.o)
				if c.fault != nil {
					p.net.Next(stampedetest.StepTagTime, stampedetest.Fault{Err: c.fault})
				}
				r := fetched(t, p.Guard, "k", tagged(value(1), c.tags...))
				synctest.Wait()
				_, ok, err := p.Peek(t.Context(), "k")
				must(t, err)
				if stored := c.want == nil; r.Value != 1 || r.Stored != stored || ok != stored {
					t.Errorf("%+v, is there: %v", r, ok)
				}
				mu.Lock()
				defer mu.Unlock()
				if c.want == nil && len(why) > 0 || c.want != nil && (len(why) != 1 || !errors.Is(why[0], c.want)) {
					t.Errorf("not stored because of %v, want %v", why, c.want)
				}
			})
		})
	}
}

func TestCopyOfATaggedLoadServesAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(bytesStore), tagging(atOnce))
		p.net.Down(nil)
		holds(t, fetched(t, p.Guard, "k", tagged(value(1), "x")), 1, stampede.Fresh)
		holds(t, fetched(t, p.Guard, "k", tagged(never(t))), 1, stampede.Fresh)
		_ = p.ExpireTag(t.Context(), "x")
		if r := fetched(t, p.Guard, "k", tagged(never(t))); r.Value != 1 || r.Freshness != stampede.Stale || r.From != stampede.FromCopy || r.FreshFor > 0 {
			t.Errorf("%+v", r)
		}
	})
}

// The memory tier.

// tagDeaf is a store that is never told which tags other pods expire.
type tagDeaf struct{ *bytesStore }

func (tagDeaf) TagDrops(string, func(string)) func() { return func() {} }

func TestLocalCopyEndsWithItsTag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(bytesStore)
		o := tagging(atOnce)
		o.Local.TTL = time.Minute
		a, b := newPod(t, store, o), newPod(t, store, o)
		src := &source{}
		load := tagged(src.load, "x", "y")
		for i, by := range []pod{a, b, a, b} {
			for _, p := range []pod{a, b} {
				fetched(t, p.Guard, "plain", tagged(value(1)))
				fetched(t, p.Guard, "k", load)
				if r := fetched(t, p.Guard, "k", load); r.From != stampede.FromLocal {
					t.Errorf("from %v", r.From)
				}
				holds(t, fetched(t, p.Guard, "k", load), i+1, stampede.Fresh)
			}
			must(t, by.ExpireTag(t.Context(), []string{"x", "y"}[i%2]))
			holds(t, fetched(t, a.Guard, "k", load), i+1, stampede.Stale)
			synctest.Wait()
			holds(t, fetched(t, b.Guard, "k", load), i+2, stampede.Fresh) // b's copy is not served
			if r := fetched(t, b.Guard, "plain", tagged(never(t))); r.From != stampede.FromLocal {
				t.Errorf("what has no tags is from %v", r.From)
			}
			time.Sleep(time.Second)
		}
	})
}

func TestLocalCopyIsNotServedBeyondItsTTLAfterAnExpireTag(t *testing.T) {
	for name, during := range map[string]bool{"after the load": false, "during the load": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := new(bytesStore)
				o := tagging(atOnce)
				o.Local.TTL = time.Second
				p, other := newPod(t, tagDeaf{store}, o), newPod(t, store, o)
				got := fetching(t, p.Guard, "k", tagged(slowly(900*time.Millisecond, 1), "x"))
				if !during {
					<-got
				}
				time.Sleep(100 * time.Millisecond)
				must(t, other.ExpireTag(t.Context(), "x"))
				time.Sleep(time.Second + time.Millisecond)
				holds(t, fetched(t, p.Guard, "k", tagged(value(2), "x")), 1, stampede.Stale)
				synctest.Wait()
			})
		})
	}
}

func TestReadFromBeforeAnExpireTagDoesNotFillTheMemoryTierAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(bytesStore)
		o := tagging(atOnce)
		o.Local.TTL = time.Hour
		a, b := newPod(t, store, o), newPod(t, store, o)
		fetched(t, b.Guard, "k", tagged(value(1), "x"))
		var reply stampedetest.Gate
		a.net.Next(stampedetest.StepTags, stampedetest.Fault{Reply: &reply})
		early := fetching(t, a.Guard, "k", tagged(never(t)))
		<-reply.Reached()
		must(t, b.ExpireTag(t.Context(), "x"))
		reply.Open()
		holds(t, <-early, 1, stampede.Fresh)
		holds(t, fetched(t, a.Guard, "k", tagged(value(2), "x")), 1, stampede.Stale)
		synctest.Wait()
	})
}

func TestLocalCopiesAreAskedForAfterNewsOfTagsMayHaveBeenMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &tagMisser{bytesStore: new(bytesStore)}
		o := tagging(atOnce)
		o.Local.TTL = time.Hour
		a, b := newPod(t, store, o), newPod(t, store.bytesStore, o)
		fetched(t, a.Guard, "k", tagged(value(1), "x"))
		must(t, b.ExpireTag(t.Context(), "x"))
		holds(t, fetched(t, a.Guard, "k", tagged(never(t))), 1, stampede.Fresh) // it has not heard
		store.miss()
		holds(t, fetched(t, a.Guard, "k", tagged(value(2), "x")), 1, stampede.Stale)
		synctest.Wait()
	})
}

// tagMisser misses all drops of tags, and says so when it is told to.
type tagMisser struct {
	*bytesStore

	mu  sync.Mutex // protects fns
	fns []func(string)
}

func (s *tagMisser) TagDrops(_ string, fn func(string)) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fns = append(s.fns, fn)
	return func() {}
}

func (s *tagMisser) miss() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, fn := range s.fns {
		fn("")
	}
}

// Guards and stores that are not the same everywhere.

func TestGuardWithoutTagsJudgesEntriesThatHaveSome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(bytesStore)
		off := stampede.Options{Policy: atOnce, Local: stampede.Local{TTL: time.Minute}}
		a, b := newPod(t, store, tagging(atOnce)), newPod(t, store, off)
		fetched(t, a.Guard, "k", tagged(value(1), "x"))
		for range 2 {
			if r := fetched(t, b.Guard, "k", tagged(never(t))); r.Freshness != stampede.Fresh || r.From != stampede.FromStore {
				t.Errorf("%+v", r)
			}
		}
		must(t, a.ExpireTag(t.Context(), "x"))
		holds(t, fetched(t, b.Guard, "k", tagged(value(2))), 1, stampede.Stale)
		synctest.Wait()
		holds(t, fetched(t, b.Guard, "k", tagged(never(t))), 2, stampede.Fresh)
	})
}

// tagless is a store that keeps no tags.
type tagless struct{ stampede.Store }

func TestStoreWithoutTags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(bytesStore)
		if _, err := stampede.New[int](tagless{store}, &stampede.Options{Name: "test", Tags: true}); err == nil || !strings.Contains(err.Error(), "Options.Tags") {
			t.Errorf("New: %v", err)
		}
		a := newGuard[int](t, store, tagging(atOnce))
		b := newGuard[int](t, tagless{store}, stampede.Options{Policy: atOnce})
		fetched(t, a, "k", tagged(value(1), "x"))
		holds(t, fetched(t, b, "k", tagged(value(2))), 1, stampede.Stale) // for all that it knows
		synctest.Wait()
		holds(t, fetched(t, b, "k", tagged(never(t))), 2, stampede.Fresh)
	})
}

func TestExpireTagReturnsWhatItMeets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, off := newPod(t, new(stampede.MemoryStore), tagging(atOnce)), newPod(t, new(stampede.MemoryStore), stampede.Options{})
		var none *stampede.Guard[int]
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for name, c := range map[string]struct{ got, want error }{
			"no guard":   {none.ExpireTag(t.Context(), "x"), stampede.ErrNoGuard},
			"off":        {off.ExpireTag(t.Context(), "x"), stampede.ErrTagsOff},
			"empty":      {p.ExpireTag(t.Context(), ""), stampede.ErrBadTag},
			"long":       {p.ExpireTag(t.Context(), strings.Repeat("t", stampede.MaxTagSize+1)), stampede.ErrBadTag},
			"ended":      {p.ExpireTag(ended, "x"), context.Canceled},
			"no trouble": {p.ExpireTag(t.Context(), strings.Repeat("t", stampede.MaxTagSize)), nil},
		} {
			if !errors.Is(c.got, c.want) {
				t.Errorf("%s: %v, want %v", name, c.got, c.want)
			}
		}
		p.net.Next(stampedetest.StepExpireTag, stampedetest.Fault{Err: errServer})
		if err := p.ExpireTag(t.Context(), "x"); !errors.Is(err, errServer) || p.Stats().Trouble != 1 {
			t.Errorf("%v", err)
		}
		p.net.Hang()
		begun := time.Now()
		if err := p.ExpireTag(t.Context(), "x"); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		p.net.Up()
		for _, m := range []stampede.Mode{stampede.ReadOnly, stampede.Bypass} {
			p.SetMode(stampede.Normal)
			fetched(t, p.Guard, m.String(), tagged(value(1), "x"))
			p.SetMode(m)
			must(t, p.ExpireTag(t.Context(), "x"))
			p.SetMode(stampede.Normal)
			r, _, err := p.Peek(t.Context(), m.String())
			must(t, err)
			holds(t, r, 1, stampede.Stale)
		}
	})
}
