// Package redisstore is the [stampede.Store] for a fleet: entries and leases live in Redis, a single
// node, behind Sentinel, or a Cluster; Redis 6.2 or later.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
//	store, err := redisstore.New(rdb, nil)
//
// A Store makes a client of its own from the options of the one it is given, with time limits that fit
// a cache; the given client may have any settings and is neither changed nor closed. One Store serves
// all guards of a process: they share its connections, its subscription and its breaker.
//
// docs/protocol.md describes what is stored and each script, docs/operations.md the rights and settings
// that Redis needs.
package redisstore
