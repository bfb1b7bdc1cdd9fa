// Package stampede protects a source of values, a database say, from cache stampedes: when a popular
// entry expires, one caller in one pod loads it anew. Everybody else is served the previous value at
// once or, when there is none, waits and is woken when the new one lands.
//
//	store, err := redisstore.New(rdb, nil) // or new(stampede.MemoryStore)
//	products, err := stampede.New[Product](store, &stampede.Options{
//		Name:   "product",
//		Policy: stampede.Policy{TTL: time.Minute, StaleFor: 5 * time.Minute},
//	})
//	p, err := products.Get(ctx, id, func(ctx context.Context) (Product, error) {
//		return db.Product(ctx, id)
//	})
//
// # Words
//
// An entry is what is stored for a key. It is fresh within its TTL, stale after that for as long as it
// may be served, then dead. A load is one run of the user's loader. A flight is what the callers of a
// pod share. A lease is the right to load a key, in the fleet, for a short time; the pod that holds it
// is the leader, one that does not is a follower. A commit is the write that ends a load.
//
// # What may be relied on
//
// One load per key and pod at a time, and one in the fleet while the store answers and the lease is
// kept. Who can be served stale never waits. A loader may hang, panic or fail: callers get an answer
// that tells the truth, and the key works again. A load that lost its lease, or that began before a
// Delete, Set or Expire of its key, never overwrites what is there; one that began before an ExpireTag of
// its tag is never fresh. A store in trouble costs a call no
// more than a small budget, and is never an error of Get and Fetch. docs/guarantees.md has the promises
// in full, with the tests that earn them; docs/protocol.md the argument.
//
// # What may not
//
// Exactly one load: a pod that is paused or cut off may cause a second one. So a load is no place for
// side effects that must happen once. And nothing holds across a failover of Redis that loses writes.
package stampede
