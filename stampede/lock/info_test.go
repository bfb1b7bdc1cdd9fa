package lock_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/internal/redistest"
	"github.com/herdgate/herdgate/stampede/lock"
)

// Without the right to run INFO nothing would tell that a server was restarted with old numbers: there are
// none then.
func TestRedlockGivesNoFencesWithoutTheRightToRunInfo(t *testing.T) {
	t.Parallel()
	clients := make([]redis.UniversalClient, 3)
	for i := range clients {
		srv := redistest.Server(t)
		admin := redis.NewClient(&redis.Options{Addr: srv.Addr()})
		must(t, admin.Do(t.Context(), "ACL", "SETUSER", "app", "on", ">secret", "allkeys", "allchannels", "+@all", "-info").Err())
		must(t, admin.Close())
		rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), Username: "app", Password: "secret"})
		t.Cleanup(func() { _ = rdb.Close() })
		clients[i] = rdb
	}
	lk, err := lock.New(&lock.Options{Fences: true}, clients...)
	must(t, err)
	t.Cleanup(func() { must(t, lk.Close()) })
	only(t, lk.InitFences(t.Context()), lock.ErrNoFences)
	only(t, lk.SeedFences(t.Context(), 1), lock.ErrNoFences)
	_, err = lk.TryAcquire(t.Context(), "job", time.Minute)
	only(t, err, lock.ErrNoFences)
}
