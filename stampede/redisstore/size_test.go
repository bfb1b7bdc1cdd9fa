package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/herdgate/herdgate/internal/redistest"
	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/redisstore"
)

// sent returns how many bytes the server has sent until now.
func (r *rig) sent() (n int) {
	r.T.Helper()
	for line := range strings.Lines(r.rdb.Info(r.ctx(), "stats").Val()) {
		_, _ = fmt.Sscanf(line, "total_net_output_bytes:%d", &n)
	}
	if n == 0 {
		r.T.Fatal("INFO does not say what was sent")
	}
	return n
}

// cost returns how many bytes the server sent during f.
func (r *rig) cost(f func()) int {
	r.T.Helper()
	before := r.sent()
	f()
	return r.sent() - before
}

func TestHugeForeignStringCostsALoadAndIsReplaced(t *testing.T) {
	t.Parallel()
	const huge, little = 32 << 20, 64 << 10
	for name, put := range map[string]func(r *rig, key stampede.Key){
		"zeros": func(*rig, stampede.Key) {},
		// A usable header, fresh; only the checksum, over all of it, would say what it is.
		"after an entry": func(r *rig, key stampede.Key) { r.ok(r.Set(r.ctx(), key, value("old"))) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, redistest.Server(t).Addr(), patient)
			key, other := r.key(), r.key()
			put(r, key)
			r.do("SETRANGE", names(t, key).Entry, huge-1, "x")

			reads := map[string]func(){
				"Read": func() {
					if e := r.read(key); e.Fault == nil || e.Freshness() != stampede.Dead {
						t.Errorf("Read: %v, %v", e.Freshness(), e.Fault)
					}
				},
				"ReadMany": func() {
					if e, errs := r.ReadMany(t.Context(), []stampede.Key{key}); errs[0] != nil || e[0].Fault == nil {
						t.Errorf("ReadMany: %v, %v", e[0].Fault, errs[0])
					}
				},
			}
			for step, read := range reads {
				for range 3 { // alone as well
					if n := r.cost(read); n > redisstore.DefaultMaxEntrySize+little {
						t.Errorf("%s: %d bytes were sent", step, n)
					}
				}
			}
			seen := r.read(key).Stamp
			if n := r.cost(func() {
				for _, stamp := range []stampede.Stamp{{}, seen} {
					el := r.elect(key, stamp)
					r.role(el, stampede.RoleLeader)
					if el.Entry.Fault == nil || el.Entry.Stamp != seen {
						t.Errorf("Elect: %+v", el.Entry)
					}
					r.ok(r.Release(t.Context(), key, el.Lease, stampede.Pass{}))
				}
			}); n > little {
				t.Errorf("Elect: %d bytes were sent", n)
			}

			g, err := stampede.New[string](r.Store, &stampede.Options{Name: "test", StoreBudget: patient.Timeout})
			must(t, err)
			t.Cleanup(func() { _ = g.Close(context.Background()) })
			var loads atomic.Int64
			var wg sync.WaitGroup
			for range 8 {
				for _, k := range []stampede.Key{key, other} {
					wg.Go(func() {
						v, err := g.Get(t.Context(), k.Key, func(context.Context) (string, error) {
							loads.Add(1)
							return k.Key, nil
						})
						if v != k.Key || err != nil {
							t.Errorf("Get: %q, %v", v, err)
						}
					})
				}
			}
			wg.Wait()
			if n := loads.Load(); n != 2 {
				t.Errorf("%d loads of two keys", n)
			}
			for _, k := range []stampede.Key{key, other} {
				redistest.Eventually(t, 5*time.Second, func() bool { e := r.read(k); return e.Freshness() == stampede.Fresh })
			}
			if n := r.Stats().Outages; n != 0 {
				t.Errorf("%d outages", n)
			}
		})
	}
}

func TestLargerEntryThanAllowedIsNeitherWrittenNorRead(t *testing.T) {
	t.Parallel()
	addr := shared.Server(t).Addr()
	bound := newRig(t, addr, &redisstore.Options{Timeout: patient.Timeout, MaxEntrySize: 84 + 100})
	free := newRig(t, addr, &redisstore.Options{Timeout: patient.Timeout, MaxEntrySize: -1})
	fits, large := strings.Repeat("x", 100), strings.Repeat("x", 101)
	key := bound.key()

	bound.commit(key, bound.lead(key), fits, stampede.Accepted)
	if e := bound.read(key); string(e.Data) != fits {
		t.Errorf("read %+v", e)
	}
	bound.role(bound.elect(key, stampede.Stamp{}), stampede.RoleFresh)

	v, err := bound.Commit(t.Context(), key, bound.lead(key), value(large))
	if v != stampede.NotStored || !errors.Is(err, stampede.ErrTooLarge) {
		t.Errorf("Commit: %v, %v", v, err)
	}
	el := bound.elect(key, bound.read(key).Stamp)
	bound.role(el, stampede.RoleBackOff)
	v, err = bound.CommitMarked(t.Context(), key, el.Lease, value(large))
	if v != stampede.NotStored || !errors.Is(err, stampede.ErrTooLarge) {
		t.Errorf("CommitMarked: %v, %v", v, err)
	}
	if err := bound.Set(t.Context(), key, value(large)); !errors.Is(err, stampede.ErrTooLarge) || errors.Is(err, stampede.ErrOutcomeUnknown) {
		t.Errorf("Set: %v", err)
	}
	if e := bound.read(key); string(e.Data) != fits {
		t.Errorf("read %+v", e)
	}

	free.ok(free.Set(t.Context(), key, value(large)))
	if e := free.read(key); string(e.Data) != large {
		t.Errorf("without a bound, read %+v", e)
	}
	free.role(free.elect(key, stampede.Stamp{}), stampede.RoleFresh)
	if e := bound.read(key); e.Fault == nil {
		t.Errorf("read %+v", e)
	}
	bound.role(bound.elect(key, stampede.Stamp{}), stampede.RoleLeader)
}

func TestMaxEntrySizeHasRoomForTheHeader(t *testing.T) {
	t.Parallel()
	if _, err := redisstore.New(newRig(t, shared.Server(t).Addr(), nil).rdb, &redisstore.Options{MaxEntrySize: 83}); err == nil {
		t.Error("accepted")
	}
}
