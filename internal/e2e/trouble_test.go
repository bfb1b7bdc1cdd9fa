package e2e_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/internal/redisproc"
	"github.com/herdgate/herdgate/internal/redistest"
	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/redisstore"
)

// trouble is something that happens to Redis, and what pods may make of it.
type trouble struct {
	name  string
	start func(t *testing.T) *rig

	changes wants
	// losesData: Redis comes back without what it had, so values are loaded again.
	losesData bool
}

// rig is a Redis that can be brought into trouble.
type rig struct {
	connect func(name string) redis.UniversalClient // a user's client, in its default settings
	store   redisstore.Options
	begin   func() error
	again   func() // if set, what is done over and over while the trouble lasts
	heal    func() error
	masters func() []*redisproc.Server // once it is healed
}

const (
	podsInTrouble = 3
	calm          = 1200 * time.Millisecond // before the trouble
	troubled      = 2 * time.Second
	settled       = 400 * time.Millisecond // until a trouble that comes with force has reached everybody
	afterwards    = 400 * time.Millisecond
	loadTook      = 20 * time.Millisecond

	copyBudget  = 25 * time.Millisecond // the defaults
	storeBudget = 250 * time.Millisecond
	leaseLength = time.Second
)

// run is the life of a fleet that meets a trouble.
func (tr *trouble) run(t *testing.T) {
	r := tr.start(t)
	src := newSource(loadTook)
	src.ttl = ttlOf
	base := map[string]int{}
	for _, s := range r.masters() {
		base[s.Addr()], _ = connected(t, s)
	}
	fo := new(follows)
	pods := make([]*pod, podsInTrouble)
	for i := range pods {
		name := fmt.Sprintf("pod%d", i)
		pods[i] = newPod(t, name, r.connect(name), r.store, stampede.Options{
			Policy:   stampede.Policy{StaleFor: time.Minute, NotFoundTTL: staleTTL, Beta: -1},
			Observer: fo.of(name),
		})
	}
	c := startCallers(t, pods, src)
	ch := startChangers(t, pods)
	allSeen(t, pods)
	began := time.Now()
	wait(calm)

	broken := time.Now()
	must(t, r.begin())
	reached := time.Now().Add(settled)
	tr.last(r)
	healing := time.Now()
	must(t, r.heal())
	healed := time.Now()
	var watches []*leases
	for _, s := range r.masters() {
		l := watchLeases(s)
		t.Cleanup(l.stop)
		watches = append(watches, l)
	}
	back := recovery(t, c, pods, healed)
	wait(afterwards)
	c.stop()
	ch.stop()
	end := time.Now()

	j := judge{t: t, tr: tr, c: c, fo: fo, src: src, began: began, broken: broken, healing: healing, healed: healed, end: end}
	j.calls()
	j.loads()
	ch.judge(t, tr.changes, reached, healing)
	var oldest time.Duration
	for _, l := range watches {
		key, age := l.oldest()
		oldest = max(oldest, age)
		if age > leaseLength+250*time.Millisecond+3*machine.late(healed, end) && !machine.busy(healed, end) {
			t.Errorf("the lease %q was there for %v", key, age)
		}
		l.stop()
	}
	j.report(back, oldest)
	tr.leavesNothing(t, r, pods, base)
}

// allSeen waits until each pod has read each hot and stale key, and so has a copy of it.
func allSeen(t *testing.T, pods []*pod) {
	t.Helper()
	begun := time.Now()
	for _, p := range pods {
		for _, kind := range []string{hot, stale} {
			for i := range keysOfAKind {
				key := fmt.Sprintf("%s%d", kind, i)
				for {
					_, ok, err := p.guard.Peek(t.Context(), key)
					if ok && err == nil {
						break
					}
					switch now := time.Now(); {
					case now.Sub(begun) < 30*time.Second, machine.busy(begun, now) && now.Sub(begun) < 2*time.Minute:
						wait(beat)
					default:
						t.Fatalf("%s has not read %s after %v: %v", p.name, key, now.Sub(begun), err)
					}
				}
			}
		}
	}
}

// last lets the trouble last.
func (tr *trouble) last(r *rig) {
	until := time.Now().Add(troubled)
	for time.Now().Before(until) {
		if r.again != nil {
			r.again()
		}
		wait(50 * time.Millisecond)
	}
}

// leavesNothing looks at what is left when nobody calls any more, and when the pods have ended.
func (tr *trouble) leavesNothing(t *testing.T, r *rig, pods []*pod, base map[string]int) {
	t.Helper()
	for _, s := range r.masters() {
		redistest.Eventually(t, 2*leaseLength+tolerance(time.Now()), func() bool { return len(held(t, s)) == 0 })
	}
	for _, p := range pods {
		p.close(t)
	}
	for _, s := range r.masters() {
		for closed := time.Now(); ; {
			n, clients := connected(t, s)
			subs := subscribed(t, s)
			if n <= base[s.Addr()] && len(subs) == 0 {
				break
			}
			if tooLong(closed, 3*time.Second) {
				t.Errorf("the pods have ended, and %s still has %d clients (%d before) and the subscriptions %v:\n%s",
					s.Addr(), n, base[s.Addr()], subs, clients)
				break
			}
			wait(10 * time.Millisecond)
		}
	}
}

// wait lets real time pass while others are at work.
func wait(d time.Duration) { pause(context.Background(), d) }
