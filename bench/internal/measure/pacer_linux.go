package measure

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Pacer waits for moments in time with the precision of the kernel's timers. Go's own timers go off up to a
// millisecond late in an otherwise idle process, which every latency counted from when a call was due would
// then contain. It is for one goroutine at a time.
type Pacer struct {
	timer *os.File
}

// NewPacer returns a Pacer. It must be closed.
func NewPacer() (*Pacer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("measure: timerfd: %w", err)
	}
	return &Pacer{os.NewFile(uintptr(fd), "timerfd")}, nil
}

// Sleep returns when d has passed.
func (p *Pacer) Sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	conn, err := p.timer.SyscallConn()
	if err == nil {
		if set := conn.Control(func(fd uintptr) {
			err = unix.TimerfdSettime(int(fd), 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}, nil)
		}); set != nil {
			err = set
		}
	}
	if err == nil {
		var expirations [8]byte
		_, err = p.timer.Read(expirations[:]) // the network poller wakes this goroutine
	}
	if err != nil {
		time.Sleep(d)
	}
}

// Close frees the timer.
func (p *Pacer) Close() error { return p.timer.Close() }
