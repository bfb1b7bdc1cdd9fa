package contender_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/bench/internal/contender"
	"github.com/herdgate/herdgate/bench/internal/measure"
	"github.com/herdgate/herdgate/internal/redistest"
)

var shared redistest.Shared

func TestMain(m *testing.M) { os.Exit(shared.Around(m).Run()) }

func TestEveryContenderLoadsOnceAndServesWhatWasLoaded(t *testing.T) {
	server := shared.Server(t)
	names := make(map[string]bool)
	for _, c := range contender.All() {
		if c.Open == nil {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			if names[c.Name] || c.About == "" {
				t.Error("its name must be its own, and it must say what it is")
			}
			names[c.Name] = true
			source := new(measure.Source)
			var wires []*measure.Wire
			open := func(pod int) contender.Cache {
				w := new(measure.Wire)
				wires = append(wires, w)
				cache, err := c.Open(&contender.Env{
					Params: contender.Params{TTL: time.Minute, StaleFor: time.Minute, LoadTimeout: 3 * time.Second, Entries: 10},
					Addr:   server.Addr(),
					Dial:   w.Dial,
					Load:   func(ctx context.Context, key string) ([]byte, error) { return source.Load(ctx, pod, key, 1024) },
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := cache.Close(); err != nil {
						t.Error(err)
					}
				})
				return cache
			}
			key := rand.Text()
			get := func(cache contender.Cache) []byte {
				v, err := cache.Get(t.Context(), key)
				if err != nil {
					t.Fatal(err)
				}
				if measure.Age(v) < 0 || len(v) != 1024 {
					t.Fatalf("%d bytes, %v old", len(v), measure.Age(v))
				}
				return v
			}
			one, other := open(0), open(1)
			v := get(one)
			if !bytes.Equal(v, get(one)) {
				t.Error("the second Get returned another value")
			}
			if n := len(source.Counted().Loads); n != 1 {
				t.Errorf("%d loads by one pod", n)
			}
			if c.Kind != contender.Memory { // some write to Redis after they have answered
				for end := time.Now().Add(5 * time.Second); !stored(t, server.Addr(), key) && time.Now().Before(end); {
					runtime.Gosched()
				}
			}
			if shared := bytes.Equal(v, get(other)); shared == (c.Kind == contender.Memory) {
				t.Errorf("another pod has the same value: %v", shared)
			}
			for i, w := range wires {
				asked := func() bool { return w.Sent().Requests > 0 }
				if c.Kind != contender.Memory { // a client may answer before its writer has come back from writing
					for end := time.Now().Add(5 * time.Second); !asked() && time.Now().Before(end); {
						runtime.Gosched()
					}
				}
				if asked() == (c.Kind == contender.Memory) {
					t.Errorf("pod %d asked Redis: %v", i, asked())
				}
			}
		})
	}
}

// stored says whether Redis has something under a name with key in it.
func stored(t *testing.T, addr, key string) bool {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = rdb.Close() }()
	names, err := rdb.Keys(t.Context(), "*"+key+"*").Result()
	return err == nil && len(names) > 0
}

// Those that mean to load once do so in a quiet moment; of the others each pod loads, and of none each caller.
func TestContendersOfAKindDoWhatTheKindSays(t *testing.T) {
	server := shared.Server(t)
	for _, c := range contender.All() {
		if c.Kind != contender.Elected {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			source := &measure.Source{Took: 100 * time.Millisecond}
			key := rand.Text()
			var caches []contender.Cache
			for pod := range 3 {
				cache, err := c.Open(&contender.Env{
					Params: contender.Params{TTL: time.Minute, StaleFor: time.Minute, LoadTimeout: 3 * time.Second},
					Addr:   server.Addr(),
					Dial:   new(measure.Wire).Dial,
					Load:   func(ctx context.Context, key string) ([]byte, error) { return source.Load(ctx, pod, key, 64) },
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = cache.Close() })
				if _, err := cache.Get(t.Context(), key+"-warm"); err != nil {
					t.Fatal(err)
				}
				caches = append(caches, cache)
			}
			source.Reset() // from now on loads take their time
			errs := make(chan error)
			for _, cache := range caches {
				for range 4 {
					go func() {
						ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
						defer cancel()
						_, err := cache.Get(ctx, key)
						errs <- err
					}()
				}
			}
			for range 3 * 4 {
				if err := <-errs; err != nil {
					t.Error(err)
				}
			}
			// SET NX after a GET that missed can come after the other's SET: a second load, one after the other.
			if n := source.Counted().Most; n != 1 {
				t.Errorf("%d loads at once", n)
			}
		})
	}
}
