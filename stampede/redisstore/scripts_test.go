package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/internal/redistest"
	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/redisstore"
)

// rig is a store with the server behind it, and a client of the test's own.
type rig struct {
	*testing.T
	*redisstore.Store
	rdb *redis.Client // asks the server at addr directly
}

var rigs atomic.Int64

// newRig returns a store on the server at addr.
func newRig(t *testing.T, addr string, o *redisstore.Options) *rig {
	t.Helper()
	return newRigVia(t, addr, addr, o)
}

// newRigVia returns a store that reaches the server at addr through another address.
func newRigVia(t *testing.T, addr, via string, o *redisstore.Options) *rig {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = rdb.Close() })
	return &rig{t, open(t, redis.NewClient(&redis.Options{Addr: via}), o), rdb}
}

// key returns a key that no other test uses.
func (r *rig) key() stampede.Key {
	return stampede.Key{Space: "test", Key: fmt.Sprintf("k%d", rigs.Add(1))}
}

func (r *rig) ctx() context.Context { return r.T.Context() }

func (r *rig) ok(err error) {
	r.T.Helper()
	if err != nil {
		r.T.Fatal(err)
	}
}

func (r *rig) do(args ...any) any {
	r.T.Helper()
	v, err := r.rdb.Do(r.ctx(), args...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		r.T.Fatalf("%v: %v", args, err)
	}
	return v
}

func (r *rig) read(key stampede.Key) stampede.Entry {
	r.T.Helper()
	e, err := r.Read(r.ctx(), key)
	r.ok(err)
	return e
}

func (r *rig) elect(key stampede.Key, seen stampede.Stamp) stampede.Election {
	r.T.Helper()
	el, err := r.Elect(r.ctx(), key, stampede.Ballot{Token: stampede.NewToken(), Length: time.Minute, Seen: seen})
	r.ok(err)
	return el
}

// lead returns a lease of key.
func (r *rig) lead(key stampede.Key) stampede.Stamp {
	r.T.Helper()
	el := r.elect(key, r.read(key).Stamp)
	r.role(el, stampede.RoleLeader)
	return el.Lease
}

// fail ends a load that failed.
func (r *rig) fail(key stampede.Key, lease stampede.Stamp, backoff time.Duration) error {
	_, err := r.Fail(r.ctx(), key, lease, stampede.Backoff{First: backoff})
	return err
}

func (r *rig) role(el stampede.Election, want stampede.Role) {
	r.T.Helper()
	if el.Role != want {
		r.T.Fatalf("elected as %v, want %v", el.Role, want)
	}
}

func (r *rig) commit(key stampede.Key, lease stampede.Stamp, data string, want stampede.Verdict) {
	r.T.Helper()
	v, err := r.Commit(r.ctx(), key, lease, value(data))
	if v != want || (err != nil) != (want == stampede.NotStored || want == stampede.Unknown) {
		r.T.Fatalf("commit: %v, %v, want %v", v, err, want)
	}
}

// value is an entry that is fresh for a minute and stale for another.
func value(data string) stampede.Entry {
	return stampede.Entry{Data: []byte(data), TTL: time.Minute, StaleFor: time.Minute}
}

// told waits for a change and returns it.
func (r *rig) told(w stampede.Watch) stampede.Change {
	r.T.Helper()
	select {
	case c := <-w.C():
		return c
	case <-time.After(5 * time.Second):
		r.T.Fatal("nothing was told")
		return stampede.Change{}
	}
}

// watch returns a watch of key whose subscription stands.
func (r *rig) watch(key stampede.Key) stampede.Watch {
	r.T.Helper()
	w := r.Watch(key)
	r.T.Cleanup(w.Close)
	r.stands(w)
	return w
}

func (r *rig) stands(w stampede.Watch) {
	r.T.Helper()
	select {
	case <-w.Ready():
	case <-time.After(5 * time.Second):
		r.T.Fatal("the subscription does not stand")
	}
}

func TestHardTTLIsTTLPlusTheLongerWindow(t *testing.T) {
	t.Parallel()
	r := newRig(t, shared.Server(t).Addr(), patient)
	for _, e := range []stampede.Entry{
		{TTL: time.Minute, StaleFor: time.Hour, StaleIfError: time.Second},
		{TTL: time.Minute, StaleFor: time.Second, StaleIfError: time.Hour},
		{TTL: 61 * time.Minute},
		{TTL: 24 * 365 * 100 * time.Hour, StaleFor: time.Hour}, // PX takes a number, not "3.1e+12"
	} {
		key := r.key()
		r.ok(r.Set(r.ctx(), key, e))
		want := e.TTL + e.Window()
		if got := r.rdb.PTTL(r.ctx(), names(t, key).Entry).Val(); got > want || got < want-time.Minute/2 {
			t.Errorf("%+v: PTTL is %v, want %v", e, got, want)
		}
	}
}

