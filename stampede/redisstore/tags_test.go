package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/internal/redistest"
	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/redisstore"
)

// space returns a space that no other test uses, with its record.
func (r *rig) space() string {
	r.T.Helper()
	space := fmt.Sprintf("test%d", rigs.Add(1))
	r.tagTime(space)
	return space
}

func (r *rig) tagTime(space string) stampede.TagTime {
	r.T.Helper()
	at, err := r.TagTime(r.ctx(), space)
	r.ok(err)
	return at
}

func (r *rig) tags(space string, names ...string) stampede.TagState {
	r.T.Helper()
	s, err := r.Tags(r.ctx(), space, names...)
	r.ok(err)
	return s
}

func (r *rig) expireTag(space, tag string) {
	r.T.Helper()
	r.ok(r.ExpireTag(r.ctx(), space, tag))
}

func TestRecordOfTagsIsASortedSet(t *testing.T) {
	t.Parallel()
	r := newRig(t, shared.Server(t).Addr(), patient)
	space := r.space()
	first := r.tagTime(space)
	r.expireTag(space, "a")
	state := r.tags(space, "a")
	want := map[string]float64{"e": -float64(first.Epoch), "n": -float64(state.Numbers[0]), ":a": float64(state.Numbers[0])}
	for _, z := range r.rdb.ZRangeWithScores(t.Context(), space+":t", 0, -1).Val() {
		if member := z.Member.(string); want[member] != z.Score {
			t.Errorf("%s has the score %v, want %v", member, z.Score, want[member])
		}
		delete(want, z.Member.(string))
	}
	if len(want) > 0 || first.Epoch >= 1<<52 {
		t.Errorf("missing: %v", want)
	}
	if ttl := r.rdb.TTL(t.Context(), space+":t").Val(); ttl != -1 {
		t.Errorf("the record ends in %v", ttl)
	}
	now := uint64(time.Now().UnixMicro())
	if n := state.Numbers[0]; n > now || n < now-uint64(time.Hour.Microseconds()) || first.Number >= n {
		t.Errorf("the numbers are %d and %d, the time is %d", first.Number, n, now)
	}
}

func TestNumbersOfTagsDoNotFollowTheClockBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, shared.Server(t).Addr(), patient)
	space := r.space()
	ahead := float64(1 << 52)
	r.ok(r.rdb.ZAdd(t.Context(), space+":t", redis.Z{Score: -ahead, Member: "n"}).Err())
	for i := range 3 {
		r.expireTag(space, "a")
		if got, want := r.tags(space, "a").Numbers[0], uint64(ahead)+uint64(i)+1; got != want || r.tagTime(space).Number != want {
			t.Errorf("the number is %d, want %d", got, want)
		}
	}
}

func TestRecordOfTagsIsBounded(t *testing.T) {
	t.Parallel()
	opt := *patient
	opt.MaxTags = 3
	r := newRig(t, shared.Server(t).Addr(), &opt)
	space := r.space()
	var names []string
	var numbers []uint64
	for i := range 10 {
		names = append(names, strconv.Itoa(i))
		r.expireTag(space, names[i])
		numbers = append(numbers, r.tags(space, names[i]).Numbers[0])
		floor := uint64(0)
		if i >= 3 {
			floor = numbers[i-3]
		}
		s := r.tags(space, names...)
		if s.Floor != floor {
			t.Errorf("after %d tags the floor is %d, want %d", i+1, s.Floor, floor)
		}
		for j, n := range s.Numbers {
			if j <= i-3 && n != 0 || j > i-3 && n != numbers[j] {
				t.Errorf("after %d tags that of %d is %d, was %d", i+1, j, n, numbers[j])
			}
		}
	}
	r.expireTag(space, "7") // one that is there pushes out nothing
	if s := r.tags(space, names...); s.Floor != numbers[6] || s.Numbers[7] <= numbers[9] || s.Numbers[8] != numbers[8] {
		t.Errorf("%+v", s)
	}
	r.expireTag(space, "x") // the one that has not expired for longest goes
	if s := r.tags(space, names...); s.Floor != numbers[8] || s.Numbers[7] == 0 || s.Numbers[8] != 0 {
		t.Errorf("%+v", s)
	}
	if n := r.rdb.ZCard(t.Context(), space+":t").Val(); n != 6 {
		t.Errorf("%d members", n)
	}
}

