// Package redisproc runs real Redis servers as child processes: a single one, a master with replicas and sentinels, or a cluster.
//
// Everything listens on 127.0.0.1 only and keeps its files in a temporary directory that Close removes. Only processes started here
// are ever signalled. On Linux they also die when the parent dies, however it dies; their files then stay behind.
//
// The package does not import testing, so that programs may use it; tests are better off with package redistest.
package redisproc
