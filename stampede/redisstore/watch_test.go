package redisstore_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/herdgate/herdgate/internal/redistest"
	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/redisstore"
)

// channels returns how many channels somebody subscribes to.
func (r *rig) channels() int {
	r.T.Helper()
	all, err := r.rdb.PubSubChannels(r.ctx(), "*").Result()
	r.ok(err)
	return len(all)
}

// Whatever happens once Ready's channel was closed is told, however quickly watches come and go.
func TestNothingIsMissedOnceReady(t *testing.T) {
	t.Parallel()
	r := newRig(t, shared.Server(t).Addr(), patient)
	keys := []stampede.Key{r.key(), r.key()}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 100 {
				w := r.Watch(keys[i%2])
				select {
				case <-w.Ready():
				case <-time.After(5 * time.Second):
					t.Error("the subscription does not stand")
				}
				if err := r.Delete(t.Context(), keys[i%2]); err != nil {
					t.Error(err)
				}
				select {
				case <-w.C():
				case <-time.After(5 * time.Second):
					t.Error("nothing was told")
				}
				w.Close()
			}
		})
	}
	wg.Wait()
}

// redisson#4064, #2575, #3577: subscriptions leaked per lock.
func TestManyWatchesLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t)
	r := newRig(t, srv.Addr(), patient)
	watches := make([]stampede.Watch, 0, 1000)
	for i := range 100_000 {
		watches = append(watches, r.Watch(stampede.Key{Space: "many", Key: fmt.Sprint(i)}))
		if len(watches) == cap(watches) {
			r.stands(watches[i%1000])
			for _, w := range watches {
				w.Close()
				w.Close()
			}
			watches = watches[:0]
		}
	}
	redistest.Eventually(t, 10*time.Second, func() bool { return r.channels() == 0 })
	if n := r.Stats().Reconnects; n != 0 {
		t.Errorf("%d reconnects", n)
	}
	w := r.watch(r.key())
	if n := r.channels(); n != 1 {
		t.Errorf("%d channels", n)
	}
	w.Close()
}

// redis/go-redis#3806 and its kin: a subscription that is lost is seen to be.
func TestLostSubscriptionIsToldAndStandsAgain(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t)
	r := newRig(t, srv.Addr(), patient)
	var watches []stampede.Watch
	key := r.key()
	for range 100 {
		watches = append(watches, r.watch(key))
	}
	old := watches[0].Ready()
	r.do("CLIENT", "KILL", "TYPE", "pubsub")
	for _, w := range watches {
		if c := r.told(w); c.Unstored != (stampede.Stamp{}) {
			t.Errorf("told %x", c.Unstored)
		}
	}
	if watches[0].Ready() == old {
		t.Error("Ready is the same after the loss was told")
	}
	for _, w := range watches {
		r.stands(w)
	}
	r.ok(r.Delete(t.Context(), key))
	for _, w := range watches {
		r.told(w)
	}
}

// A connection on which nothing comes any more is not alive because nobody closed it.
func TestSilentSubscriptionIsGivenUp(t *testing.T) {
	t.Parallel()
	p := redistest.Proxy(t, shared.Server(t).Addr())
	r := newRigVia(t, shared.Server(t).Addr(), p.Addr(), nil)
	w := r.watch(r.key())
	p.BlackHole(true)
	r.told(w)
	select {
	case <-w.Ready():
		t.Error("stands in a black hole")
	default:
	}
	p.BlackHole(false)
	r.stands(w)
}

func TestWatchOfAnUnreachableServerStandsWhenItIsBack(t *testing.T) {
	t.Parallel()
	p := redistest.Proxy(t, shared.Server(t).Addr())
	must(t, p.RefuseNew(true))
	r := newRigVia(t, shared.Server(t).Addr(), p.Addr(), nil)
	began := time.Now()
	w := r.Watch(r.key())
	defer w.Close()
	if took := time.Since(began); took > slack {
		t.Errorf("Watch took %v", took)
	}
	select {
	case <-w.Ready():
		t.Fatal("stands without a server")
	case <-time.After(50 * time.Millisecond):
	}
	must(t, p.RefuseNew(false))
	r.stands(w)
}

