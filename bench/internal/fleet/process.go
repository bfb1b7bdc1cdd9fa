package fleet

import (
	"bufio"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/herdgate/herdgate/bench/internal/child"
	"github.com/herdgate/herdgate/bench/internal/contender"
	"github.com/herdgate/herdgate/bench/internal/measure"
)

// podEnv marks a process as a pod. What it is follows on its standard input, what it measured on its
// standard output.
const podEnv = "HERDGATE_BENCH_POD"

// errLost: a pod's process ended before it could tell what it had measured.
var errLost = errors.New("fleet: the pod is gone")

// order is what a pod's process is told first.
type order struct {
	Contender string
	Pod       int
	Spec      Spec
	Source    string
}

// answer is what a pod's process tells: once when it is open, once when it has run.
type answer struct {
	Result Result
	Err    string
}

// Main makes this process a pod, and ends it, if it was started to be one.
func Main() {
	if os.Getenv(podEnv) == "" {
		return
	}
	signal.Ignore(os.Interrupt) // Ctrl-C is for the parent, which ends this process
	redis.SetLogger(new(logging.VoidLogger))
	if err := podMain(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench: pod:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func podMain(in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	orders, answers := gob.NewDecoder(bufio.NewReader(in)), gob.NewEncoder(out)
	var o order
	if err := orders.Decode(&o); err != nil {
		return err
	}
	all := contender.All()
	i := slices.IndexFunc(all, func(c contender.Contender) bool { return c.Name == o.Contender })
	if i < 0 {
		return fmt.Errorf("there is no contender %q", o.Contender)
	}
	p, err := open(ctx, all[i], o.Pod, o.Spec, remoteLoader(o.Source))
	if err := answers.Encode(answer{Err: errText(err)}); err != nil || p == nil {
		return err
	}
	defer p.close()
	var begin time.Time
	if err := orders.Decode(&begin); err != nil {
		return ignoreEOF(err)
	}
	go func() { // nothing more is said: the parent is done with us, or dead
		_ = orders.Decode(new(time.Time))
		cancel()
	}()
	r, err := p.run(ctx, begin)
	if err := answers.Encode(answer{r, errText(err)}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// process is a pod in a process of its own.
type process struct {
	cmd     *exec.Cmd
	stdin   io.Closer
	orders  *gob.Encoder
	answers *gob.Decoder
}

func spawn(ctx context.Context, c contender.Contender, number int, spec Spec, source string) (runner, error) {
	cmd, stdin, stdout, err := child.Start(ctx, podEnv)
	if err != nil {
		return nil, err
	}
	p := &process{cmd, stdin, gob.NewEncoder(stdin), gob.NewDecoder(bufio.NewReader(stdout))}
	err = p.orders.Encode(order{c.Name, number, spec, source})
	if err == nil {
		_, err = p.answer()
	}
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *process) answer() (Result, error) {
	var a answer
	if err := p.answers.Decode(&a); err != nil {
		return Result{}, fmt.Errorf("%w: %w", errLost, err)
	}
	if a.Err != "" {
		return a.Result, errors.New(a.Err)
	}
	return a.Result, nil
}

func (p *process) run(_ context.Context, begin time.Time) (Result, error) {
	if err := p.orders.Encode(begin); err != nil {
		return Result{}, fmt.Errorf("%w: %w", errLost, err)
	}
	return p.answer()
}

func (p *process) kill() error { return p.cmd.Process.Kill() }

func (p *process) close() error {
	_ = p.stdin.Close() // asks it to end
	t := time.AfterFunc(5*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer t.Stop()
	_ = p.cmd.Wait() // how it ended does not matter: some are killed on purpose
	return nil
}

// serve offers a source to other processes.
func serve(s *measure.Source) (addr string, closer func() error, err error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	srv := &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			pod, _ := strconv.Atoi(r.FormValue("pod"))
			size, _ := strconv.Atoi(r.FormValue("size"))
			v, err := s.Load(r.Context(), pod, r.FormValue("key"), size)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			_, _ = w.Write(v)
		}),
	}
	go func() { _ = srv.Serve(l) }()
	return "http://" + l.Addr().String(), srv.Close, nil
}

// remoteLoader loads from a source that another process serves.
func remoteLoader(addr string) loader {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	return func(ctx context.Context, pod int, key string, size int) ([]byte, error) {
		query := url.Values{"pod": {strconv.Itoa(pod)}, "size": {strconv.Itoa(size)}, "key": {key}}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, addr+"/?"+query.Encode(), nil)
		if err != nil {
			return nil, err
		}
		resp, err := client.Do(req)
		if err != nil {
			return nil, err
		}
		defer resp.Body.Close()
		v, err := io.ReadAll(resp.Body)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode != http.StatusOK {
			return nil, errors.New(strings.TrimSpace(string(v)))
		}
		return v, nil
	}
}