func TestPersistedEntryIsStaleAndRewritten(t *testing.T) {
	t.Parallel()
	r := newRig(t, shared.Server(t).Addr(), patient)
	key := r.key()
	r.ok(r.Set(r.ctx(), key, value("old")))
	r.do("PERSIST", names(t, key).Entry)
	if e := r.read(key); e.Freshness() != stampede.Stale {
		t.Errorf("freshness %v, want stale", e.Freshness())
	}
	el := r.elect(key, stampede.Stamp{})
	r.role(el, stampede.RoleLeader)
	r.commit(key, el.Lease, "new", stampede.Accepted)
	if e := r.read(key); e.Freshness() != stampede.Fresh {
		t.Errorf("freshness %v, want fresh", e.Freshness())
	}
}

func TestExpireGivesAPersistedEntryAnEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, shared.Server(t).Addr(), patient)
	key := r.key()
	r.ok(r.Set(r.ctx(), key, value("old")))
	r.do("PERSIST", names(t, key).Entry)
	r.ok(r.Expire(r.ctx(), key))
	if e := r.read(key); e.Freshness() != stampede.Stale || e.Left > time.Minute {
		t.Errorf("%v, %v left", e.Freshness(), e.Left)
	}
}

func TestPersistedLeaseHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, shared.Server(t).Addr(), patient)
	key := r.key()
	r.lead(key)
	r.do("PERSIST", names(t, key).Lease)
	r.role(r.elect(key, stampede.Stamp{}), stampede.RoleLeader)
}

func TestWhatIsNoEntryOrLeaseCountsAsNone(t *testing.T) {
	t.Parallel()
	r := newRig(t, shared.Server(t).Addr(), patient)
	other := value("of another key")
	for name, put := range map[string]func(entry, lease string){
		"garbage":         func(entry, lease string) { r.do("SET", entry, "garbage", "PX", 60000); r.do("SET", lease, "x") },
		"an empty string": func(entry, _ string) { r.do("SET", entry, "", "PX", 60000) },
		"a list":          func(entry, lease string) { r.do("RPUSH", entry, "x"); r.do("RPUSH", lease, "x") },
		"version 2":       func(entry, _ string) { r.do("SET", entry, "hg\x02"+strings.Repeat("x", 100), "PX", 60000) },
		"other flags": func(entry, _ string) {
			r.do("SET", entry, "hg\x01\x04"+strings.Repeat("x", 100), "PX", 60000)
		},
		"another key's": func(entry, _ string) {
			key := r.key()
			r.ok(r.Set(r.ctx(), key, other))
			r.do("COPY", names(t, key).Entry, entry)
		},
	} {
		key := r.key()
		n := names(t, key)
		put(n.Entry, n.Lease)
		e := r.read(key)
		if e.Fault == nil || e.Freshness() != stampede.Dead {
			t.Errorf("%s: Read: %+v", name, e)
		}
		el := r.elect(key, stampede.Stamp{})
		r.role(el, stampede.RoleLeader)
		if el.Entry.Fault == nil && name != "a list" {
			t.Errorf("%s: Elect: %+v", name, el.Entry)
		}
		r.ok(r.Expire(r.ctx(), key))
		r.commit(key, r.lead(key), "good", stampede.Accepted)
		if got := r.read(key); string(got.Data) != "good" {
			t.Errorf("%s: not replaced: %+v", name, got)
		}
	}
}

func TestCommitSentTwiceIsAcceptedTwice(t *testing.T) {
	t.Parallel()
	r := newRig(t, shared.Server(t).Addr(), patient)
	key := r.key()
	lease := r.lead(key)
	r.commit(key, lease, "value", stampede.Accepted)
	r.commit(key, lease, "value", stampede.Accepted)
	r.ok(r.Set(r.ctx(), key, value("newer")))
	r.commit(key, lease, "value", stampede.Refused)
}

