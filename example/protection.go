package main

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/stampede"
)

// protection is how a pod keeps the report: one of the three ways that are compared.
type protection interface {
	// get returns the report.
	get(ctx context.Context) (stampede.Result[Report], error)
	// drop removes what is stored.
	drop(ctx context.Context) error
	// stats returns counts; zero if there are none.
	stats() stampede.Stats
	// close ends loads, at the latest when ctx does.
	close(ctx context.Context) error
}

// loadFunc is a loader of the report.
type loadFunc func(context.Context) (Report, error)

// way makes a pod's protection. It may use store, or talk to Redis itself.
type way struct {
	name  string
	about string
	open  func(cfg *config, rdb *redis.Client, store stampede.Store, load loadFunc) (protection, error)
}

// ways are what the phases compare, herdgate last.
var ways = []way{
	{"no protection", "GET, and on a miss load and SET", newUnprotected},
	{"in-pod singleflight", "the same, but the callers of a pod share a load", newCollapsed},
	herdgate,
}

var herdgate = way{"herdgate", "one load for all pods; callers get the last report meanwhile", newGuarded}
