// Command locks tells the story of the paused holder, which each text about distributed locks tells, and
// shows how it ends with and without fencing numbers.
//
//	go run ./example/locks
//
// A worker acquires a lock and is paused, as by a long garbage collection or a machine that is moved. Its
// lease ends. Another worker acquires the lock and writes. Then the first one wakes up, still thinks that it
// holds the lock, and writes what it had worked out before. Without a fencing number its old value wins;
// with one, the storage refuses it.
//
// It needs nothing but Go: Redis is an embedded stand-in unless -redis or REDIS_URL names a real one. Nothing is
// left there.
package main