func TestFlushedRecordHasAnotherEpoch(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t)
	r := newRig(t, srv.Addr(), patient)
	first := r.tagTime("test")
	r.do("FLUSHALL")
	if s := r.tags("test", "a"); s.Epoch != 0 {
		t.Errorf("%+v", s)
	}
	r.expireTag("test", "a")
	if next := r.tagTime("test"); next.Epoch == first.Epoch || next.Epoch == 0 {
		t.Errorf("%+v, then %+v", first, next)
	}
}

func TestTagsExpireInAFullServer(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t, "--maxmemory-policy", "noeviction")
	opt := *patient
	opt.MaxTags = 2
	r := newRig(t, srv.Addr(), &opt)
	at := r.tagTime("test")
	r.do("CONFIG", "SET", "maxmemory", "1")
	for _, tag := range []string{"a", "b", "c", "a"} {
		r.expireTag("test", tag)
		if n := r.tags("test", tag).Numbers[0]; n <= at.Number {
			t.Errorf("%s has number %d, the record began with %d", tag, n, at.Number)
		}
		at = r.tagTime("test")
	}
	if _, err := r.TagTime(r.ctx(), "another"); err == nil {
		t.Error("a record was made in a full server")
	}
	if n := r.Stats().Outages; n != 0 {
		t.Errorf("%d outages", n)
	}
}

func TestGarbageInPlaceOfARecordIsNoOutage(t *testing.T) {
	t.Parallel()
	r := newRig(t, shared.Server(t).Addr(), patient)
	space := r.space()
	r.do("SET", space+":t", "garbage")
	for range 5 {
		_, err1 := r.Tags(r.ctx(), space, "a")
		_, err2 := r.TagTime(r.ctx(), space)
		err3 := r.ExpireTag(r.ctx(), space, "a")
		if err1 == nil || err2 == nil || err3 == nil {
			t.Fatalf("%v, %v, %v", err1, err2, err3)
		}
	}
	r.read(r.key())
	if n := r.Stats().Outages; n != 0 {
		t.Errorf("%d outages", n)
	}
	r.do("DEL", space+":t")
	for member, score := range map[string]float64{"e": 5, "n": -1 << 60, "f": 0.5, ":a": -3} {
		r.ok(r.rdb.ZAdd(t.Context(), space+":t", redis.Z{Score: score, Member: member}).Err())
	}
	if s := r.tags(space, "a"); s.Epoch != 0 || s.Floor != 0 || s.Numbers[0] != 0 {
		t.Errorf("%+v", s)
	}
}

func TestTagsAreAskedForInOneRequest(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t)
	p := redistest.Proxy(t, srv.Addr())
	r := newRigVia(t, srv.Addr(), p.Addr(), patient)
	r.tagTime("test")
	key := r.key()
	r.ok(r.Set(t.Context(), key, value("x")))
	before := r.Stats().ReadRequests
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprint("t", i))
	}
	r.tags("test", names...)
	r.tagTime("test")
	if n := r.Stats().ReadRequests - before; n != 2 {
		t.Errorf("%d requests for 1,000 tags and the time", n)
	}
	p.SetDelay(0, 5*time.Millisecond)
	before = r.Stats().ReadRequests
	const callers = 300
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			if s, err := r.Tags(t.Context(), "test", names[i%3], names[i%7]); err != nil || len(s.Numbers) != 2 {
				t.Errorf("%+v, %v", s, err)
			}
			if e, err := r.Read(t.Context(), key); err != nil || string(e.Data) != "x" {
				t.Errorf("%q, %v", e.Data, err)
			}
		})
	}
	wg.Wait()
	if n := r.Stats().ReadRequests - before; n > callers/5 {
		t.Errorf("%d callers of tags and an entry cost %d requests", callers, n)
	}
}

