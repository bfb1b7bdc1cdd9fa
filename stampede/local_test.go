package stampede_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/stampedetest"
)

// Outage copies.

// survivors counts the keys 0..n-1 that are served while the store is down.
func survivors(t *testing.T, g *stampede.Guard[string], n int) (count int) {
	for i := range n {
		v, err := g.Get(t.Context(), fmt.Sprint(i), func(context.Context) (string, error) { return "", errBoom })
		if err == nil && v != "" {
			count++
		}
	}
	return count
}

func TestCopiesStayWithinTheirBounds(t *testing.T) {
	for name, c := range map[string]struct {
		bound       stampede.Local
		size        int
		least, most int
	}{
		"entries":         {stampede.Local{Entries: 10}, 10, 10, 10},
		"bytes":           {stampede.Local{Bytes: 100_000}, 10_000, 8, 9},
		"default":         {stampede.Local{}, 10, 50, 50},
		"bytes for few":   {stampede.Local{Bytes: 1000}, 1, 1, 1000 / 257},
		"bytes unbounded": {stampede.Local{Bytes: -1}, 1 << 20, 50, 50},
		"one too large":   {stampede.Local{Bytes: 5000}, 10_000, 0, 0},
		"off":             {stampede.Local{Entries: -1}, 10, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				net := stampedetest.NewFaulty(new(bytesStore))
				g := newGuard[string](t, net, stampede.Options{Local: c.bound})
				for i := range 50 {
					_, err := g.Get(t.Context(), fmt.Sprint(i), value(strings.Repeat("x", c.size)))
					must(t, err)
				}
				for i := range 50 { // reading again does not count twice
					_, err := g.Get(t.Context(), fmt.Sprint(i), value(""))
					must(t, err)
				}
				synctest.Wait() // what is over the bound goes by and by
				net.Down(nil)
				if n := survivors(t, g, 50); n < c.least || n > c.most {
					t.Errorf("%d copies, want %d to %d", n, c.least, c.most)
				}
			})
		})
	}
}

func TestCopiesAreForgottenWhenTheKeyChangesOnAnyPod(t *testing.T) {
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := new(bytesStore)
				a, b := newPod(t, store, stampede.Options{}), newPod(t, store, stampede.Options{})
				get(t.Context(), a.Guard, "k", value(1)).is(t, 1, 0)
				get(t.Context(), b.Guard, "k", value(1)).is(t, 1, 0)
				must(t, change(t.Context(), b.Guard))
				for _, p := range []pod{a, b} {
					p.net.Down(nil)
					get(t.Context(), p.Guard, "k", value(2)).is(t, 2, 0)
				}
			})
		})
	}
}

func TestChangeThatIsNotAnsweredForgetsTheOwnCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(bytesStore), stampede.Options{})
		get(t.Context(), p.Guard, "k", value(1)).is(t, 1, 0)
		p.net.Down(nil)
		if err := p.Delete(t.Context(), "k"); err == nil {
			t.Error("Delete succeeded")
		}
		get(t.Context(), p.Guard, "k", value(2)).is(t, 2, 0)
	})
}

func TestReadFromBeforeAChangeDoesNotBringTheCopyBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(bytesStore), stampede.Options{})
		must(t, p.Set(t.Context(), "k", 1))
		var reply stampedetest.Gate
		p.net.Next(stampedetest.StepRead, stampedetest.Fault{Reply: &reply})
		reading := going(t.Context(), p.Guard, "k", never(t))
		<-reply.Reached()
		must(t, p.Delete(t.Context(), "k"))
		reply.Open()
		(<-reading).is(t, 1, 0) // it was there during this Get
		p.net.Down(nil)
		get(t.Context(), p.Guard, "k", value(2)).is(t, 2, 0)
	})
}

func TestLoadFromBeforeAChangeDoesNotBringTheCopyBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(bytesStore), stampede.Options{})
		loading := going(t.Context(), p.Guard, "k", slowly(tick, 1))
		synctest.Wait()
		must(t, p.Delete(t.Context(), "k"))
		p.net.Next(stampedetest.StepCommit, stampedetest.Fault{Err: errServer}) // not even refused
		(<-loading).is(t, 1, tick)
		p.net.Down(nil)
		get(t.Context(), p.Guard, "k", value(2)).is(t, 2, 0)
	})
}

