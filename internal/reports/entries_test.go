package reports_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/herdgate/herdgate/internal/redisproc"
	"github.com/herdgate/herdgate/internal/redistest"
	"github.com/herdgate/herdgate/stampede"
)

// pttl returns what a name has left to live.
func pttl(t *testing.T, s *redisproc.Server, name string) time.Duration {
	t.Helper()
	ms, _ := do(t, s, "PTTL", name).(int64)
	return time.Duration(ms) * time.Millisecond
}

// maypok86/otter#115, go-redis/cache (tried): TTLs below a second became a second, or an hour.
// spatie/laravel-responsecache#525: the grace period was read as the whole life. rails/rails#54229: what was loaded within the race
// window got a life of its own.
func TestAnEntryLivesForItsTTLAndItsWindow(t *testing.T) {
	server := shared.Server(t)
	store := onRedis(t, server.Addr(), nil)
	ifError := exactly(time.Second, time.Minute)
	ifError.StaleIfError = time.Hour
	for name_, c := range map[string]struct {
		policy stampede.Policy
		life   time.Duration
	}{
		"sub-second":            {exactly(250*time.Millisecond, -1), 250 * time.Millisecond},
		"sub-second and window": {exactly(5*time.Millisecond, 900*time.Millisecond), 905 * time.Millisecond},
		"grace":                 {exactly(time.Hour, 5*time.Minute), 65 * time.Minute},
		"kept for errors":       {ifError, time.Hour + time.Second},
	} {
		t.Run(name_, func(t *testing.T) {
			guard := unique(t)
			g := open[int](t, store, stampede.Options{Name: guard, Policy: c.policy, Lease: 150 * time.Millisecond})
			lives := func() {
				t.Helper()
				found := names(t, server, guard+":*:v:k")
				if len(found) == 0 && c.life < time.Second {
					return // on a busy machine it has ended already
				}
				if left := pttl(t, server, found[0]); left > c.life || left < c.life-10*time.Second {
					t.Errorf("it lives for %v, want %v", left, c.life)
				}
			}
			wants(t, g, "k", func(context.Context) (int, error) {
				for _, lease := range names(t, server, guard+":*:l:k") {
					if left := pttl(t, server, lease); left > 150*time.Millisecond {
						t.Errorf("the lease lasts %v", left)
					}
				}
				return 1, nil
			}, 1)
			lives()
			must(t, g.Expire(t.Context(), "k"))
			if c.policy.StaleFor < 0 {
				return
			}
			wants(t, g, "k", func(context.Context) (int, error) { return 2, nil }, 1) // stale, and loaded behind
			redistest.Eventually(t, 5*time.Second, func() bool { return g.Stats().Committed == 2 })
			lives()
		})
	}
}

