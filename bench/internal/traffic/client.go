// Package traffic sends HTTP requests from a process of its own, so that what they cost the client is not counted
// as the server's.
package traffic

import (
	"bufio"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"time"

	"github.com/herdgate/herdgate/bench/internal/child"
)

// clientEnv marks a process as a client. Orders come on its standard input, answers go to its standard output.
const clientEnv = "HERDGATE_BENCH_CLIENT"

// Order says what to send, and to whom.
type Order struct {
	// Addr is the server's address. Connections to it are kept for the next order.
	Addr string
	// Connections is how many requests are under way at a time, each on a connection of its own.
	Connections int
	// Pages says which pages are asked for.
	Pages Pages
	// Field is a line of the header to send, such as "Authorization: x"; "": none.
	Field string
	// Size is how long each answer's body must be.
	Size int
	// Want is what Cache-Status must say of an answer for it to count as wanted; "": nothing.
	Want string
	// For is how long to send.
	For time.Duration
}

// Pages says which pages an Order asks for.
type Pages uint8

const (
	// One page, always the same.
	One Pages = iota
	// Own is a page that nobody has asked for before, for each request.
	Own
	// Together is a page that nobody has asked for before, for all connections at the same moment; the next one when
	// all have their answers.
	Together
)

// Answer is what became of an Order.
type Answer struct {
	Requests int
	Wanted   int // of the answers: see Order.Want
	Took     time.Duration
	Latency  string        // from the request to the end of its answer, encoded; see measure.Latency
	CPU      time.Duration // of the client
	Err      string        // of the first request that failed; it ends the order
}

// Client is a process that sends requests.
type Client struct {
	cmd     *exec.Cmd
	stdin   io.Closer
	orders  *gob.Encoder
	answers *gob.Decoder
}

// Start starts a client, which lives until Close or until ctx ends. The program must call Main first thing.
func Start(ctx context.Context) (*Client, error) {
	cmd, stdin, stdout, err := child.Start(ctx, clientEnv)
	if err != nil {
		return nil, err
	}
	return &Client{cmd, stdin, gob.NewEncoder(stdin), gob.NewDecoder(bufio.NewReader(stdout))}, nil
}

// Send has an order carried out and waits for it.
func (c *Client) Send(o Order) (Answer, error) {
	var a Answer
	if err := c.orders.Encode(o); err != nil {
		return a, fmt.Errorf("traffic: %w", err)
	}
	if err := c.answers.Decode(&a); err != nil {
		return a, fmt.Errorf("traffic: the client is gone: %w", err)
	}
	if a.Err != "" {
		return a, errors.New("traffic: " + a.Err)
	}
	return a, nil
}

// Close ends the process.
func (c *Client) Close() error {
	_ = c.stdin.Close() // asks it to end
	t := time.AfterFunc(5*time.Second, func() { _ = c.cmd.Process.Kill() })
	defer t.Stop()
	return c.cmd.Wait()
}

// Main makes this process a client, and ends it, if it was started to be one.
func Main() {
	if os.Getenv(clientEnv) == "" {
		return
	}
	signal.Ignore(os.Interrupt) // Ctrl-C is for the parent, which ends this process
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench: client:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve carries out orders until there are no more.
func serve(in io.Reader, out io.Writer) error {
	orders, answers := gob.NewDecoder(bufio.NewReader(in)), gob.NewEncoder(out)
	s := sender{conns: make(map[string][]*conn)}
	defer s.close()
	for {
		var o Order
		if err := orders.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := answers.Encode(s.carryOut(&o)); err != nil {
			return err
		}
	}
}
