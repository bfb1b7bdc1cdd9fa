package stampede_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

func key(k string) stampede.Key { return stampede.Key{Space: "test", Key: k} }

func set(t testing.TB, s *stampede.MemoryStore, k string, e stampede.Entry) {
	t.Helper()
	if err := s.Set(t.Context(), key(k), e); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, s *stampede.MemoryStore, k string) stampede.Entry {
	t.Helper()
	e, err := s.Read(t.Context(), key(k))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestMemoryStoreKeepsTheMostRecentlyUsed(t *testing.T) {
	s := &stampede.MemoryStore{MaxEntries: 3}
	for i := range 3 {
		set(t, s, fmt.Sprint(i), stampede.Entry{Value: i, TTL: time.Minute})
	}
	read(t, s, "0")
	set(t, s, "3", stampede.Entry{Value: 3, TTL: time.Minute})
	for k, want := range map[string]any{"0": 0, "1": nil, "2": 2, "3": 3} {
		if got := read(t, s, k).Value; got != want {
			t.Errorf("%s: %v, want %v", k, got, want)
		}
	}
}

func TestMemoryStoreKeepsAHotKeyInALargeShard(t *testing.T) {
	s := &stampede.MemoryStore{MaxEntries: 100}
	set(t, s, "hot", stampede.Entry{Value: "hot", TTL: time.Minute})
	for i := range 10_000 {
		set(t, s, fmt.Sprint(i), stampede.Entry{Value: i, TTL: time.Minute})
		if i%50 == 0 && read(t, s, "hot").Value != "hot" {
			t.Fatalf("the hot key was pushed out after %d others", i)
		}
	}
}

func TestMemoryStoreStaysWithinItsBound(t *testing.T) {
	for _, c := range []struct{ max, bound, atLeast int }{
		{1, 1, 1}, {7, 7, 7}, {1023, 1023, 1023},
		{1024, 1024, 900}, {5003, 5003, 4500}, {0, 10_000, 9_000}, {-1, 12_000, 12_000},
	} {
		s := &stampede.MemoryStore{MaxEntries: c.max}
		for i := range 12_000 {
			set(t, s, fmt.Sprint(i), stampede.Entry{Value: i, TTL: time.Minute})
		}
		n := 0
		for i := range 12_000 {
			if read(t, s, fmt.Sprint(i)).Stamp != (stampede.Stamp{}) {
				n++
			}
		}
		if n > c.bound || n < c.atLeast {
			t.Errorf("MaxEntries %d: %d entries, want %d to %d", c.max, n, c.atLeast, c.bound)
		}
	}
}

func TestMemoryStoreWithoutBoundLetsGoOfWhatExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stampede.MemoryStore{MaxEntries: -1}
		for i := range 20_000 {
			set(t, s, fmt.Sprint(i), stampede.Entry{Value: i, TTL: time.Second})
			if i%100 == 99 {
				time.Sleep(time.Second)
			}
		}
		if n := s.Len(); n > 16*128 {
			t.Errorf("%d entries are held, of which 100 live", n)
		}
	})
}

func TestMemoryStoreLetsGoOfLeasesAndMarkersThatExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(stampede.MemoryStore)
		for i := range 20_000 {
			k := key(fmt.Sprint(i))
			el, err := s.Elect(t.Context(), k, stampede.Ballot{Token: stampede.NewToken(), Length: time.Second})
			if err != nil || el.Role != stampede.RoleLeader {
				t.Fatal(el, err)
			}
			if i%2 == 0 {
				_, _ = s.Fail(t.Context(), k, el.Lease, stampede.Backoff{First: time.Second})
			}
			if i%100 == 99 {
				time.Sleep(time.Second)
			}
		}
		if n := s.Leases(); n > 16*128 {
			t.Errorf("%d leases are held, of which 100 live", n)
		}
	})
}

