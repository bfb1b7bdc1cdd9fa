// Package loopback finds free TCP ports on 127.0.0.1 for tests and benchmarks.
package loopback

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// BusOffset is the distance between a Redis Cluster node's port and its bus port.
const BusOffset = 10000

// Ports are taken from below the range that systems hand to outgoing connections (32768 and up on Linux), bus ports included,
// so that a port which was given up for a moment can be had again.
const (
	lowest  = 10000
	highest = 32767 - BusOffset
)

var errNoPort = errors.New("loopback: no free port found")

// Addr returns "127.0.0.1:port".
func Addr(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// Listen returns a listener on a free port of 127.0.0.1.
func Listen() (net.Listener, error) {
	for range 100 {
		if l, err := net.Listen("tcp", Addr(randomPort())); err == nil {
			return l, nil
		}
	}
	return nil, errNoPort
}

// FreePort returns a port of 127.0.0.1 on which nobody listens, and neither on port+BusOffset.
//
// Somebody else may take it before the caller does: be ready to ask again.
func FreePort() (int, error) {
	for range 100 {
		if port := randomPort(); isFree(port) && isFree(port+BusOffset) {
			return port, nil
		}
	}
	return 0, errNoPort
}

func randomPort() int {
	return lowest + rand.IntN(highest-lowest+1)
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", Addr(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
