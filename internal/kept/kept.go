// Package kept lets the values of a guard say that they are kept for longer than they may serve.
package kept

import "time"

// Value is a value that may serve, when loads fail, only for part of the time that it is kept for. After that a
// guard gives it to nobody but the loader that replaces it.
type Value interface {
	// ServesFor returns how long after its TTL it may serve.
	ServesFor() For
}

// For is a type of its own, so that no value is a Value by chance.
type For time.Duration
