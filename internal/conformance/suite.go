package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const patience = 10 * time.Second // for a child to start, or to end

// origin is the suite's origin server, a child process on a free port of the loopback interface.
type origin struct {
	url string

	cmd    *exec.Cmd
	cancel context.CancelFunc
	files  string // temporary folder
}

// startOrigin starts the origin; with trace, what it prints is shown.
func startOrigin(ctx context.Context, dir string, trace bool) (*origin, error) {
	files, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	o := &origin{cancel: cancel, files: files}
	o.cmd = node(ctx, dir, "--import", "./loopback.mjs", "node_modules/http-cache-tests/server/server.mjs")
	o.cmd.Env = append(os.Environ(),
		"npm_config_protocol=http", "npm_config_port=0", "npm_config_pidfile="+filepath.Join(files, "pid"))
	out, err := o.cmd.StdoutPipe()
	if err == nil {
		err = o.cmd.Start()
	}
	if err != nil {
		cancel()
		return nil, errors.Join(err, os.RemoveAll(files))
	}
	address := make(chan string, 1)
	go readOrigin(out, address, trace)
	select {
	case line := <-address:
		if url, ok := strings.CutPrefix(line, "Listening on "); ok {
			o.url = strings.TrimSuffix(url, "/")
			return o, nil
		}
		err = fmt.Errorf("the origin said: %s", line)
	case <-time.After(patience):
		err = errors.New("the origin did not start")
	}
	return nil, errors.Join(err, o.stop())
}

// readOrigin hands on the first line that the origin prints, and reads the others, lest it block.
func readOrigin(out io.Reader, first chan<- string, trace bool) {
	lines := bufio.NewScanner(out)
	if lines.Scan() {
		first <- lines.Text()
	} else {
		first <- "nothing"
	}
	for lines.Scan() {
		if trace {
			fmt.Fprintln(os.Stdout, lines.Text())
		}
	}
}

func (o *origin) stop() error {
	o.cancel()
	_ = o.cmd.Wait() // killed: that it says so is no news
	return os.RemoveAll(o.files)
}

// runSuite runs the suite's client, or one test of it with a trace.
func runSuite(ctx context.Context, dir, base, test string) ([]result, error) {
	args := []string{"--no-warnings", "run.mjs", base}
	if test != "" {
		args = append(args, test)
	}
	cmd := node(ctx, dir, args...)
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.Output()
	if test != "" || err != nil {
		fmt.Fprint(os.Stdout, log.String())
	}
	if err != nil {
		return nil, fmt.Errorf("the suite: %w", errors.Join(err, ctx.Err()))
	}
	var results []result
	if err := json.Unmarshal(out, &results); err != nil {
		return nil, fmt.Errorf("the suite's results: %w", err)
	}
	return results, nil
}

// node prepares a child in the suite's folder that does not outlive ctx.
func node(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "node", args...)
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = patience
	return cmd
}
