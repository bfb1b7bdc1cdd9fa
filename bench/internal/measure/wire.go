package measure

import (
	"bytes"
	"context"
	"maps"
	"net"
	"sync"
)

// Wire counts what is sent to Redis on the connections that it opens, by reading along.
type Wire struct {
	mu    sync.Mutex // protects what follows
	conns map[*wireConn]struct{}
	gone  Sent // of connections that were closed
}

// Sent is what was sent to Redis.
type Sent struct {
	// Requests are commands, where a script is one, and GET or GETRANGE with the PTTL that follows it is one. What
	// sets up a connection or frames a transaction is none (HELLO, CLIENT, PING, MULTI...).
	Requests int64
	// Writes is how often something was handed to the system to send: one for a batch of commands.
	Writes int64
	// Commands are all commands by name, in lower case.
	Commands map[string]int64
}

// Dial opens a connection that is counted.
func (w *Wire) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return conn, nil
	}
	c := &wireConn{TCPConn: tcp, wire: w, counts: counts{byName: make(map[string]*command)}}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conns == nil {
		w.conns = make(map[*wireConn]struct{})
	}
	w.conns[c] = struct{}{}
	return c, nil
}

// Sent returns what was sent until now.
func (w *Wire) Sent() Sent {
	w.mu.Lock()
	defer w.mu.Unlock()
	total := Sent{Commands: make(map[string]int64)}
	total.Add(w.gone)
	for c := range w.conns {
		total.Add(c.sent())
	}
	return total
}

// Add adds other to s.
func (s *Sent) Add(other Sent) {
	s.combine(other, 1)
}

// Minus returns s less what had been sent before.
func (s Sent) Minus(before Sent) Sent {
	s.Commands = maps.Clone(s.Commands)
	s.combine(before, -1)
	return s
}

func (s *Sent) combine(other Sent, sign int64) {
	if s.Commands == nil {
		s.Commands = make(map[string]int64)
	}
	s.Requests += sign * other.Requests
	s.Writes += sign * other.Writes
	for name, n := range other.Commands {
		s.Commands[name] += sign * n
	}
}

// wireConn is a connection that reads along. It stays a TCP connection to those who look: go-redis checks
// the socket of an idle connection, and should pay for that here as anywhere.
type wireConn struct {
	*net.TCPConn
	wire *Wire

	mu     sync.Mutex // protects counts
	counts counts
}

// Write sends p and counts what is in it.
func (c *wireConn) Write(p []byte) (int, error) {
	n, err := c.TCPConn.Write(p)
	c.mu.Lock()
	c.counts.writes++
	c.counts.read(p[:n])
	c.mu.Unlock()
	return n, err
}

// Close closes the connection; what it has sent stays counted.
func (c *wireConn) Close() error {
	err := c.TCPConn.Close()
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	if _, ok := c.wire.conns[c]; ok {
		delete(c.wire.conns, c)
		c.wire.gone.Add(c.sent())
	}
	return err
}

func (c *wireConn) sent() Sent {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Sent{Requests: c.counts.requests, Writes: c.counts.writes, Commands: make(map[string]int64)}
	for name, cmd := range c.counts.byName {
		s.Commands[name] = cmd.n
	}
	return s
}

// counts follows the stream of commands, "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", over any number of writes. It has to be
// quick: it is part of what a call costs.
type counts struct {
	requests, writes int64
	byName           map[string]*command

	line   []byte   // of a header, as far as it has come
	skip   int      // bytes of an argument, still to come
	naming bool     // the argument is the command's name
	name   []byte   // as far as it has come
	last   *command // the one before; nil: there was none
}

// command is how often a command was sent.
type command struct {
	n                 int64
	setUp, read, pttl bool // which it is
}

func (c *counts) read(p []byte) {
	for len(p) > 0 {
		if c.skip > 0 {
			n := min(c.skip, len(p))
			if c.naming {
				c.name = append(c.name, p[:n]...)
			}
			c.skip -= n
			p = p[n:]
			if c.skip == 0 && c.naming {
				c.naming = false
				c.command(c.name[:len(c.name)-len("\r\n")])
			}
			continue
		}
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			c.line = append(c.line, p...)
			return
		}
		line := p[:end]
		if len(c.line) > 0 {
			c.line = append(c.line, line...)
			line = c.line
		}
		c.header(bytes.TrimSuffix(line, []byte("\r")))
		c.line = c.line[:0]
		p = p[end+1:]
	}
}

func (c *counts) header(line []byte) {
	if len(line) < 2 {
		return
	}
	switch line[0] {
	case '*': // the number of arguments, of which the first is the name
		c.naming, c.name = true, c.name[:0]
	case '$':
		n := 0
		for _, d := range line[1:] {
			n = 10*n + int(d-'0')
		}
		c.skip = n + len("\r\n")
	}
}

// command counts a command; it changes name, which is c's own.
func (c *counts) command(name []byte) {
	for i, b := range name {
		if 'A' <= b && b <= 'Z' {
			name[i] = b + 'a' - 'A'
		}
	}
	cmd := c.byName[string(name)]
	if cmd == nil {
		n := string(name)
		cmd = &command{setUp: setUp[n], read: n == "get" || n == "getrange", pttl: n == "pttl"}
		c.byName[n] = cmd
	}
	cmd.n++
	if !cmd.setUp && (!cmd.pttl || c.last == nil || !c.last.read) {
		c.requests++
	}
	c.last = cmd
}

// setUp are the commands that set up a connection, look after it, or frame others.
var setUp = map[string]bool{
	"hello": true, "auth": true, "client": true, "select": true, "ping": true, "command": true, "info": true, "multi": true, "exec": true,
}
