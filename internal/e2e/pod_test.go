package e2e_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/redisstore"
)

// pod is a guard with a store and a client of its own, as a process of a fleet has them.
type pod struct {
	name  string
	rdb   redis.UniversalClient
	store *redisstore.Store
	guard *stampede.Guard[string]

	mu   sync.Mutex // protects down
	down bool       // what the store's breaker told last

	once sync.Once
}

// newPod starts a pod that ends with t. The client is the user's: the store only takes its options.
func newPod(t testing.TB, name string, rdb redis.UniversalClient, so redisstore.Options, o stampede.Options) *pod {
	t.Helper()
	p := &pod{name: name, rdb: rdb}
	so.Logger, o.Logger = quiet(), quiet()
	so.Observer = stampede.ObserverFunc(func(e stampede.Event) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.down = e.Kind == stampede.EventStoreDown
	})
	store, err := redisstore.New(rdb, &so)
	if err != nil {
		t.Fatal(err)
	}
	p.store = store
	if o.Name == "" {
		o.Name = "e2e"
	}
	if p.guard, err = stampede.New[string](store, &o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.close(t) })
	return p
}

// newPods starts n pods on a single server in go-redis' default settings.
func newPods(t testing.TB, n int, addr string, o stampede.Options) []*pod {
	t.Helper()
	all := make([]*pod, n)
	for i := range all {
		name := "pod" + string(rune('0'+i))
		all[i] = newPod(t, name, redis.NewClient(&redis.Options{Addr: addr, ClientName: name}), redisstore.Options{}, o)
	}
	return all
}

func (p *pod) isDown() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.down
}

// close ends the pod. A load that still runs fails the test.
func (p *pod) close(t testing.TB) {
	t.Helper()
	p.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := p.guard.Close(ctx); err != nil {
			t.Errorf("%s: closing the guard: %v", p.name, err)
		}
		if err := p.store.Close(); err != nil {
			t.Errorf("%s: closing the store: %v", p.name, err)
		}
		_ = p.rdb.Close()
	})
}

// must ends the test with what went wrong in its set-up.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
