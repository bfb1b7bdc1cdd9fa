package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/internal/redisproc"
)

// do sends one command to a server, which must answer.
func do(t testing.TB, s *redisproc.Server, args ...string) any {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	reply, err := s.Do(ctx, args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return reply
}

// connected returns how many clients a server has, and a line about each, without the one that asks, replicas and sentinels.
func connected(t testing.TB, s *redisproc.Server) (n int, clients string) {
	t.Helper()
	list, _ := do(t, s, "CLIENT", "LIST").(string)
	for line := range strings.Lines(list) {
		if strings.Contains(line, "cmd=client|list") && !strings.Contains(line, " name=pod") ||
			strings.Contains(line, " name=sentinel-") || strings.Contains(line, "cmd=replconf") || strings.Contains(line, "flags=M") || strings.Contains(line, "flags=S") {
			continue
		}
		n++
		clients += line
	}
	return n, clients
}

// subscribed returns the channels of a server and how many clients listen to each.
func subscribed(t testing.TB, s *redisproc.Server) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	channels, _ := do(t, s, "PUBSUB", "CHANNELS").([]any)
	for _, c := range channels {
		name := fmt.Sprint(c)
		if strings.HasPrefix(name, "__") { // of sentinels
			continue
		}
		counts, _ := do(t, s, "PUBSUB", "NUMSUB", name).([]any)
		if len(counts) == 2 {
			all[name], _ = counts[1].(int64)
		}
	}
	return all
}

// leases watches the leases that a fleet holds.
type leases struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu   sync.Mutex           // protects what follows
	seen map[string]time.Time // by key and value: when it was there first
	old  map[string]time.Duration
}

// watchLeases looks for leases on a server until it is stopped.
func watchLeases(s *redisproc.Server) *leases {
	ctx, cancel := context.WithCancel(context.Background())
	l := &leases{cancel: cancel, seen: map[string]time.Time{}, old: map[string]time.Duration{}}
	l.wg.Go(func() {
		rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), ClientName: "leases"})
		defer rdb.Close()
		for pause(ctx, beat) {
			l.look(ctx, rdb)
		}
	})
	return l
}

func (l *leases) stop() {
	l.cancel()
	l.wg.Wait()
}

func (l *leases) look(ctx context.Context, rdb *redis.Client) {
	keys, err := rdb.Keys(ctx, "*:l:*").Result()
	if err != nil || len(keys) == 0 {
		return
	}
	values, err := rdb.MGet(ctx, keys...).Result()
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, v := range values {
		text, _ := v.(string)
		if !strings.HasPrefix(text, "L") { // a marker, or gone
			continue
		}
		id := keys[i] + " " + text
		if _, ok := l.seen[id]; !ok {
			l.seen[id] = time.Now()
		}
		l.old[keys[i]] = max(l.old[keys[i]], time.Since(l.seen[id]))
	}
}

// oldest returns the lease that was there for the longest time.
func (l *leases) oldest() (key string, age time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, d := range l.old {
		if d > age {
			key, age = k, d
		}
	}
	return key, age
}

// held returns the leases on a server.
func held(t testing.TB, s *redisproc.Server) (keys []string) {
	t.Helper()
	all, _ := do(t, s, "KEYS", "*:l:*").([]any)
	for _, k := range all {
		if v, _ := do(t, s, "GET", fmt.Sprint(k)).(string); strings.HasPrefix(v, "L") {
			keys = append(keys, fmt.Sprint(k))
		}
	}
	return keys
}