// spatie/laravel-responsecache#525, maypok86/otter#115: combinations that make no sense were taken.
func TestPoliciesThatMakeNoSenseAreRefused(t *testing.T) {
	for name, p := range map[string]stampede.Policy{
		"no TTL":                 {TTL: -1},
		"a TTL of microseconds":  {TTL: time.Microsecond},
		"a window without sense": {StaleFor: time.Hour, StaleIfError: time.Minute},
		"a jitter above the TTL": {Jitter: 1.5},
	} {
		if _, err := stampede.New[int](new(stampede.MemoryStore), &stampede.Options{Name: "n", Policy: p}); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

// go-redis/cache#27, go-redis/cache#52, civitai/civitai#2266: bytes that could not be decoded were an error until their TTL ended.
// OpenAI, 2023-03-20: a connection out of step delivered the replies of other requests, other users' data.
// grafana/grafana#121015: after a clock was set back, entries seemed to be from the future, and lived for ever.
func TestAnEntryThatCannotBeUsedIsReplaced(t *testing.T) {
	server := redistest.Server(t)
	store := onRedis(t, server.Addr(), nil)
	for name_, c := range map[string]struct {
		spoil func(entry, other string)
		stale bool // it can still be served, once
	}{
		"garbage":         {spoil: func(entry, _ string) { do(t, server, "SET", entry, "garbage", "KEEPTTL") }},
		"nothing":         {spoil: func(entry, _ string) { do(t, server, "SET", entry, "", "KEEPTTL") }},
		"bits flipped":    {spoil: func(entry, _ string) { do(t, server, "SETRANGE", entry, "62", "\xff\xff") }},
		"payload cut off": {spoil: func(entry, _ string) { do(t, server, "SET", entry, strings.Repeat("\x00", 80), "KEEPTTL") }},
		"another type":    {spoil: func(entry, _ string) { do(t, server, "DEL", entry); do(t, server, "LPUSH", entry, "x") }},
		"another's reply": {spoil: func(entry, other string) { do(t, server, "COPY", other, entry, "REPLACE") }},
		"lives for ever":  {spoil: func(entry, _ string) { do(t, server, "PERSIST", entry) }, stale: true},
		"of the future":   {spoil: func(entry, _ string) { do(t, server, "PEXPIRE", entry, "9000000") }, stale: true},
	} {
		t.Run(name_, func(t *testing.T) {
			guard, n := unique(t), 0
			g := open[string](t, store, stampede.Options{Name: guard, Policy: exactly(time.Hour, time.Hour)})
			load := func(context.Context) (string, error) { n++; return strconv.Itoa(n), nil }
			get := func(key, want string) {
				t.Helper()
				if v, err := g.Get(t.Context(), key, load); v != want || err != nil {
					t.Errorf("Get = %q, %v, want %q", v, err, want)
				}
			}
			get("k", "1")
			get("other", "2")
			c.spoil(name(t, server, guard, 'v', "k"), name(t, server, guard, 'v', "other"))
			if c.stale {
				get("k", "1")
				redistest.Eventually(t, 5*time.Second, func() bool { return g.Stats().Committed == 3 })
			}
			get("k", "3")
			get("k", "3")
			if s := g.Stats(); n != 3 || !c.stale && s.BadEntries == 0 {
				t.Errorf("%d loads, %d bad entries were counted", n, s.BadEntries)
			}
			if left := pttl(t, server, name(t, server, guard, 'v', "k")); left <= 0 || left > 2*time.Hour {
				t.Errorf("it now lives for %v", left)
			}
		})
	}
}

// go-redis/cache#27, civitai/civitai#2266, again: old and new pods side by side.
func TestPodsOfDifferentVersionsDoNotThrash(t *testing.T) {
	type v1 struct{ Name string }
	type v2 struct{ Name []string }
	store := onRedis(t, shared.Server(t).Addr(), nil)
	guard := unique(t)
	older := open[v1](t, store, stampede.Options{Name: guard, Version: "1", Policy: cold})
	newer := open[v2](t, store, stampede.Options{Name: guard, Version: "2", Policy: cold})
	loads := 0
	for range 10 {
		a, err1 := older.Get(t.Context(), "k", func(context.Context) (v1, error) { loads++; return v1{"x"}, nil })
		b, err2 := newer.Get(t.Context(), "k", func(context.Context) (v2, error) { loads++; return v2{[]string{"x"}}, nil })
		if a.Name != "x" || len(b.Name) != 1 || err1 != nil || err2 != nil {
			t.Errorf("%v, %v; %v, %v", a, err1, b, err2)
		}
	}
	if loads != 2 {
		t.Errorf("%d loads", loads)
	}
}

// sebleier/django-redis-cache#128, redis/redis-py#554: SETNX and then EXPIRE: who died in between left a lock for ever.
func TestWhateverStandsInALeasesPlaceEnds(t *testing.T) {
	server := redistest.Server(t)
	proxy := redistest.Proxy(t, server.Addr())
	pods, _ := redisFleet(t, 2, proxy, stampede.Options{Name: "ends", Policy: cold, Lease: 60 * time.Millisecond})
	done := make(chan struct{})
	go func() {
		defer close(done)
		crowd(60, func(i int) {
			key := strconv.Itoa(i % 20)
			_, _ = pods[i%2].Fetch(t.Context(), key, func(_ context.Context, l *stampede.Load[int]) (int, error) {
				<-time.After(200 * time.Millisecond)
				switch i % 4 {
				case 0:
					return 0, errSource // leaves a back-off marker
				case 1:
					l.DoNotStore() // leaves a pass marker
				}
				return 1, nil
			})
		})
	}()
	seen := 0
	for going := true; going; {
		select {
		case <-done:
			going = false
		case <-time.After(5 * time.Millisecond):
		}
		for _, name := range names(t, server, "ends:*:l:*") {
			seen++
			if left := do(t, server, "PTTL", name).(int64); left == -1 {
				t.Fatalf("%q never ends", name)
			}
		}
	}
	if seen == 0 {
		t.Error("no lease was seen")
	}
}
