package contender

import (
	"context"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
)

var redSync = Contender{
	Name: "redsync",
	About: "GET; on a miss, once per pod by singleflight: LockContext with its default 32 tries, 50 to 250 ms apart, and expiry = load timeout, as nothing renews it; " +
		"GET again; load, SET, Unlock. One Redis. Without a lock for an error of Redis: load.",
	Module: "github.com/go-redsync/redsync/v4",
	Kind:   Elected,
	Open: func(e *Env) (Cache, error) {
		p, f := newPlain(e), &flights{Env: e}
		rs := redsync.New(goredis.NewPool(p.rdb))
		return locked(p, f, func(ctx context.Context, key string) (func(context.Context), error) {
			m := rs.NewMutex(key+":lock", redsync.WithExpiry(e.LoadTimeout))
			if err := m.LockContext(ctx); err != nil {
				return nil, err
			}
			return func(ctx context.Context) { _, _ = m.UnlockContext(ctx) }, nil
		}), nil
	},
}
