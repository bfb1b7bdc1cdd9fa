//go:build race

package modeltest

// raced says that the race detector is on, which makes a step some ten times slower.
const raced = true