func TestUnstoredLoadsAreTold(t *testing.T) {
	t.Parallel()
	r := newRig(t, shared.Server(t).Addr(), patient)
	key := r.key()
	w := r.watch(key)
	for name, end := range map[string]func(lease stampede.Stamp) error{
		"fail": func(l stampede.Stamp) error { return r.fail(key, l, time.Millisecond) },
		"pass": func(l stampede.Stamp) error {
			return r.Release(r.ctx(), key, l, stampede.Pass{For: time.Millisecond})
		},
	} {
		lease := r.lead(key)
		r.ok(end(lease))
		if got := r.told(w); got.Unstored != lease {
			t.Errorf("%s: told %x, want %x", name, got.Unstored, lease)
		}
		r.ok(r.Delete(r.ctx(), key)) // the marker, should it still be there
		if got := r.told(w); got.Unstored != (stampede.Stamp{}) {
			t.Errorf("%s: Delete told %x", name, got.Unstored)
		}
	}
	r.ok(r.Release(r.ctx(), key, r.lead(key), stampede.Pass{}))
	if got := r.told(w); got.Unstored != (stampede.Stamp{}) {
		t.Errorf("release without a pass told %x", got.Unstored)
	}
}

// What a lease and a marker say of failures is what scripts of this version have written, or else nothing.
func TestGarbageInPlaceOfFailuresIsNone(t *testing.T) {
	t.Parallel()
	r := newRig(t, shared.Server(t).Addr(), patient)
	backoff := stampede.Backoff{First: time.Minute, Max: time.Hour}
	for rest, want := range map[string]time.Duration{
		"": time.Minute, "01": 2 * time.Minute, "05": 32 * time.Minute, "99": time.Hour,
		"0": time.Minute, "001": time.Minute, "-1": time.Minute, "nan": time.Minute, "1e": time.Minute, "\x00\xff": time.Minute,
	} {
		key := r.key()
		lease := r.lead(key)
		r.do("SET", names(t, key).Lease, "L"+string(lease[:])+rest, "PX", 60000)
		if h, err := r.Renew(r.ctx(), key, lease, time.Minute); h != stampede.Held {
			t.Errorf("%q: %v, %v", rest, h, err)
		}
		if d, err := r.Fail(r.ctx(), key, lease, backoff); d != want {
			t.Errorf("after %q: back-off of %v, %v, want %v", rest, d, err, want)
		}
	}
	for rest, want := range map[string]stampede.Role{
		"": stampede.RoleBackOff, "0120000": stampede.RoleBackOff, "0160000": stampede.RoleLeader,
		"0": stampede.RoleBackOff, "01": stampede.RoleBackOff, "01nan": stampede.RoleBackOff, "01-5": stampede.RoleBackOff,
		"01" + strings.Repeat("9", 400): stampede.RoleLeader,
	} {
		key := r.key()
		marker := stampede.NewStamp()
		r.do("SET", names(t, key).Lease, "F"+string(marker[:])+rest, "PX", 60000)
		el := r.elect(key, stampede.Stamp{})
		r.role(el, want)
		if el.Left > time.Minute {
			t.Errorf("%q: %v left", rest, el.Left)
		}
		if _, err := r.Fail(r.ctx(), key, marker, backoff); err != nil {
			t.Errorf("%q: %v", rest, err)
		}
		if want == stampede.RoleLeader {
			r.commit(key, el.Lease, "good", stampede.Accepted)
		}
	}
}

