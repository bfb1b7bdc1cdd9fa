package stampedetest

import (
	"context"
	"encoding/hex"
	"testing"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

const (
	long   = time.Hour              // what must not end during a test
	short  = 150 * time.Millisecond // what must
	grace  = 10 * time.Second       // for what happens as soon as it can
	jitter = 10 * time.Millisecond  // between the clocks of the test and the store
)

// check is one run of one storeTest: the store, and steps that fail the test when they fail.
type check struct {
	testing.TB
	store stampede.Store
	cfg   *config
	space string        // of all keys of this run
	moved time.Duration // what cfg.advance was asked for
}

func newCheck(t testing.TB, store stampede.Store, cfg *config) *check {
	token := stampede.NewToken()
	return &check{TB: t, store: store, cfg: cfg, space: "suite-" + hex.EncodeToString(token[:4])}
}

func (c *check) key(k string) stampede.Key { return stampede.Key{Space: c.space, Key: k} }

// step calls fn with a deadline, as a guard does.
func (c *check) step(what string, fn func(ctx context.Context) error) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), grace)
	defer cancel()
	if err := fn(ctx); err != nil {
		c.Fatalf("%s: %v", what, err)
	}
}

func (c *check) read(k stampede.Key) (e stampede.Entry) {
	c.Helper()
	c.step("Read", func(ctx context.Context) (err error) { e, err = c.store.Read(ctx, k); return })
	return e
}

func (c *check) vote(k stampede.Key, b stampede.Ballot) (el stampede.Election) {
	c.Helper()
	c.step("Elect", func(ctx context.Context) (err error) { el, err = c.store.Elect(ctx, k, b); return })
	return el
}

// elect stands for election with a new token, for a long lease.
func (c *check) elect(k stampede.Key, seen stampede.Stamp) stampede.Election {
	c.Helper()
	return c.vote(k, stampede.Ballot{Token: stampede.NewToken(), Length: long, Seen: seen})
}

// lead stands for election, replacing whatever is stored, and must win.
func (c *check) lead(k stampede.Key) stampede.Stamp {
	c.Helper()
	return c.leadFor(k, long)
}

func (c *check) leadFor(k stampede.Key, length time.Duration) stampede.Stamp {
	c.Helper()
	el := c.vote(k, stampede.Ballot{Token: stampede.NewToken(), Length: length, Seen: c.read(k).Stamp})
	c.role(el, stampede.RoleLeader)
	if el.Lease == (stampede.Stamp{}) {
		c.Fatal("the leader's lease has no stamp")
	}
	return el.Lease
}

func (c *check) commit(k stampede.Key, lease stampede.Stamp, e stampede.Entry) (v stampede.Verdict) {
	c.Helper()
	c.step("Commit", func(ctx context.Context) (err error) { v, err = c.store.Commit(ctx, k, lease, e); return })
	return v
}

// accept commits and demands Accepted, refuse Refused.
func (c *check) accept(k stampede.Key, lease stampede.Stamp, e stampede.Entry) {
	c.Helper()
	if v := c.commit(k, lease, e); v != stampede.Accepted {
		c.Fatalf("Commit: verdict %s, want %s", verdictName(v), verdictName(stampede.Accepted))
	}
}

func (c *check) refuse(k stampede.Key, lease stampede.Stamp, e stampede.Entry) {
	c.Helper()
	if v := c.commit(k, lease, e); v != stampede.Refused {
		c.Fatalf("Commit: verdict %s, want %s", verdictName(v), verdictName(stampede.Refused))
	}
}

// renew renews and demands want.
func (c *check) renew(k stampede.Key, lease stampede.Stamp, length time.Duration, want stampede.Holding) {
	c.Helper()
	var got stampede.Holding
	c.step("Renew", func(ctx context.Context) (err error) { got, err = c.store.Renew(ctx, k, lease, length); return })
	if got != want {
		c.Fatalf("Renew: %s, want %s", holdingName(got), holdingName(want))
	}
}

// fail ends a load that failed; others back off for so long.
func (c *check) fail(k stampede.Key, lease stampede.Stamp, backoff time.Duration) {
	c.Helper()
	c.failed(k, lease, stampede.Backoff{First: backoff})
}

// failed ends a load that failed, and returns for how long others back off.
func (c *check) failed(k stampede.Key, lease stampede.Stamp, backoff stampede.Backoff) (d time.Duration) {
	c.Helper()
	c.step("Fail", func(ctx context.Context) (err error) { d, err = c.store.Fail(ctx, k, lease, backoff); return })
	return d
}

func (c *check) release(k stampede.Key, lease stampede.Stamp, pass stampede.Pass) {
	c.Helper()
	c.step("Release", func(ctx context.Context) error { return c.store.Release(ctx, k, lease, pass) })
}

