// Package contender holds what is compared: each way of caching in a file of its own, behind one small
// interface.
//
// To add one, write a file with a Contender whose Open returns a Cache, and name it in All. A contender is
// configured as its own documentation advises; About says how, and is printed in the report.
package contender

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"
)

// Contender is a way to cache.
type Contender struct {
	Name string
	// About says how it is set up, and what each parameter became.
	About string
	// Module is the path of the module whose version is printed; "" if there is none.
	Module string
	// Kind says what it can be compared with.
	Kind Kind
	// Open makes the cache of one pod. Nil for a Handler.
	Open func(*Env) (Cache, error)
	// Wrap puts a cache of one pod before a handler. Env.Load is not used: the handler is what loads. Nil: it does
	// not serve HTTP.
	Wrap func(*Env, http.Handler) (Web, error)
}

// Kind is what a contender is able to do.
type Kind uint8

// The kinds of contenders.
const (
	// Shared keeps values in Redis, for all pods, and does nothing against more than one load at a time in
	// the fleet.
	Shared Kind = iota
	// Elected keeps values in Redis and means to load once in the fleet.
	Elected
	// Memory keeps values in the pod alone.
	Memory
	// Floor does nothing but read a value that is there: what reading costs.
	Floor
	// Handler is an HTTP handler with no cache before it.
	Handler
)

// Cache is the cache of one pod.
type Cache interface {
	// Get returns the value of key. On a miss it is loaded with Env.Load.
	Get(ctx context.Context, key string) ([]byte, error)
	// Close frees what the cache has.
	Close() error
}

// Web is a handler with a cache before it.
type Web struct {
	http.Handler
	// Close frees what the cache has.
	Close func() error
}

// Params are what a workload asks for, in words that every contender understands.
type Params struct {
	// TTL is how long a value is fresh.
	TTL time.Duration
	// StaleFor is how long after that it may be served while it is loaded anew, where a contender can do so.
	StaleFor time.Duration
	// LoadTimeout is within what a load ends. Locks that are not renewed last for so long.
	LoadTimeout time.Duration
	// Entries is how many keys there are.
	Entries int
	// Exact turns off what makes loads earlier than TTL on purpose: jitter and early refresh.
	Exact bool
	// ClientTimeout is the time limit of the Redis client for dialling, reading, writing and waiting for a
	// connection. Zero: the client's default.
	ClientTimeout time.Duration
}

// Env is what a cache is made from.
type Env struct {
	Params
	// Addr is the address of Redis.
	Addr string
	// Dial opens a connection to Redis on which requests are counted. Every client has to use it.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Load loads the value of key. Its ctx should be, or have the values of, that of the Get it is for.
	Load func(ctx context.Context, key string) ([]byte, error)
}

// Redis returns a new go-redis client with default settings but for ClientTimeout. The caller closes it.
func (e *Env) Redis() *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:         e.Addr,
		Dialer:       e.Dial,
		DialTimeout:  e.ClientTimeout,
		ReadTimeout:  e.ClientTimeout,
		WriteTimeout: e.ClientTimeout,
		PoolTimeout:  e.ClientTimeout,
	})
}

// Start opens the cache of one pod. A panic in Get comes back as an error: one contender must not end the run of all.
func (c Contender) Start(e *Env) (_ Cache, err error) {
	defer Recovered(&err)
	opened, err := c.Open(e)
	if err != nil {
		return nil, err
	}
	return careful{opened}, nil
}

// careful is a cache whose panics are errors.
type careful struct{ Cache }

// Get is the cache's.
func (c careful) Get(ctx context.Context, key string) (v []byte, err error) {
	defer Recovered(&err)
	return c.Cache.Get(ctx, key)
}

// Recovered makes an error of a panic; it has to be deferred itself. For who makes many calls it costs less than Start does.
func Recovered(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("contender: panic: %v", r)
	}
}

// All returns every contender, in the order of the report.
func All() []Contender {
	return []Contender{
		rawGet, rawGetPTTL, rawAutoPipeline, rawRueidis,
		none, xfetch, inPod, setNX, redisLock, redSync, goRedisCache, goRedisCacheLocal,
		sturdycRedis, placeholder, herdgate, herdgateLocal,
		otterMemory, sturdycMemory, herdgateMemory, bareHandler,
	}
}

// cache makes a Cache of functions.
type cache struct {
	get   func(ctx context.Context, key string) ([]byte, error)
	close func() error
}

// Get calls get.
func (c cache) Get(ctx context.Context, key string) ([]byte, error) { return c.get(ctx, key) }

// Close calls close, if there is one.
func (c cache) Close() error {
	if c.close == nil {
		return nil
	}
	return c.close()
}
