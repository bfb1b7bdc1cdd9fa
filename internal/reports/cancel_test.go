package reports_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/stampedetest"
)

// bucketeer-io/bucketeer#2552, authzed/spicedb#925: right after an invalidation the first caller's end failed all who waited.
// hmchangw/newchat#16, octo-server#769: the same with the ctx of a request.
func TestTheLeaderWhoLeavesTakesNobodyAlong(t *testing.T) {
	for _, c := range []struct {
		name    string
		callers int
		load    time.Duration
		leave   func(context.Context) (context.Context, context.CancelFunc)
		want    error
	}{
		{"cancelled", 100, 200 * time.Millisecond, cancelAfter(10 * time.Millisecond), context.Canceled},
		{"out of time", 51, 100 * time.Millisecond, deadlineAfter(10 * time.Millisecond), context.DeadlineExceeded},
		{"cancelled at the very end", 100, 200 * time.Millisecond, cancelAfter(200*time.Millisecond - time.Nanosecond), context.Canceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, loads := open[int](t, new(stampede.MemoryStore), stampede.Options{Name: "n"}), numbered(c.load)
				if err := errors.Join(g.Set(t.Context(), "k", 99), g.Delete(t.Context(), "k")); err != nil {
					t.Fatal(err)
				}
				crowd(c.callers, func(i int) {
					if i == 0 {
						ctx, cancel := c.leave(t.Context())
						defer cancel()
						if v, err := g.Get(ctx, "k", loads.Loader("k")); v != 0 || !errors.Is(err, c.want) {
							t.Errorf("the leader's Get = %d, %v", v, err)
						}
						return
					}
					time.Sleep(time.Millisecond)
					wants(t, g, "k", loads.Loader("k"), 1)
				})
				loads.AssertLoads(t, 1)
			})
		})
	}
}

func cancelAfter(d time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
	return func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(d, cancel)
		return ctx, cancel
	}
}

func deadlineAfter(d time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
	return func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, d) }
}

// anyproto/any-sync#743: who waited inherited "killed by its owner", and tried again three times at most.
func TestAPatientCallerIsServedHoweverManyLeadersLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, loads := open[int](t, new(stampede.MemoryStore), stampede.Options{Name: "n"}), numbered(time.Second)
		crowd(11, func(i int) {
			time.Sleep(time.Duration(i) * 50 * time.Millisecond)
			if i == 5 {
				wants(t, g, "k", loads.Loader("k"), 1)
				return
			}
			ctx, cancel := cancelAfter(30 * time.Millisecond)(t.Context())
			defer cancel()
			if _, err := g.Get(ctx, "k", loads.Loader("k")); !errors.Is(err, context.Canceled) {
				t.Errorf("Get = %v", err)
			}
		})
		loads.AssertLoads(t, 1)
	})
}

// golang/go#54439, golang/go#55343: the last waiter left at the instant at which a new one joined, and the new one got the
// cancelled look-up.
func TestWhoJoinsAsTheLastOneLeavesIsServed(t *testing.T) {
	store := &stampede.MemoryStore{MaxEntries: -1}
	g := open[int](t, store, stampede.Options{})
	load := func(context.Context) (int, error) { return 1, nil }
	alone := func(_ context.Context, l *stampede.Load[int]) (int, error) {
		l.DoNotShare() // those run for their caller only, and end when it leaves
		return 1, nil
	}
	for round := range 2000 {
		key := strconv.Itoa(round)
		ctx, cancel := context.WithCancel(t.Context())
		crowd(4, func(i int) {
			switch i {
			case 0:
				cancel()
			case 1:
				if v, err := g.Get(ctx, key, load); err == nil && v != 1 || err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("the leaver's Get = %d, %v", v, err)
				}
			case 2:
				wants(t, g, key, load, 1)
			case 3:
				if r, err := g.Fetch(t.Context(), "alone"+key, alone); r.Value != 1 || err != nil {
					t.Errorf("Fetch = %+v, %v", r, err)
				}
			}
		})
	}
}

