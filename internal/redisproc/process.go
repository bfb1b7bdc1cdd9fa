package redisproc

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is one run of a child process.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed once the process has been waited for
}

func startProcess(cmd *exec.Cmd) (*process, error) {
	dieWithParent(cmd)
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go p.supervise(started)
	return p, <-started
}

// supervise starts the process and waits for its end on one OS thread: the parent death signal comes when the thread that
// started the process dies, so that thread must live as long as the process.
func (p *process) supervise(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	err := p.cmd.Start()
	started <- err
	if err == nil {
		_ = p.cmd.Wait() // the exit code of a killed server says nothing
	}
}

func (p *process) pid() int {
	return p.cmd.Process.Pid
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// signal sends sig; a process that has ended is no error.
func (p *process) signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// kill ends the process at once and waits for its end.
func (p *process) kill() error {
	if err := p.signal(os.Kill); err != nil {
		return err
	}
	<-p.done
	return nil
}

// terminate asks the process to end, stopped or not, and kills it when it has not done so within grace.
func (p *process) terminate(grace time.Duration) error {
	if err := errors.Join(p.signal(sigCont), p.signal(syscall.SIGTERM)); err == nil {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-p.done:
			return nil
		case <-timer.C:
		}
	}
	return p.kill()
}