func TestCopyIsServedUntilItsOwnEndAndNotLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(bytesStore), stampede.Options{Policy: steady})
		bad := &source{fails: errBoom}
		get(t.Context(), p.Guard, "k", value(1)).is(t, 1, 0)
		p.net.Down(nil)
		time.Sleep(steady.TTL + steady.StaleIfError - time.Millisecond)
		get(t.Context(), p.Guard, "k", bad.load).is(t, 1, 0)
		time.Sleep(time.Millisecond)
		get(t.Context(), p.Guard, "k", bad.load).fails(t, errBoom, 0)
	})
}

func TestWithoutTheStoreACopyIsReloadedAtMostOnceInFourTTLs(t *testing.T) {
	for name, fails := range map[string]error{"loads succeed": nil, "loads fail": errBoom} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				policy := stampede.Policy{TTL: time.Second, StaleFor: time.Hour, StaleIfError: time.Hour, Jitter: -1, Beta: -1}
				p := newPod(t, new(bytesStore), stampede.Options{Policy: policy})
				const keys = 20
				last, count := map[string]time.Time{}, 0
				load := func(key string) func(context.Context) (int, error) {
					return func(context.Context) (int, error) {
						if was := last[key]; !was.IsZero() && time.Since(was) < 4*policy.TTL {
							t.Errorf("a key was reloaded after %v", time.Since(was))
						}
						last[key] = time.Now()
						count++
						return 1, fails
					}
				}
				for i := range keys {
					get(t.Context(), p.Guard, fmt.Sprint(i), value(1)).is(t, 1, 0)
				}
				p.net.Down(nil)
				cold := 0
				if fails == nil {
					cold = 10 // keys that are first loaded without the store
				}
				for i := range cold {
					key := fmt.Sprint("cold", i)
					get(t.Context(), p.Guard, key, load(key)).is(t, 1, 0)
				}
				first := map[time.Duration]bool{}
				begun := time.Now()
				for range 400 {
					time.Sleep(policy.TTL / 10)
					for i := range keys {
						key := fmt.Sprint(i)
						seen := last[key]
						get(t.Context(), p.Guard, key, load(key)).is(t, 1, 0)
						synctest.Wait()
						if seen.IsZero() && !last[key].IsZero() {
							first[time.Since(begun)] = true
						}
					}
					for i := range cold {
						key := fmt.Sprint("cold", i)
						get(t.Context(), p.Guard, key, load(key)).is(t, 1, 0)
						synctest.Wait()
					}
				}
				if count < keys*7 {
					t.Errorf("%d reloads of %d keys in 40 TTLs, want about 10 each", count, keys)
				}
				if len(first) < 8 {
					t.Errorf("all keys were first reloaded at %d moments", len(first))
				}
			})
		})
	}
}

func TestMemoryStoreNeedsNoCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(stampede.MemoryStore), stampede.Options{})
		get(t.Context(), p.Guard, "k", value(1)).is(t, 1, 0)
		p.net.Down(nil)
		get(t.Context(), p.Guard, "k", value(2)).is(t, 2, 0)
	})
}

func TestNotFoundIsKeptAsACopyForAsLongAsItIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(bytesStore), stampede.Options{Policy: steady})
		get(t.Context(), p.Guard, "k", value(1)).is(t, 1, 0)
		time.Sleep(steady.TTL)
		gone := func(context.Context) (int, error) { return 0, stampede.ErrNotFound }
		get(t.Context(), p.Guard, "k", gone).is(t, 1, 0)
		synctest.Wait()
		get(t.Context(), p.Guard, "k", never(t)).fails(t, stampede.ErrNotFound, 0)
		p.net.Down(nil)
		get(t.Context(), p.Guard, "k", never(t)).fails(t, stampede.ErrNotFound, 0)
		time.Sleep(5 * time.Second) // the default of NotFoundTTL
		get(t.Context(), p.Guard, "k", value(2)).is(t, 2, 0)
	})
}

func TestNotFoundOfAnOutageIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod(t, new(bytesStore), stampede.Options{Policy: steady})
		p.net.Down(nil)
		loads := 0
		gone := func(context.Context) (int, error) { loads++; return 0, stampede.ErrNotFound }
		for range 100 {
			get(t.Context(), p.Guard, "k", gone).fails(t, stampede.ErrNotFound, 0)
		}
		if loads != 1 {
			t.Errorf("%d loads, want 1", loads)
		}
	})
}
