//go:build !unix

package redisproc

import "syscall"

// Systems without these signals refuse them: Stop and Cont return an error there.
const (
	sigStop = syscall.Signal(0x13)
	sigCont = syscall.Signal(0x12)
)
