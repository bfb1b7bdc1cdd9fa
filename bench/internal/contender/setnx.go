package contender

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

var setNX = Contender{
	Name: "setnx-poll",
	About: "the tutorials' lock, each caller for itself: GET; on a miss SET lock NX PX = load timeout; who got it loads, SETs and deletes the lock by " +
		"a script that compares; the others sleep 50 ms and start again. A Redis that does not answer is a miss without a lock.",
	Kind: Elected,
	Open: func(e *Env) (Cache, error) {
		p := newPlain(e)
		return cache{
			get:   func(ctx context.Context, key string) ([]byte, error) { return lockAndPoll(ctx, p, key) },
			close: p.rdb.Close,
		}, nil
	},
}

var deleteIfMine = redis.NewScript(`if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`)

func lockAndPoll(ctx context.Context, p *plain, key string) ([]byte, error) {
	lock, token := key+":lock", strconv.FormatUint(rand.Uint64(), 36)
	for {
		if v, ok := p.read(ctx, key); ok {
			return v, nil
		}
		mine, err := p.rdb.SetNX(ctx, lock, token, p.LoadTimeout).Result()
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil:
			return p.Load(ctx, key)
		case mine:
			v, err := p.fill(ctx, key)
			_ = deleteIfMine.Run(ctx, p.rdb, []string{lock}, token).Err()
			return v, err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
