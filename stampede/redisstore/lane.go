package redisstore

import (
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// lane is the way to one server: what waits there, and whether it answers. A single server or master is one
// lane. In a cluster each master has its own, so that one that does not answer holds up nobody else's keys.
type lane struct {
	node    string       // its address in a cluster, else empty
	readers atomic.Int64 // calls of Read under way
	lone    *loneClient
	batcher *batcher
	turns   chan struct{} // holds an element for each request that is no read
	breaker *breaker
	used    atomic.Bool // since the last look for nodes that have left
}

// lanes finds the lane of a key.
type lanes struct {
	store   *Store
	main    *lane // the only one, or that of keys whose node is not known
	cluster *redis.ClusterClient
	// routed is set once the cluster answered. From then on go-redis knows which node has which slot and
	// asks for changes in the background; before, looking up a node would wait for the network.
	routed atomic.Bool

	nodes sync.Map   // *lane by address
	mu    sync.Mutex // held while one is made
}

func (s *Store) newLane(node string, lone *loneClient) *lane {
	l := &lane{node: node, lone: lone, turns: make(chan struct{}, s.opt.MaxConns)}
	l.batcher = newBatcher(s.opt.Timeout, func(x *batch) bool { return s.sendBatch(l, x) })
	l.breaker = newBreaker(s, node)
	return l
}

// of returns the lane of what is stored under name.
func (ls *lanes) of(name string) *lane {
	if ls.cluster == nil || !ls.routed.Load() {
		return ls.main
	}
	node, err := ls.cluster.MasterForKey(ls.store.ctx, name)
	if err != nil {
		return ls.main // a slot without a node
	}
	addr := node.Options().Addr
	l, ok := ls.nodes.Load(addr)
	if !ok {
		l = ls.add(addr, node)
	}
	x := l.(*lane)
	if !x.used.Load() {
		x.used.Store(true)
	}
	return x
}

// add makes a lane for a node that was not seen before. Nodes come and go, under new addresses where they run in
// containers: a lane that was not used since the last one was added is given up.
func (ls *lanes) add(addr string, node *redis.Client) any {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l, ok := ls.nodes.Load(addr); ok {
		return l
	}
	ls.nodes.Range(func(addr, l any) bool {
		if x := l.(*lane); !x.used.Swap(false) {
			ls.nodes.Delete(addr)
			_ = x.lone.close() // who still reads on it takes the other way
		}
		return true
	})
	l := ls.store.newLane(addr, newLoneClient(*node.Options()))
	ls.nodes.Store(addr, l)
	return l
}

// lost is called when a node does not answer. It may have been replaced, and nobody tells: go-redis learns
// of that from a redirection, which only a node that lives sends, and by itself looks once a minute.
func (ls *lanes) lost() {
	if ls.cluster != nil {
		ls.cluster.ReloadState(ls.store.ctx) // in the background, and not more than once at a time
	}
}

// all calls f with each lane.
func (ls *lanes) all(f func(*lane)) {
	f(ls.main)
	ls.nodes.Range(func(_, l any) bool { f(l.(*lane)); return true })
}
