package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/redisstore"
)

// A child is a pod that is a process: this test binary, run again. It can be killed and stopped as a whole.

const childEnv = "HERDGATE_E2E_CHILD"

// orders is what a child is started with.
type orders struct {
	Addr string
	Name string

	Once    *once   `json:",omitempty"` // one Get, then wait
	History *player `json:",omitempty"` // calls for a history
}

// once is a single Get whose load takes that long, whatever becomes of its ctx.
type once struct {
	Key, Value string
	LoadTook   time.Duration
}

func isChild() bool { return os.Getenv(childEnv) != "" }

// childMain ends when its parent does, or when it is told to by the end of its input.
func childMain() int {
	var o orders
	if err := json.Unmarshal([]byte(os.Getenv(childEnv)), &o); err != nil {
		return fail(err)
	}
	redis.SetLogger(mute{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	out := &log{w: os.Stdout}
	var err error
	if o.Once != nil {
		err = o.Once.run(ctx, &o, out)
	} else {
		err = o.History.run(ctx, o.Addr, o.Name, out)
	}
	if err != nil {
		return fail(err)
	}
	return 0
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func (x *once) run(ctx context.Context, o *orders, out *log) error {
	store, err := redisstore.New(redis.NewClient(&redis.Options{Addr: o.Addr, ClientName: o.Name}), nil)
	if err != nil {
		return err
	}
	guard, err := stampede.New[string](store, &stampede.Options{Name: "e2e"})
	if err != nil {
		return err
	}
	v, err := guard.Get(ctx, x.Key, func(context.Context) (string, error) {
		out.add(record{Kind: loadBegan, Key: x.Key, Value: x.Value})
		wait(x.LoadTook)
		out.add(record{Kind: loadEnded, Key: x.Key, Value: x.Value})
		return x.Value, nil
	})
	r := record{Kind: returned, Key: x.Key, Value: v}
	if err != nil {
		r.Err = err.Error()
	}
	out.add(r)
	if err := guard.Close(ctx); err != nil {
		return err
	}
	s := guard.Stats()
	out.add(record{Kind: ended, Value: fmt.Sprintf("refused %d, lost %d", s.Refused, s.LeasesLost)})
	<-ctx.Done()
	return nil
}

// child is a running one, seen from its parent.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	done  chan struct{} // closed when it has ended

	mu      sync.Mutex // protects records
	records []record
}

// startChild starts a pod that ends with t. All it reports goes to its records.
func startChild(t testing.TB, o orders) *child {
	t.Helper()
	text, err := json.Marshal(o)
	must(t, err)
	exe, err := os.Executable()
	must(t, err)
	c := &child{cmd: exec.Command(exe), done: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	c.cmd.Stderr = os.Stderr
	// A parent that is killed takes its children with it, even stopped ones.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.stdin, err = c.cmd.StdinPipe()
	must(t, err)
	stdout, err := c.cmd.StdoutPipe()
	must(t, err)
	started := make(chan error, 1)
	go func() {
		// The signal comes when the thread dies that started the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(c.done)
		err := c.cmd.Start()
		started <- err
		if err == nil {
			c.read(stdout)
			_ = c.cmd.Wait() // the exit code of a killed process says nothing
		}
	}()
	must(t, <-started)
	t.Cleanup(func() { c.end(t) })
	return c
}

func (c *child) read(r io.Reader) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var rec record
		if json.Unmarshal(lines.Bytes(), &rec) != nil {
			continue // cut short by a kill
		}
		c.mu.Lock()
		c.records = append(c.records, rec)
		c.mu.Unlock()
	}
}

// said returns what the child has reported so far.
func (c *child) said() []record {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.records[:len(c.records):len(c.records)]
}

// await waits until the child reports something of a kind.
func (c *child) await(t testing.TB, kind recordKind, within time.Duration) record {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		for _, r := range c.said() {
			if r.Kind == kind {
				return r
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("the child reported no %q within %v, only %v", kind, within, c.said())
		}
		wait(2 * time.Millisecond)
	}
}

func (c *child) signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
}

// kill ends the child as a crash would.
func (c *child) kill(t testing.TB) {
	t.Helper()
	c.signal(t, syscall.SIGKILL)
	<-c.done
}

// end lets the child end by itself, and kills it when it does not.
func (c *child) end(t testing.TB) {
	t.Helper()
	c.signal(t, syscall.SIGCONT)
	_ = c.stdin.Close()
	timer := time.NewTimer(10 * time.Second)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
		t.Error("the child did not end by itself")
		c.kill(t)
	}
}
