package contender

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"
)

// plain is GET and SET, which many contenders are made of.
type plain struct {
	*Env
	rdb *redis.Client
}

func newPlain(e *Env) *plain { return &plain{e, e.Redis()} }

// read returns what is stored; ok is false when there is nothing, or no answer. So all that is made of
// plain takes a Redis in trouble for a miss, which is the kindest to its callers.
func (p *plain) read(ctx context.Context, key string) (v []byte, ok bool) {
	v, err := p.rdb.Get(ctx, key).Bytes()
	return v, err == nil
}

// fill loads and stores. That a value could not be stored is no error.
func (p *plain) fill(ctx context.Context, key string) ([]byte, error) {
	v, err := p.Load(ctx, key)
	if err == nil {
		_ = p.rdb.Set(ctx, key, v, p.TTL).Err()
	}
	return v, err
}

// flights lets the callers of a pod share what they wait for. The work does not end with the caller who
// happened to start it, and callers leave when their ctx ends.
type flights struct {
	*Env
	group singleflight.Group
}

func (f *flights) do(ctx context.Context, key string, fn func(ctx context.Context) ([]byte, error)) ([]byte, error) {
	shared := f.group.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*f.LoadTimeout)
		defer cancel()
		return fn(ctx)
	})
	select {
	case r := <-shared:
		v, _ := r.Val.([]byte)
		return v, r.Err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

var errNoValue = errors.New("contender: no value")