// tailscale/tailscale#18919: all callers had left, what they had started still ran, and its cancelled ctx leaked into a later call.
func TestALoadThatEverybodyLeftDoesNotHarmTheNextCaller(t *testing.T) {
	leave := func(t *testing.T, g *stampede.Guard[int], load func(context.Context) (int, error)) {
		ctx, cancel := cancelAfter(10 * time.Millisecond)(t.Context())
		defer cancel()
		if _, err := g.Get(ctx, "k", load); !errors.Is(err, context.Canceled) {
			t.Errorf("Get = %v", err)
		}
	}
	t.Run("which goes on", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g, loads := open[int](t, new(stampede.MemoryStore), stampede.Options{Name: "n"}), deaf(time.Second)
			leave(t, g, loads.Loader("k"))
			wants(t, g, "k", loads.Loader("k"), 1)
			loads.AssertLoads(t, 1)
		})
	})
	t.Run("which was given up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := open[int](t, new(stampede.MemoryStore), stampede.Options{Name: "n", LoadTimeout: 100 * time.Millisecond})
			leave(t, g, deaf(time.Second).Loader("k"))
			time.Sleep(100 * time.Millisecond)
			wants(t, g, "k", numbered(0).Loader("k"), 1)
			time.Sleep(time.Second)
		})
	})
	t.Run("which is shared with nobody", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := open[int](t, new(stampede.MemoryStore), stampede.Options{Name: "n"})
			stream := func(takes time.Duration) func(ctx context.Context, l *stampede.Load[int]) (int, error) {
				return func(ctx context.Context, l *stampede.Load[int]) (int, error) {
					l.Pass(time.Minute)
					l.ReleaseWaiters()
					return deaf(takes).Load(ctx, "k")
				}
			}
			ctx, cancel := cancelAfter(10 * time.Millisecond)(t.Context())
			defer cancel()
			if _, err := g.Fetch(ctx, "k", stream(time.Second)); !errors.Is(err, context.Canceled) {
				t.Errorf("Fetch = %v", err)
			}
			for range 3 {
				begun := time.Now()
				if r, err := g.Fetch(t.Context(), "k", stream(10*time.Millisecond)); r.Value != 1 || err != nil {
					t.Errorf("Fetch = %+v, %v", r, err)
				}
				took(t, begun, 10*time.Millisecond)
			}
		})
	})
}

// viccon/sturdyc#38: a call whose ctx had ended came back as "there are only cached values", with none.
func TestAnEndedCallerGetsItsOwnEndAndNoValue(t *testing.T) {
	errShutdown := errors.New("shutting down")
	cancelled, cancel := context.WithCancelCause(context.Background())
	cancel(errShutdown)
	late, cancelLate := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancelLate()
	g := open[int](t, new(stampede.MemoryStore), stampede.Options{})
	wants(t, g, "stored", numbered(0).Loader("stored"), 1)
	for _, key := range []string{"stored", "missing"} {
		for want, ctx := range map[error]context.Context{context.Canceled: cancelled, context.DeadlineExceeded: late} {
			if v, err := g.Get(ctx, key, forbidden(t)); v != 0 || !errors.Is(err, want) || errors.Is(err, stampede.ErrNotFound) {
				t.Errorf("Get of what is %s = %d, %v, want %v", key, v, err, want)
			}
			if r, ok, err := g.Peek(ctx, key); r.Value != 0 || ok || !errors.Is(err, want) {
				t.Errorf("Peek at what is %s = %+v, %v, %v, want %v", key, r, ok, err, want)
			}
		}
	}
}

// ZiggyCreatures/FusionCache#608, ZiggyCreatures/FusionCache#592: to be cancelled while waiting for a lock was logged as a failure of
// the lock, at every request.
func TestWhoLeavesAWaitForAnotherPodIsNoTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		pods := fleet(t, 2, new(stampede.MemoryStore), stampede.Options{Name: "n", Logger: slog.New(slog.NewTextHandler(&log, nil))})
		loads := numbered(time.Second)
		crowd(101, func(i int) {
			if i == 0 {
				wants(t, pods.Pods[0], "k", loads.Loader("k"), 1)
				return
			}
			time.Sleep(time.Millisecond)
			begun := time.Now()
			ctx, cancel := cancelAfter(50 * time.Millisecond)(t.Context())
			defer cancel()
			if _, err := pods.Pods[1].Get(ctx, "k", loads.Loader("k")); !errors.Is(err, context.Canceled) {
				t.Errorf("Get = %v", err)
			}
			took(t, begun, 50*time.Millisecond)
		})
		synctest.Wait()
		loads.AssertLoads(t, 1)
		if s := pods.Pods[1].Stats(); s.Trouble != 0 || log.Len() != 0 {
			t.Errorf("%d troubles, log %q", s.Trouble, log.String())
		}
	})
}

