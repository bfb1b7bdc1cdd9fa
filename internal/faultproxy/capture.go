package faultproxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
)

// Capture keeps a copy of one request, to be sent again late.
type Capture struct {
	proxy    *Proxy
	match    Match
	withhold bool
	captured chan struct{} // closed once request is set
	request  []byte
}

// Capture keeps a copy of the next request that match means. The request itself goes its way.
func (p *Proxy) Capture(match Match) *Capture {
	return p.newCapture(match, false)
}

// Intercept is like Capture, but the request itself is lost, as if it were stuck in the network. Its client waits in vain; let
// Replay deliver it late.
func (p *Proxy) Intercept(match Match) *Capture {
	return p.newCapture(match, true)
}

func (p *Proxy) newCapture(match Match, withhold bool) *Capture {
	c := &Capture{proxy: p, match: match, withhold: withhold, captured: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.captures = append(p.captures, c)
	return c
}

// capture gives request to every capture that waits for it and reports whether one of them withholds it. p.mu is held.
func (p *Proxy) capture(request []byte) (withheld bool) {
	var waiting []*Capture
	for _, c := range p.captures {
		if !c.match(request) {
			waiting = append(waiting, c)
			continue
		}
		c.request = request
		close(c.captured)
		withheld = withheld || c.withhold
	}
	p.captures = waiting
	return withheld
}

// Captured is closed once the request has come by.
func (c *Capture) Captured() <-chan struct{} {
	return c.captured
}

// Request returns the bytes of the request, nil if it has not come by yet.
func (c *Capture) Request() []byte {
	select {
	case <-c.captured:
		return c.request
	default:
		return nil
	}
}

// Replay sends the request to the server once more, now, on a connection of its own that no fault touches, and returns the bytes
// of the reply. What the client had set on its connection, such as a database number, does not hold there. It may be called more
// than once.
func (c *Capture) Replay(ctx context.Context) ([]byte, error) {
	request := c.Request()
	if request == nil {
		return nil, errors.New("faultproxy: nothing captured yet")
	}
	var dialer net.Dialer
	server, err := dialer.DialContext(ctx, "tcp", c.proxy.target)
	if err != nil {
		return nil, fmt.Errorf("faultproxy: %w", err)
	}
	defer server.Close()
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if _, err := server.Write(request); err != nil {
		return nil, fmt.Errorf("faultproxy: %w", err)
	}
	reply, err := readFrame(bufio.NewReader(server))
	if err != nil {
		return nil, errors.Join(context.Cause(ctx), err)
	}
	return reply, nil
}
