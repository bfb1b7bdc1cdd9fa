package contender

import "context"

var inPod = Contender{
	Name: "singleflight",
	About: "x/sync/singleflight around GET, load, SET, so that callers of a pod share reads as well. DoChan, so that callers can leave; " +
		"the load does not end with its caller. A Redis that does not answer is a miss.",
	Module: "golang.org/x/sync",
	Open: func(e *Env) (Cache, error) {
		p, f := newPlain(e), &flights{Env: e}
		return cache{
			get: func(ctx context.Context, key string) ([]byte, error) {
				return f.do(ctx, key, func(ctx context.Context) ([]byte, error) {
					if v, ok := p.read(ctx, key); ok {
						return v, nil
					}
					return p.fill(ctx, key)
				})
			},
			close: p.rdb.Close,
		}, nil
	},
}