// A server whose memory is full writes nothing new. Whoever holds a lease must get rid of it all the same.
func TestFullServerStillTakesLeasesBack(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t, "--maxmemory-policy", "noeviction")
	r := newRig(t, srv.Addr(), patient)
	committed, failed, released, expired, deleted := r.key(), r.key(), r.key(), r.key(), r.key()
	leases := map[stampede.Key]stampede.Stamp{}
	for _, key := range []stampede.Key{expired, deleted} {
		r.ok(r.Set(r.ctx(), key, value("old")))
	}
	for _, key := range []stampede.Key{committed, failed, released} {
		leases[key] = r.lead(key)
	}
	w := r.watch(committed)
	r.do("CONFIG", "SET", "maxmemory", "1")

	r.commit(committed, leases[committed], "new", stampede.NotStored)
	if got := r.told(w); got.Unstored != leases[committed] {
		t.Errorf("told %x, want %x", got.Unstored, leases[committed])
	}
	r.role(r.elect(committed, stampede.Stamp{}), stampede.RoleBackOff)
	r.commit(committed, leases[committed], "new", stampede.Refused)

	r.ok(r.fail(failed, leases[failed], time.Minute))
	r.role(r.elect(failed, stampede.Stamp{}), stampede.RoleBackOff)
	r.ok(r.Release(r.ctx(), released, leases[released], stampede.Pass{For: time.Minute, Unshared: true}))
	if el := r.elect(released, stampede.Stamp{}); el.Role != stampede.RolePass || !el.Unshared {
		t.Errorf("after a release: %+v", el)
	}

	r.ok(r.Expire(r.ctx(), expired))
	if e := r.read(expired); e.Freshness() != stampede.Stale || !e.Expired {
		t.Errorf("after Expire: %+v", e)
	}
	r.ok(r.Delete(r.ctx(), deleted))
	if e := r.read(deleted); e.Stamp != (stampede.Stamp{}) {
		t.Errorf("after Delete: %+v", e)
	}

	fresh := r.key()
	if _, err := r.Elect(r.ctx(), fresh, stampede.Ballot{Token: stampede.NewToken(), Length: time.Minute}); err == nil {
		t.Error("a lease was stored in a full server")
	}
	if err := r.Set(r.ctx(), fresh, value("x")); err == nil || errors.Is(err, stampede.ErrOutcomeUnknown) {
		t.Errorf("Set: %v", err)
	}
	// None of this says that Redis cannot be read.
	for range 10 {
		_, _ = r.Elect(r.ctx(), fresh, stampede.Ballot{Token: stampede.NewToken(), Length: time.Minute})
	}
	r.read(expired)
	if n := r.Stats().Outages; n != 0 {
		t.Errorf("%d outages", n)
	}
	r.do("CONFIG", "SET", "maxmemory", "0")
	r.lead(fresh)
}

func TestServerThatRefusesWritesCanBeRead(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]struct{ on, off []any }{
		"read-only": {[]any{"REPLICAOF", "127.0.0.1", "1"}, []any{"REPLICAOF", "NO", "ONE"}},
		"no replicas": {
			[]any{"CONFIG", "SET", "min-replicas-to-write", "1"}, []any{"CONFIG", "SET", "min-replicas-to-write", "0"},
		},
	} {
		srv := redistest.Server(t)
		r := newRig(t, srv.Addr(), patient)
		key, cold := r.key(), r.key()
		r.ok(r.Set(r.ctx(), key, value("old")))
		lease := r.lead(cold)
		r.do(refuse.on...)

		for range 2 * 3 {
			r.commit(cold, lease, "new", stampede.NotStored)
			if _, err := r.Elect(r.ctx(), r.key(), stampede.Ballot{Token: stampede.NewToken(), Length: time.Minute}); err == nil {
				t.Errorf("%s: elected", name)
			}
			if err := r.Set(r.ctx(), key, value("new")); err == nil || errors.Is(err, stampede.ErrOutcomeUnknown) {
				t.Errorf("%s: Set: %v", name, err)
			}
			for step, err := range map[string]error{
				"Delete": r.Delete(r.ctx(), key), "Expire": r.Expire(r.ctx(), key), "Fail": r.fail(cold, lease, time.Second),
			} {
				if err == nil {
					t.Errorf("%s: %s succeeded", name, step)
				}
			}
		}
		if e := r.read(key); string(e.Data) != "old" {
			t.Errorf("%s: Read: %+v", name, e)
		}
		if n := r.Stats().Outages; n != 0 {
			t.Errorf("%s: %d outages", name, n)
		}
		r.do(refuse.off...)
		r.commit(cold, lease, "new", stampede.Accepted)
	}
}

// With stop-writes-on-bgsave-error, as by default, a failed snapshot makes Redis refuse writes.
func TestServerThatCannotPersistCanBeRead(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t, "--save", "3600 1", "--dbfilename", "dump.rdb")
	r := newRig(t, srv.Addr(), patient)
	key, cold := r.key(), r.key()
	r.ok(r.Set(r.ctx(), key, value("old")))
	lease := r.lead(cold)
	w := r.watch(cold)
	// A directory in the place of the snapshot makes writing it fail, even for root.
	dir := r.do("CONFIG", "GET", "dir")
	occupy(t, dir, "dump.rdb")
	r.do("BGSAVE")
	redistest.Eventually(t, 10*time.Second, func() bool {
		return strings.Contains(r.rdb.Info(r.ctx(), "persistence").Val(), "rdb_last_bgsave_status:err")
	})
	r.commit(cold, lease, "new", stampede.NotStored)
	if got := r.told(w); got.Unstored != lease {
		t.Errorf("told %x, want %x", got.Unstored, lease)
	}
	if e := r.read(key); string(e.Data) != "old" {
		t.Errorf("Read: %+v", e)
	}
	r.do("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
	r.commit(cold, lease, "new", stampede.Accepted)
}
