// Package tally counts what many goroutines do at once, billions of times: a single atomic counter would be
// passed from processor to processor with each step.
package tally

import (
	"sync/atomic"
	"unsafe"
)

const (
	stripes = 16
	apart   = 64 // bytes: what processors pass to each other at once
)

// Counter is a count. The zero value is zero.
type Counter struct {
	parts [stripes]struct {
		n atomic.Uint64
		_ [apart - 8]byte
	}
}

// Inc adds one. Which part of the count it is added to depends on where the goroutine's stack lies: goroutines
// that run at the same time have different ones, so they seldom meet. That is all that the address is for.
func (c *Counter) Inc() {
	var here byte
	at := uint64(uintptr(unsafe.Pointer(&here))) >> 11 // no stack is smaller
	c.parts[at*0x9E3779B97F4A7C15>>60].n.Add(1)        // multiplied by 2^64 / the golden ratio, so that neighbours part
}

// Load returns the count. What is counted meanwhile may be in it or not.
func (c *Counter) Load() (sum uint64) {
	for i := range c.parts {
		sum += c.parts[i].n.Load()
	}
	return sum
}