func TestDropsNameTheKeysThatChange(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t)
	a, b := newRig(t, srv.Addr(), patient), newRig(t, srv.Addr(), patient)
	dropped := make(chan string, 10)
	stop := a.Drops("test", func(key string) { dropped <- key })
	redistest.Eventually(t, 5*time.Second, func() bool { return a.channels() == 1 })
	key := a.key()
	for step, do := range map[string]func() error{
		"Set":    func() error { return b.Set(t.Context(), key, value("x")) },
		"Expire": func() error { return b.Expire(t.Context(), key) },
		"Delete": func() error { return b.Delete(t.Context(), key) },
	} {
		must(t, do())
		select {
		case got := <-dropped:
			if got != key.Key {
				t.Errorf("%s: dropped %q, want %q", step, got, key.Key)
			}
		case <-time.After(5 * time.Second):
			t.Errorf("%s: nothing dropped", step)
		}
	}
	// A commit is no drop: pods keep what they have until its end.
	b.commit(key, b.lead(key), "x", stampede.Accepted)
	b.ok(b.Delete(t.Context(), stampede.Key{Space: "other", Key: "k"}))
	stop()
	stop()
	redistest.Eventually(t, 5*time.Second, func() bool { return a.channels() == 0 })
	if len(dropped) > 0 {
		t.Errorf("dropped %q", <-dropped)
	}
}

func TestUnstoredLoadIsNotLostAmongChanges(t *testing.T) {
	t.Parallel()
	r := newRig(t, shared.Server(t).Addr(), patient)
	key := r.key()
	w := r.watch(key)
	for range 20 {
		r.ok(r.Delete(t.Context(), key))
	}
	lease := r.lead(key)
	r.ok(r.fail(key, lease, time.Millisecond))
	for range 20 {
		r.ok(r.Delete(t.Context(), key))
	}
	end := r.watch(key) // on the same connection: all before has been received
	r.ok(r.Delete(t.Context(), key))
	r.told(end)
	for {
		select {
		case c := <-w.C():
			if c.Unstored == lease {
				return
			}
			continue
		default:
			t.Fatal("not told")
		}
	}
}

func TestClosedStoreWatchesNothing(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t)
	r := newRig(t, srv.Addr(), patient)
	w := r.watch(r.key())
	must(t, r.Store.Close())
	w.Close()
	late := r.Watch(r.key())
	select {
	case <-late.Ready():
		t.Error("stands")
	case <-late.C():
		t.Error("told")
	default:
	}
	late.Close()
	r.Drops("test", func(string) {})()
	redistest.Eventually(t, 5*time.Second, func() bool {
		return len(r.rdb.ClientList(t.Context()).Val()) > 0 && r.channels() == 0
	})
}

// One connection carries all subscriptions.
func TestSubscriptionsShareAConnection(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t)
	r := newRig(t, srv.Addr(), patient)
	for range 50 {
		r.watch(r.key())
	}
	defer r.Drops("test", func(string) {})()
	n, err := r.rdb.Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").Text()
	must(t, err)
	lines := 0
	for _, c := range n {
		if c == '\n' {
			lines++
		}
	}
	if lines != 1 {
		t.Errorf("%d connections:\n%s", lines, n)
	}
}

// What is small comes with the message that wakes its waiters; what is not is asked for.
func TestSmallEntryComesWithTheWakeUp(t *testing.T) {
	t.Parallel()
	srv := shared.Server(t)
	for name, c := range map[string]struct {
		wakeSize, size int
		comes          bool
	}{
		"default, small": {0, redisstore.DefaultWakeSize - 84, true},
		"default, large": {0, redisstore.DefaultWakeSize - 83, false},
		"larger":         {100_000, 50_000, true},
		"off":            {-1, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, srv.Addr(), &redisstore.Options{Timeout: patient.Timeout, WakeSize: c.wakeSize})
			key := r.key()
			w := r.watch(key)
			el, err := r.Elect(t.Context(), key, stampede.Ballot{Token: stampede.NewToken(), Length: time.Second})
			r.ok(err)
			e := value(strings.Repeat("x", c.size))
			_, err = r.Commit(t.Context(), key, el.Lease, e)
			r.ok(err)
			got := <-w.C()
			if (got.Stored != nil) != c.comes {
				t.Fatalf("told of %+v", got)
			}
			if read, err := r.Read(t.Context(), key); err != nil || c.comes && (string(got.Stored.Data) != string(read.Data) || got.Stored.Stamp != read.Stamp) {
				t.Errorf("told of %+v, stored is %+v, %v", got.Stored, read, err)
			}
		})
	}
}

// Whoever may publish may publish anything.
func TestWakeUpThatIsNoEntryIsAPlainOne(t *testing.T) {
	t.Parallel()
	r := newRig(t, shared.Server(t).Addr(), patient)
	key := r.key()
	w := r.watch(key)
	all, err := r.rdb.PubSubChannels(t.Context(), "*"+key.Key+"*").Result()
	r.ok(err)
	for _, payload := range []string{"v", "vx", "v" + strings.Repeat("\x00", 200), "vhg\x01" + strings.Repeat("x", 200), ""} {
		for _, channel := range all {
			r.ok(r.rdb.Publish(t.Context(), channel, payload).Err())
		}
		if got := <-w.C(); got != (stampede.Change{}) {
			t.Errorf("%q told %+v", payload, got)
		}
	}
}
