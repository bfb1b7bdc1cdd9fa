package faultproxy

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/herdgate/herdgate/internal/loopback"
)

// Proxy forwards connections to a Redis server. Its methods may be called from any goroutine.
type Proxy struct {
	target string
	addr   string
	wg     sync.WaitGroup

	mu       sync.Mutex // protects everything below
	listener net.Listener
	closed   bool
	conns    map[*conn]struct{}
	faults   faults
	captures []*Capture
	stats    Stats
}

// faults is what fails now.
type faults struct {
	toServer, toClient time.Duration
	blackHole          bool
	swallowReplies     bool
	drop               Drop
}

// Drop says which replies to lose; see DropReplies.
type Drop struct {
	// N is how many replies to lose. Zero: none.
	N int
	// Match limits the loss to replies to such requests. Nil: any.
	Match Match
	// Close also closes the client's connection. Otherwise the client waits in vain.
	Close bool
}

// Match reports whether it means a request, given in the bytes of its Redis protocol form.
type Match func(request []byte) bool

// Containing matches requests that contain s anywhere, letters' case ignored.
func Containing(s string) Match {
	want := bytes.ToLower([]byte(s))
	return func(request []byte) bool { return bytes.Contains(bytes.ToLower(request), want) }
}

// Stats counts what went through a proxy.
type Stats struct {
	Accepted       int   // connections ever accepted
	Open           int   // connections open now
	Requests       int   // requests forwarded
	Replies        int   // replies forwarded, messages included
	DroppedReplies int   // replies lost, whatever the fault
	BytesToServer  int64 // bytes forwarded to the server
	BytesToClient  int64 // bytes forwarded to clients
}

// New returns a proxy to the server at target, without any fault, that listens on a free port of 127.0.0.1.
func New(target string) (*Proxy, error) {
	l, err := loopback.Listen()
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, addr: l.Addr().String(), conns: map[*conn]struct{}{}}
	p.serve(l)
	return p, nil
}

// Addr returns the address that clients connect to.
func (p *Proxy) Addr() string {
	return p.addr
}

// Stats returns the counts so far.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Open = len(p.conns)
	return s
}

// SetDelay holds every request toServer and every reply toClient for so long before it is forwarded, those of a pipeline side by
// side. Zero: no delay.
func (p *Proxy) SetDelay(toServer, toClient time.Duration) {
	p.setFaults(func(f *faults) { f.toServer, f.toClient = toServer, toClient })
}

// BlackHole makes all requests and replies vanish, as if the network were cut. Connections are accepted and stay open.
func (p *Proxy) BlackHole(on bool) {
	p.setFaults(func(f *faults) { f.blackHole = on })
}

// SwallowReplies makes all replies vanish: the server does what it is told, the client does not learn of it.
func (p *Proxy) SwallowReplies(on bool) {
	p.setFaults(func(f *faults) { f.swallowReplies = on })
}

// DropReplies makes the next d.N replies vanish whose requests d matches: the server has done what it was told, the client does
// not learn of it. It replaces an earlier Drop that is not used up; Drop{} revokes it.
func (p *Proxy) DropReplies(d Drop) {
	p.setFaults(func(f *faults) { f.drop = d })
}

func (p *Proxy) setFaults(set func(*faults)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	set(&p.faults)
}

// RefuseNew closes the listener, so that new connections are refused, or opens it again on the same port. Connections that exist
// are left alone.
func (p *Proxy) RefuseNew(on bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return errors.New("faultproxy: closed")
	case on && p.listener != nil:
		l := p.listener
		p.listener = nil
		return l.Close()
	case !on && p.listener == nil:
		l, err := net.Listen("tcp", p.addr)
		if err != nil {
			return fmt.Errorf("faultproxy: %w", err)
		}
		p.serveLocked(l)
	}
	return nil
}

// CloseConns closes all connections, both to clients and to the server.
func (p *Proxy) CloseConns() {
	for _, c := range p.snapshot() {
		c.close()
	}
}

func (p *Proxy) snapshot() []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	conns := make([]*conn, 0, len(p.conns))
	for c := range p.conns {
		conns = append(conns, c)
	}
	return conns
}

// Close stops listening, closes all connections and waits until nothing of the proxy runs any more.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	l := p.listener
	p.listener = nil
	p.mu.Unlock()
	var err error
	if l != nil {
		err = l.Close()
	}
	p.CloseConns()
	p.wg.Wait()
	return err
}

func (p *Proxy) serve(l net.Listener) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.serveLocked(l)
}

func (p *Proxy) serveLocked(l net.Listener) {
	p.listener = l
	p.wg.Go(func() { p.accept(l) })
}

func (p *Proxy) accept(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		c := newConn(p, client.(*net.TCPConn))
		if !p.add(c) {
			client.Close()
			return
		}
		p.wg.Go(func() {
			defer p.remove(c)
			c.run()
		})
	}
}

// add admits c unless the proxy is closed.
func (p *Proxy) add(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.conns[c] = struct{}{}
	p.stats.Accepted++
	return true
}

func (p *Proxy) remove(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *Proxy) delayToServer() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults.toServer
}

func (p *Proxy) delayToClient() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults.toClient
}

func (p *Proxy) blackHoled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults.blackHole
}

// admitRequest decides on a request: forward it or lose it. Captures take their copy here.
func (p *Proxy) admitRequest(request []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.faults.blackHole || p.capture(request) {
		return false
	}
	p.stats.Requests++
	p.stats.BytesToServer += int64(len(request))
	return true
}

type verdict int

const (
	forward verdict = iota
	lose
	loseAndClose
)

// judgeReply decides on a reply. The request is nil for a message; lost says that the connection lost a reply before.
func (p *Proxy) judgeReply(request, reply []byte, lost bool) verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := &p.faults
	dropped := !lost && request != nil && f.drop.N > 0 && (f.drop.Match == nil || f.drop.Match(request))
	if dropped {
		f.drop.N--
	}
	if !lost && !dropped && !f.blackHole && !f.swallowReplies {
		p.stats.Replies++
		p.stats.BytesToClient += int64(len(reply))
		return forward
	}
	p.stats.DroppedReplies++
	if dropped && f.drop.Close {
		return loseAndClose
	}
	return lose
}
