package redisproc

import "syscall"

// heldPort is a port that was bound and is not listened on: who dials it is refused, and nobody else can have it.
type heldPort int

// holdPort binds a port of 127.0.0.1.
func holdPort(port int) (heldPort, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	// With SO_REUSEADDR the port can be bound although connections that were just closed linger on it. While the holder does
	// not have it, others cannot bind the port, whether they use it or not.
	err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	if err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	}
	if err == nil {
		err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 0)
	}
	if err != nil {
		_ = syscall.Close(fd)
		return 0, err
	}
	return heldPort(fd), nil
}

func (p heldPort) release() { _ = syscall.Close(int(p)) }