func (c *check) set(k stampede.Key, e stampede.Entry) {
	c.Helper()
	c.step("Set", func(ctx context.Context) error { return c.store.Set(ctx, k, e) })
}

func (c *check) delete(ks ...stampede.Key) {
	c.Helper()
	c.step("Delete", func(ctx context.Context) error { return c.store.Delete(ctx, ks...) })
}

func (c *check) expire(ks ...stampede.Key) {
	c.Helper()
	c.step("Expire", func(ctx context.Context) error { return c.store.Expire(ctx, ks...) })
}

// entry makes an entry that stays fresh for long, and is stale for long after that.
func (c *check) entry(payload string) stampede.Entry {
	e := stampede.Entry{TTL: long, StaleFor: long}
	if c.store.Encoded() {
		e.Data = []byte(payload)
	} else {
		e.Value = payload
	}
	return e
}

// stale puts a stale entry in the store.
func (c *check) stale(k stampede.Key, payload string) stampede.Entry {
	c.Helper()
	c.set(k, c.entry(payload))
	c.expire(k)
	e := c.read(k)
	if e.Freshness() != stampede.Stale {
		c.Fatalf("the entry is %s after Expire, want stale", freshnessName(e.Freshness()))
	}
	return e
}

func (c *check) payload(e stampede.Entry) string {
	if c.store.Encoded() {
		return string(e.Data)
	}
	s, _ := e.Value.(string)
	return s
}

// holds demands that payload is stored for k, and returns the entry.
func (c *check) holds(k stampede.Key, payload string) stampede.Entry {
	c.Helper()
	e := c.read(k)
	c.is(e, payload)
	return e
}

// is demands that e carries payload.
func (c *check) is(e stampede.Entry, payload string) {
	c.Helper()
	if e.Stamp == (stampede.Stamp{}) {
		c.Fatalf("nothing is stored, want %.40q", payload)
	}
	if got := c.payload(e); got != payload {
		c.Fatalf("the entry carries %.40q, want %.40q", got, payload)
	}
}

// none demands that nothing is stored for k.
func (c *check) none(k stampede.Key) {
	c.Helper()
	c.zero(c.read(k))
}

// zero demands that e says that nothing is stored.
func (c *check) zero(e stampede.Entry) {
	c.Helper()
	switch {
	case e.Stamp != (stampede.Stamp{}):
		c.Fatalf("an entry is stored (%.40q), want none", c.payload(e))
	case e.Fault != nil:
		c.Fatalf("a miss has a fault: %v", e.Fault)
	case e.Data != nil || e.Value != nil || e.NotFound || e.Expired || e.Type != 0 || e.Left != 0 || e.TTL != 0:
		c.Fatalf("a miss is not the zero Entry: %+v", e)
	}
}

// role demands the outcome of an election.
func (c *check) role(el stampede.Election, want stampede.Role) {
	c.Helper()
	if el.Role != want {
		c.Fatalf("Elect: %s, want %s", roleName(el.Role), roleName(want))
	}
}

// free demands that nobody holds the lease of k and that there is no marker.
func (c *check) free(k stampede.Key) {
	c.Helper()
	lease := c.lead(k)
	c.release(k, lease, stampede.Pass{})
}

// taken demands that lease is held, and followed by others.
func (c *check) taken(k stampede.Key, lease stampede.Stamp) {
	c.Helper()
	el := c.elect(k, c.read(k).Stamp)
	c.role(el, stampede.RoleFollower)
	if el.Lease != lease {
		c.Fatal("followers are told of another lease than the leader's")
	}
	c.renew(k, lease, long, stampede.Held)
}

func freshnessName(f stampede.Freshness) string {
	return name(f, map[stampede.Freshness]string{
		stampede.Dead: "dead", stampede.OnlyIfError: "only-if-error", stampede.Stale: "stale", stampede.Fresh: "fresh",
	})
}

func roleName(r stampede.Role) string {
	return name(r, map[stampede.Role]string{
		stampede.RoleFresh: "RoleFresh", stampede.RoleLeader: "RoleLeader", stampede.RoleBackOff: "RoleBackOff",
		stampede.RolePass: "RolePass", stampede.RoleFollower: "RoleFollower",
	})
}

func verdictName(v stampede.Verdict) string {
	return name(v, map[stampede.Verdict]string{
		stampede.Unknown: "Unknown", stampede.Accepted: "Accepted", stampede.Refused: "Refused", stampede.NotStored: "NotStored",
	})
}

func holdingName(h stampede.Holding) string {
	return name(h, map[stampede.Holding]string{
		stampede.Held: "Held", stampede.Absent: "Absent", stampede.Taken: "Taken",
	})
}

func name[T comparable](v T, names map[T]string) string {
	if s, ok := names[v]; ok {
		return s
	}
	return "an unknown answer"
}
