package redisproc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/herdgate/herdgate/internal/loopback"
)

// Options say how to start a server. The zero value is a good default.
type Options struct {
	// Binary is the path of redis-server. Defaults to the environment variable BinaryEnv, then to PATH.
	Binary string
	// Args are further arguments of redis-server, such as "--maxmemory", "10mb". They come last and override the defaults,
	// which are: no persistence, loopback only. A password must not be set here: the harness would lock itself out; use CONFIG SET.
	Args []string
	// StartTimeout bounds the wait for the first answer. Defaults to 10 s.
	StartTimeout time.Duration
}

// Server is a running redis-server.
//
// Its methods may be called from any goroutine, but Kill, Shutdown, Restart and Close not at the same time as one another.
type Server struct {
	spec   spec
	binary string
	dir    string
	port   int
	held   []heldPort // while the process does not run

	mu      sync.Mutex // protects proc, stopped
	proc    *process
	stopped bool
}

// spec is Options plus what sentinels need.
type spec struct {
	Options
	// config, when set, returns the text of a configuration file.
	config func(port int) string
	// mode holds arguments that must come right after the configuration file.
	mode []string
	// bus says that the server has a port for the cluster's bus, too.
	bus bool
}

const (
	defaultStartTimeout = 10 * time.Second
	shutdownGrace       = time.Second
	portAttempts        = 10
)

// Start starts a redis-server on a free port of 127.0.0.1 and returns once it answers.
//
// It fails with ErrNotInstalled when there is no redis-server, and otherwise with an error that holds the server's log.
func Start(o Options) (*Server, error) {
	return start(spec{Options: o})
}

func start(sp spec) (*Server, error) {
	if sp.StartTimeout <= 0 {
		sp.StartTimeout = defaultStartTimeout
	}
	binary, err := findBinary(sp.Binary)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "herdgate-redis-")
	if err != nil {
		return nil, fmt.Errorf("redisproc: %w", err)
	}
	s := &Server{spec: sp, binary: binary, dir: dir}
	for range portAttempts {
		if s.port, err = loopback.FreePort(); err != nil {
			break
		}
		if err = s.run(); !errors.Is(err, errPortTaken) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

var errPortTaken = errors.New("redisproc: port taken")

// run starts the process on s.port and waits for its first answer.
func (s *Server) run() error {
	if s.spec.config != nil {
		if err := os.WriteFile(s.path("redis.conf"), []byte(s.spec.config(s.port)), 0o600); err != nil {
			return fmt.Errorf("redisproc: %w", err)
		}
	}
	log, err := os.Create(s.path("redis.log"))
	if err != nil {
		return fmt.Errorf("redisproc: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(s.binary, s.args()...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	proc, err := startProcess(cmd)
	if err != nil {
		return fmt.Errorf("redisproc: starting %s: %w", s.binary, err)
	}
	s.mu.Lock()
	s.proc, s.stopped = proc, false
	s.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), s.spec.StartTimeout)
	defer cancel()
	err = poll(ctx, "redis-server on "+s.Addr(), func(ctx context.Context) error { return s.answers(ctx, proc) })
	if err == nil {
		return nil
	}
	err = errors.Join(err, proc.kill())
	text := s.Log()
	if strings.Contains(text, "Address already in use") {
		err = errors.Join(errPortTaken, err)
	}
	return fmt.Errorf("%w\nserver log:\n%s", err, text)
}

// answers reports why proc does not serve yet. A server that answers on the port need not be ours, so it is asked for its pid.
func (s *Server) answers(ctx context.Context, proc *process) error {
	if !proc.running() {
		return finalError{errors.New("process ended")}
	}
	if _, err := do(ctx, s.Addr(), "PING"); err != nil {
		return err
	}
	info, err := doString(ctx, s.Addr(), "INFO", "server")
	if err != nil {
		return err
	}
	if pid := field(info, "process_id"); pid != strconv.Itoa(proc.pid()) {
		return fmt.Errorf("process %s answers instead", pid)
	}
	return nil
}

func (s *Server) args() []string {
	var args []string
	if s.spec.config != nil {
		args = append(args, s.path("redis.conf"))
	}
	args = append(args, s.spec.mode...)
	if s.spec.config == nil {
		args = append(args, "--save", "", "--appendonly", "no")
	}
	args = append(args, "--bind", "127.0.0.1", "--port", strconv.Itoa(s.port), "--dir", s.dir, "--daemonize", "no")
	return append(args, s.spec.Args...)
}

func (s *Server) path(name string) string {
	return filepath.Join(s.dir, name)
}

func (s *Server) process() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

// Addr returns the server's address, "127.0.0.1:port". It stays the same over Restart.
func (s *Server) Addr() string {
	return loopback.Addr(s.port)
}

// Pid returns the process id of the latest run.
func (s *Server) Pid() int {
	return s.process().pid()
}

// Running reports whether the process lives. A stopped one does.
func (s *Server) Running() bool {
	return s.process().running()
}

// Log returns what the server has printed since its latest start.
func (s *Server) Log() string {
	text, err := os.ReadFile(s.path("redis.log"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Do sends one command on a connection of its own and returns the reply: a string, an int64, a []any or nil. An error reply is
// returned as a ReplyError. The command may take two seconds.
func (s *Server) Do(ctx context.Context, args ...string) (any, error) {
	return do(ctx, s.Addr(), args...)
}

// Stop freezes the process (SIGSTOP): connections are still accepted by the system, nothing is answered.
func (s *Server) Stop() error {
	return s.pause(true, sigStop)
}

// Cont lets a stopped process go on (SIGCONT).
func (s *Server) Cont() error {
	return s.pause(false, sigCont)
}

func (s *Server) pause(stopped bool, sig os.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = stopped
	return s.proc.signal(sig)
}

// responsive reports whether the process lives and is not stopped.
func (s *Server) responsive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.running() && !s.stopped
}

// Kill ends the process at once (SIGKILL), as a crash would, and waits until it is gone. Restart brings it back. Until then,
// connections to its port are refused, and on Linux nobody else can take it.
func (s *Server) Kill() error {
	return s.ended(s.process().kill())
}

// Shutdown ends the process in an orderly way (SIGTERM, then SIGKILL if it takes longer than a second), stopped or not, and waits
// until it is gone. Restart brings it back. Its port is kept, as after Kill.
func (s *Server) Shutdown() error {
	return s.ended(s.process().terminate(shutdownGrace))
}

// ended holds the ports of the process if it has ended. When that fails, Restart will say that they are taken.
func (s *Server) ended(err error) error {
	if err != nil || len(s.held) > 0 {
		return err
	}
	ports := []int{s.port}
	if s.spec.bus {
		ports = append(ports, s.port+loopback.BusOffset)
	}
	for _, port := range ports {
		if h, err := holdPort(port); err == nil {
			s.held = append(s.held, h)
		}
	}
	return nil
}

// release gives back the ports that are held.
func (s *Server) release() {
	for _, h := range s.held {
		h.release()
	}
	s.held = nil
}

// Restart starts the process again on the same port, after Shutdown if it still runs, and returns once it answers. Without
// persistence it comes back empty; files in its directory, such as a cluster node's configuration, are kept.
func (s *Server) Restart() error {
	if err := s.Shutdown(); err != nil {
		return err
	}
	s.release()
	return s.run()
}

// Close ends the process, stopped or not, and removes its files. It may be called more than once.
func (s *Server) Close() error {
	var err error
	if proc := s.process(); proc != nil {
		err = proc.terminate(shutdownGrace)
	}
	s.release()
	return errors.Join(err, os.RemoveAll(s.dir))
}
