package contender

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

var rawRueidis = Contender{
	Name:   "raw GET rueidis",
	About:  "rueidis, which pipelines by itself, without client-side caching, in its default settings.",
	Module: "github.com/redis/rueidis",
	Kind:   Floor,
	Open: func(e *Env) (Cache, error) {
		client, err := rueidis.NewClient(rueidisOptions(e))
		if err != nil {
			return nil, err
		}
		return cache{
			get: func(ctx context.Context, key string) ([]byte, error) {
				v, err := client.Do(ctx, client.B().Get().Key(key).Build()).AsBytes()
				if !rueidis.IsRedisNil(err) {
					return v, err
				}
				if v, err = e.Load(ctx, key); err != nil {
					return nil, err
				}
				return v, client.Do(ctx, client.B().Set().Key(key).Value(rueidis.BinaryString(v)).Px(time.Hour).Build()).Error()
			},
			close: func() error { client.Close(); return nil },
		}, nil
	},
}

var placeholder = Contender{
	Name: "rueidis-placeholder",
	About: "a lock in the value's own place, in the manner of rueidisaside: client-side cached GET; on a miss SET placeholder NX PX = load timeout; once per pod by singleflight; load; a script puts the " +
		"value in the placeholder's place; the others wait for the invalidation. One connection (PipelineMultiplex -1). Without Redis: an error.",
	Module: "github.com/redis/rueidis",
	Kind:   Elected,
	Open: func(e *Env) (Cache, error) {
		p := &placeholders{Env: e, flights: flights{Env: e}, waits: make(map[string]chan struct{}), mark: "P" + strconv.FormatUint(rand.Uint64(), 36)}
		o := rueidisOptions(e)
		o.PipelineMultiplex = -1
		o.OnInvalidations = p.invalidated
		var err error
		if p.client, err = rueidis.NewClient(o); err != nil {
			return nil, err
		}
		return cache{get: p.get, close: func() error { p.client.Close(); return nil }}, nil
	},
}

func rueidisOptions(e *Env) rueidis.ClientOption {
	o := rueidis.ClientOption{
		InitAddress:       []string{e.Addr},
		ForceSingleClient: true,
		DialCtxFn: func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return e.Dial(ctx, "tcp", addr)
		},
	}
	o.ConnWriteTimeout = e.ClientTimeout // of answers, too
	o.Dialer.Timeout = e.ClientTimeout
	return o
}

// placeholders stores a value as "V" and the value, and marks a key that is being loaded with "P" and a
// number of its own.
type placeholders struct {
	*Env
	flights flights
	client  rueidis.Client
	mark    string

	mu    sync.Mutex               // protects waits
	waits map[string]chan struct{} // closed when the key changes
}

var replaceMark = rueidis.NewLuaScript(
	`if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("SET", KEYS[1], ARGV[2], "PX", ARGV[3]) end return 0`)

func (p *placeholders) get(ctx context.Context, key string) ([]byte, error) {
	for {
		changed := p.changed(key)
		v, err := p.client.DoCache(ctx, p.client.B().Get().Key(key).Cache(), p.TTL).AsBytes()
		switch {
		case rueidis.IsRedisNil(err):
			v, err := p.flights.do(ctx, key, func(ctx context.Context) ([]byte, error) { return p.elect(ctx, key) })
			if !errors.Is(err, errLate) {
				return v, err
			}
		case err != nil:
			return nil, err
		case len(v) > 0 && v[0] == 'V':
			return v[1:], nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// errLate: another pod was first.
var errLate = errors.New("contender: another pod loads")

func (p *placeholders) elect(ctx context.Context, key string) ([]byte, error) {
	err := p.client.Do(ctx, p.client.B().Set().Key(key).Value(p.mark).Nx().Px(p.LoadTimeout).Build()).Error()
	if rueidis.IsRedisNil(err) {
		return nil, errLate
	}
	if err != nil {
		return nil, err
	}
	v, err := p.Load(ctx, key)
	if err != nil {
		return nil, err
	}
	return v, replaceMark.Exec(ctx, p.client, []string{key},
		[]string{p.mark, "V" + string(v), strconv.FormatInt(p.TTL.Milliseconds(), 10)}).Error()
}

// changed returns what is closed when Redis next says that key has changed.
func (p *placeholders) changed(key string) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	ch := p.waits[key]
	if ch == nil {
		ch = make(chan struct{})
		p.waits[key] = ch
	}
	return ch
}

// invalidated is told which keys have changed; nil: the connection was lost, so any may have.
func (p *placeholders) invalidated(keys []rueidis.RedisMessage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if keys == nil {
		for key, ch := range p.waits {
			close(ch)
			delete(p.waits, key)
		}
	}
	for _, m := range keys {
		key, _ := m.ToString()
		if ch := p.waits[key]; ch != nil {
			close(ch)
			delete(p.waits, key)
		}
	}
}