// An answer that is shared was sent after each of its callers came: what had expired by then is in it.
func TestTagsThatAreAskedForTogetherAreNotFromBefore(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t)
	p := redistest.Proxy(t, srv.Addr())
	r := newRigVia(t, srv.Addr(), p.Addr(), patient)
	other := newRig(t, srv.Addr(), patient)
	r.tagTime("test")
	p.SetDelay(time.Millisecond, time.Millisecond)
	for range 20 {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { _, _ = r.Tags(t.Context(), "test", "a") })
		}
		other.expireTag("test", "a")
		at := other.tagTime("test").Number
		for range 8 {
			wg.Go(func() {
				if s, err := r.Tags(t.Context(), "test", "a"); err != nil || s.Numbers[0] < at {
					t.Errorf("number %d, %v; it had expired with %d", s.Numbers[0], err, at)
				}
			})
		}
		wg.Wait()
	}
}

func TestTagsOfSpacesThatCannotBeStored(t *testing.T) {
	t.Parallel()
	r := newRig(t, shared.Server(t).Addr(), patient)
	for _, space := range []string{"", "a{", "}a"} {
		_, err1 := r.TagTime(r.ctx(), space)
		_, err2 := r.Tags(r.ctx(), space, "a")
		if err3 := r.ExpireTag(r.ctx(), space, "a"); err1 == nil || err2 == nil || err3 == nil {
			t.Errorf("%q: %v, %v, %v", space, err1, err2, err3)
		}
		r.TagDrops(space, func(string) {})()
	}
	if _, err := redisstore.New(r.rdb, &redisstore.Options{MaxTags: -1}); err == nil || !strings.Contains(err.Error(), "MaxTags") {
		t.Errorf("New: %v", err)
	}
}

func TestEntryWithImpossibleTagsIsNotWritten(t *testing.T) {
	t.Parallel()
	r := newRig(t, shared.Server(t).Addr(), patient)
	key, e := r.key(), value("x")
	e.Tags = &stampede.Tags{Names: []string{""}}
	if err := r.Set(r.ctx(), key, e); err == nil {
		t.Error("it was set")
	}
	if v, err := r.Commit(r.ctx(), key, r.lead(key), e); v != stampede.NotStored || err == nil {
		t.Errorf("commit: %v, %v", v, err)
	}
	if e := r.read(key); e.Stamp != (stampede.Stamp{}) {
		t.Errorf("%+v", e)
	}
}

// Guards of two pods, on real servers.
func TestPodsHearOfExpiredTags(t *testing.T) {
	t.Parallel()
	for name, dial := range map[string]func(*testing.T) redis.UniversalClient{
		"server": func(t *testing.T) redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: shared.Server(t).Addr()})
		},
		"cluster": func(t *testing.T) redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: shared.Cluster(t).Addrs()})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := &stampede.Options{
				Name: fmt.Sprintf("pods%d", rigs.Add(1)), Tags: true, StoreBudget: 5 * time.Second,
				Policy: stampede.Policy{TTL: time.Hour, StaleFor: -1, StaleIfError: -1, Jitter: -1},
				Local:  stampede.Local{TTL: time.Hour},
			}
			var pods []*stampede.Guard[int]
			for range 2 {
				g, err := stampede.New[int](open(t, dial(t), patient), opts)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = g.Close(context.Background()) })
				pods = append(pods, g)
			}
			n := 0
			load := func(_ context.Context, l *stampede.Load[int]) (int, error) {
				l.Tags("x")
				n++
				return n, nil
			}
			get := func(g *stampede.Guard[int]) stampede.Result[int] {
				r, err := g.Fetch(t.Context(), "k", load)
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				return r
			}
			for i := range 5 {
				for _, g := range pods {
					if r := get(g); r.Value != i+1 {
						t.Fatalf("round %d: %+v", i, r)
					}
				}
				if err := pods[1].ExpireTag(t.Context(), "x"); err != nil {
					t.Fatal(err)
				}
				redistest.Eventually(t, 5*time.Second, func() bool { return get(pods[0]).Value == i+2 })
			}
		})
	}
}
