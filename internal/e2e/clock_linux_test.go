package e2e_test

import (
	"syscall"
	"time"
	"unsafe"
)

// sinceBoot reads the clock that all processes of a machine share and nobody sets: histories of several processes are ordered
// by it.
func sinceBoot() time.Duration {
	const clockMonotonic = 1
	var ts syscall.Timespec
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		panic(errno)
	}
	return time.Duration(ts.Nano())
}
