//go:build !linux

package redisproc

// heldPort is nothing: elsewhere than on Linux, somebody else may take the port of a server that does not run.
type heldPort struct{}

func holdPort(int) (heldPort, error) { return heldPort{}, nil }

func (heldPort) release() {}
