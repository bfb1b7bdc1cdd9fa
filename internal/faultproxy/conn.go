package faultproxy

import (
	"bufio"
	"io"
	"net"
	"sync"
	"time"
)

// conn is one client connection and its server connection. In each direction one goroutine reads and one writes, with a queue
// between them, so that a delay holds up every frame but not the reading of the next.
type conn struct {
	proxy  *Proxy
	client *net.TCPConn
	done   chan struct{} // closed when the connection is

	mu      sync.Mutex // protects everything below
	server  *net.TCPConn
	closed  bool
	pending [][]byte // forwarded requests without a reply yet, oldest first
}

// frame is a request or a reply on its way.
type frame struct {
	data []byte
	due  time.Time // when to forward it
}

// queueLength bounds the frames that wait in one direction.
const queueLength = 1024

func newConn(p *Proxy, client *net.TCPConn) *conn {
	return &conn{proxy: p, client: client, done: make(chan struct{})}
}

// run forwards until either end closes.
func (c *conn) run() {
	defer c.close()
	if c.proxy.blackHoled() {
		_, _ = io.Copy(io.Discard, c.client) // no connection comes about through a cut network
		return
	}
	upstream, err := net.DialTimeout("tcp", c.proxy.target, 5*time.Second)
	if err != nil {
		return
	}
	server := upstream.(*net.TCPConn)
	if !c.attach(server) {
		server.Close()
		return
	}
	requests, replies := make(chan frame, queueLength), make(chan frame, queueLength)
	var wg sync.WaitGroup
	wg.Go(func() { c.read(c.client, requests, c.proxy.delayToServer) })
	wg.Go(func() { c.read(server, replies, c.proxy.delayToClient) })
	clientGone := make(chan struct{})
	wg.Go(func() {
		defer close(clientGone)
		c.forwardRequests(server, requests)
	})
	wg.Go(func() {
		defer c.close()
		if lost := c.forwardReplies(replies); lost {
			<-clientGone // as replies do not reach the client, neither does the end of them
		}
	})
	wg.Wait()
}

// attach makes close close server too, unless that has happened already.
func (c *conn) attach(server *net.TCPConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.server = server
	return true
}

// read queues frames until from ends.
func (c *conn) read(from io.Reader, queue chan<- frame, delay func() time.Duration) {
	defer close(queue)
	r := bufio.NewReader(from)
	for {
		data, err := readFrame(r)
		if err != nil {
			return
		}
		select {
		case queue <- frame{data, time.Now().Add(delay())}:
		case <-c.done:
			return
		}
	}
}

func (c *conn) forwardRequests(server *net.TCPConn, queue <-chan frame) {
	lost := false
	for f := range queue {
		if !c.wait(f.due) {
			return
		}
		if lost || !c.proxy.admitRequest(f.data) {
			lost = true
			continue
		}
		c.push(f.data)
		if _, err := server.Write(f.data); err != nil {
			c.close()
			return
		}
	}
	if lost {
		c.close()
		return
	}
	_ = server.CloseWrite() // the server still does what it was sent, then hangs up
}

// forwardReplies returns when there are no more, and whether some were lost on the way.
func (c *conn) forwardReplies(queue <-chan frame) (lost bool) {
	for f := range queue {
		if !c.wait(f.due) {
			return false
		}
		switch c.proxy.judgeReply(c.pop(f.data), f.data, lost) {
		case loseAndClose:
			return false
		case lose:
			lost = true
		case forward:
			if _, err := c.client.Write(f.data); err != nil {
				return false
			}
		}
	}
	return lost || c.proxy.blackHoled()
}

// wait waits until due and reports whether the connection is still open then.
func (c *conn) wait(due time.Time) bool {
	d := time.Until(due)
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.done:
		return false
	}
}

func (c *conn) push(request []byte) {
	if isSubscription(request) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending = append(c.pending, request)
}

// pop returns the request that reply answers, nil if none.
func (c *conn) pop(reply []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if isPush(reply) || len(c.pending) == 0 {
		return nil
	}
	request := c.pending[0]
	c.pending = c.pending[1:]
	return request
}

// close closes both ends. It may be called more than once.
func (c *conn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	close(c.done)
	c.client.Close()
	if c.server != nil {
		c.server.Close()
	}
}