func TestMemoryStoreTellsWhoIsSlowOfTheLastUnstoredLoads(t *testing.T) {
	s := new(stampede.MemoryStore)
	w := s.Watch(key("k"))
	defer w.Close()
	for range 100 {
		_ = s.Delete(t.Context(), key("k"))
	}
	var leases []stampede.Stamp
	for range 2 {
		el, _ := s.Elect(t.Context(), key("k"), stampede.Ballot{Token: stampede.NewToken(), Length: time.Minute})
		_, _ = s.Fail(t.Context(), key("k"), el.Lease, stampede.Backoff{First: time.Minute})
		_ = s.Delete(t.Context(), key("k"))
		leases = append(leases, el.Lease)
	}
	told := map[stampede.Stamp]bool{}
	for n := len(w.C()); n > 0; n-- {
		told[(<-w.C()).Unstored] = true
	}
	for i, lease := range leases {
		if !told[lease] {
			t.Errorf("the end of load %d was not told", i)
		}
	}
}

func TestMemoryStoreCallsDropsOutsideOfItsLocks(t *testing.T) {
	s := new(stampede.MemoryStore)
	n := 0
	var stop func()
	stop = s.Drops("test", func(k string) {
		n++
		read(t, s, k)
		if n == 1 {
			_ = s.Delete(t.Context(), key(k))
		}
		stop()
	})
	set(t, s, "k", stampede.Entry{Value: "v", TTL: time.Minute})
	if e := read(t, s, "k"); n != 2 || e.Stamp != (stampede.Stamp{}) {
		t.Errorf("told %d times, want of the Set, and of the Delete within", n)
	}
}

func TestMemoryStoreKeepsBytesAsTheyWereHanded(t *testing.T) {
	s := new(stampede.MemoryStore)
	data := []byte("a guard with CopyOnRead hands bytes")
	set(t, s, "k", stampede.Entry{Data: data, TTL: time.Minute})
	if e := read(t, s, "k"); &e.Data[0] != &data[0] || e.Value != nil {
		t.Errorf("%+v", e)
	}
}

func TestMemoryStoreHitDoesNotAllocate(t *testing.T) {
	var s stampede.Store = new(stampede.MemoryStore) // as a guard sees it
	k := key("k")
	_ = s.Set(t.Context(), k, stampede.Entry{Value: "v", TTL: time.Minute})
	ctx := t.Context()
	if n := testing.AllocsPerRun(1000, func() { _, _ = s.Read(ctx, k) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestMemoryStoreKeepsWhatTimesItCanBear(t *testing.T) {
	s := new(stampede.MemoryStore)
	const forever = time.Duration(1<<63 - 1)
	set(t, s, "k", stampede.Entry{Value: "v", TTL: forever, StaleFor: forever})
	if e := read(t, s, "k"); e.Value != "v" || e.Left <= 0 {
		t.Errorf("%+v", e)
	}
	set(t, s, "k", stampede.Entry{Value: "w", TTL: time.Microsecond, StaleFor: -time.Second})
	if e := read(t, s, "k"); e.Stamp != (stampede.Stamp{}) {
		t.Errorf("an entry without any life is kept, or what was there before: %+v", e)
	}
}

func BenchmarkMemoryStoreRead(b *testing.B) {
	ctx := b.Context()
	for _, n := range []int{1, 1000} {
		keys := make([]stampede.Key, n)
		s := new(stampede.MemoryStore)
		for i := range keys {
			keys[i] = key(fmt.Sprintf("key:%06d", i))
			_ = s.Set(ctx, keys[i], stampede.Entry{Value: i, TTL: time.Hour})
		}
		b.Run(fmt.Sprintf("keys=%d/goroutines=one", n), func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				_, _ = s.Read(ctx, keys[i%n])
				i++
			}
		})
		b.Run(fmt.Sprintf("keys=%d/goroutines=many", n), func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(64)
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					_, _ = s.Read(ctx, keys[i%n])
				}
			})
		})
	}
}