// dotnet/extensions#5568: what the shared factory needed from the request was missing.
func TestALoaderKeepsValuesButNotTheEndOfItsCaller(t *testing.T) {
	type traceID struct{}
	for _, name := range []string{"load", "load behind", "load for one caller"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := open[int](t, new(stampede.MemoryStore), stampede.Options{Name: "n", Policy: exactly(time.Second, time.Hour), LoadTimeout: time.Minute})
				if name == "load behind" {
					wants(t, g, "k", numbered(0).Loader("k"), 1)
					time.Sleep(time.Second)
				}
				ran := make(chan struct{})
				ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), traceID{}, "abc"), time.Second)
				_, err := g.Fetch(ctx, "k", func(ctx context.Context, l *stampede.Load[int]) (int, error) {
					defer close(ran)
					if name == "load for one caller" {
						l.ReleaseWaiters()
					}
					if got := ctx.Value(traceID{}); got != "abc" {
						t.Errorf("the trace id is %v", got)
					}
					if d, ok := ctx.Deadline(); !ok || time.Until(d) != time.Minute {
						t.Errorf("the deadline is %v, %v, want that of LoadTimeout", d, ok)
					}
					return 1, nil
				})
				cancel()
				if err != nil {
					t.Error(err)
				}
				<-ran
			})
		})
	}
}

// ZiggyCreatures/FusionCache#218: the request ended and with it the refresh it had started; the lock stayed, and the key was dead at
// its expiry.
func TestARefreshOutlivesTheRequestThatStartedIt(t *testing.T) {
	early := exactly(10*time.Second, -1)
	early.Beta = 1000 // so that a load is due at the end of TTL, but for one time in a million
	for name, c := range map[string]struct {
		policy stampede.Policy
		at     time.Duration
	}{
		"early": {early, 10*time.Second - time.Millisecond},
		"stale": {exactly(10*time.Second, time.Minute), 11 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, loads := new(stampede.MemoryStore), numbered(100*time.Millisecond)
				g := open[int](t, store, stampede.Options{Name: "n", Policy: c.policy})
				loads.Next(stampedetest.Fate{Takes: time.Second})
				wants(t, g, "k", loads.Loader("k"), 1)
				time.Sleep(c.at)
				ctx, cancel := context.WithCancel(t.Context())
				if v, err := g.Get(ctx, "k", loads.Loader("k")); v != 1 || err != nil {
					t.Errorf("Get = %d, %v", v, err)
				}
				cancel()
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
				wants(t, g, "k", forbidden(t), 2)
				free(t, store, stampede.Key{Space: "n", Key: "k"})
			})
		})
	}
}

// blnkfinance/blnk#354, kalbasit/ncps#913, googleforgames/open-match#1578, minio/minio#20409: the lock was to be released on the ctx of a
// request that had ended, and stayed until its TTL. redis/rueidis#1010: a cancelled fill left its lock behind.
func TestACallerWhoLeavesLeavesNoLeaseBehind(t *testing.T) {
	for name, fate := range map[string]stampedetest.Fate{
		"load succeeds":  {},
		"load fails":     {Err: errSource},
		"load panics":    {Panic: errSource},
		"load is hung":   {Hang: true},
		"load gives out": {Goexit: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, loads := new(stampede.MemoryStore), numbered(100*time.Millisecond)
				loads.Next(fate)
				p := cold
				p.ErrorBackoff = -1
				pods := fleet(t, 2, store, stampede.Options{Name: "n", Policy: p, LoadTimeout: 200 * time.Millisecond})
				ctx, cancel := cancelAfter(10 * time.Millisecond)(t.Context())
				defer cancel()
				if _, err := pods.Pods[0].Get(ctx, "k", loads.Loader("k")); !errors.Is(err, context.Canceled) {
					t.Errorf("Get = %v", err)
				}
				// Another pod, which follows meanwhile, goes on at once.
				begun := time.Now()
				v, err := pods.Pods[1].Get(t.Context(), "k", loads.Loader("k"))
				if v != loads.Count() || err != nil {
					t.Errorf("Get = %d, %v after %d loads", v, err, loads.Count())
				}
				atMost(t, begun, 290*time.Millisecond)
				synctest.Wait()
				time.Sleep(time.Second) // a marker, as after a failure, ends by itself
				free(t, store, stampede.Key{Space: "n", Key: "k"})
			})
		})
	}
}
