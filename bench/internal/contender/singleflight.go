package contender

import (
	"context"

	"golang.org/x/sync/singleflight"
)

var inPod = Contender{
	Name: "singleflight",
	About: "x/sync/singleflight's Do around GET, load, SET, so that callers of a pod share reads as well. The load does not end with its caller. " +
		"A Redis that does not answer is a miss.",
	Module: "golang.org/x/sync",
	Open: func(e *Env) (Cache, error) {
		p := newPlain(e)
		var group singleflight.Group
		return cache{
			get: func(ctx context.Context, key string) ([]byte, error) {
				shared, err, _ := group.Do(key, func() (any, error) {
					if v, ok := p.read(ctx, key); ok {
						return v, nil
					}
					ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.LoadTimeout)
					defer cancel()
					return p.fill(ctx, key)
				})
				v, _ := shared.([]byte)
				return v, err
			},
			close: p.rdb.Close,
		}, nil
	},
}
