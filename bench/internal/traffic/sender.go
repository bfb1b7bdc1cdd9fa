package traffic

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/herdgate/herdgate/bench/internal/measure"
)

// sender keeps connections and sends requests on them. Its client is the least that speaks HTTP, since it shares the
// machine with the server.
type sender struct {
	conns map[string][]*conn // by address
	pages atomic.Int64       // asked for until now
}

func (s *sender) close() {
	for _, conns := range s.conns {
		for _, c := range conns {
			_ = c.Close()
		}
	}
}

func (s *sender) carryOut(o *Order) (a Answer) {
	conns, err := s.connect(o)
	if err != nil {
		a.Err = err.Error()
		return a
	}
	var mu sync.Mutex // protects a, all
	all := measure.NewLatency()
	begun, cpu := time.Now(), measure.CPU()
	s.turns(o, begun.Add(o.For), conns, func(r *record) {
		mu.Lock()
		defer mu.Unlock()
		a.Requests += r.requests
		a.Wanted += r.wanted
		all.Merge(r.took)
		if r.err != nil && a.Err == "" {
			a.Err = r.err.Error()
		}
	})
	a.Took, a.CPU = time.Since(begun), measure.CPU()-cpu
	a.Latency, err = all.Encode()
	if err != nil && a.Err == "" {
		a.Err = err.Error()
	}
	return a
}

// record is what one connection has done.
type record struct {
	requests, wanted int
	took             *measure.Latency
	err              error
}

// turns lets each connection send until the end, once at least, and gives each one's record to done.
func (s *sender) turns(o *Order, end time.Time, conns []*conn, done func(*record)) {
	var all sync.WaitGroup
	if o.Pages == Together {
		records := make([]record, len(conns))
		for i := range records {
			records[i].took = measure.NewLatency()
		}
		failed := false
		for first := true; !failed && (first || time.Now().Before(end)); first = false {
			page := s.pages.Add(1)
			for i, c := range conns {
				all.Go(func() { c.ask(o, page, &records[i]) })
			}
			all.Wait()
			for i := range records {
				failed = failed || records[i].err != nil
			}
		}
		for i := range records {
			done(&records[i])
		}
		return
	}
	for _, c := range conns {
		all.Go(func() {
			r := record{took: measure.NewLatency()}
			for r.err == nil && (r.requests == 0 || time.Now().Before(end)) {
				page := int64(0)
				if o.Pages == Own {
					page = s.pages.Add(1)
				}
				c.ask(o, page, &r)
			}
			done(&r)
		})
	}
	all.Wait()
}

// connect returns the connections to the server, of which it makes those that are missing.
func (s *sender) connect(o *Order) ([]*conn, error) {
	for len(s.conns[o.Addr]) < o.Connections {
		raw, err := new(net.Dialer).DialContext(context.Background(), "tcp", o.Addr)
		if err != nil {
			return nil, err
		}
		s.conns[o.Addr] = append(s.conns[o.Addr], &conn{Conn: raw, r: bufio.NewReaderSize(raw, 32<<10)})
	}
	return s.conns[o.Addr][:o.Connections], nil
}

// conn is a connection that is kept alive.
type conn struct {
	net.Conn
	r   *bufio.Reader
	out []byte
}

// ask asks for a page and notes how that went.
func (c *conn) ask(o *Order, page int64, r *record) {
	begun := time.Now()
	wanted, err := c.exchange(o, page)
	if err != nil {
		r.err = err
		return
	}
	r.took.Record(time.Since(begun))
	r.requests++
	if wanted {
		r.wanted++
	}
}

// exchange sends a request and reads its answer, a 200 of the right size.
func (c *conn) exchange(o *Order, page int64) (wanted bool, err error) {
	c.out = strconv.AppendInt(append(c.out[:0], "GET /page/"...), page, 10)
	c.out = append(c.out, " HTTP/1.1\r\nHost: bench.example\r\n"...)
	if o.Field != "" {
		c.out = append(append(c.out, o.Field...), "\r\n"...)
	}
	c.out = append(c.out, "\r\n"...)
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return false, err
	}
	if _, err := c.Write(c.out); err != nil {
		return false, err
	}
	length := -1
	wanted = o.Want == ""
	for first := true; ; first = false {
		line, err := c.r.ReadSlice('\n')
		switch {
		case err != nil:
			return false, err
		case first && !bytes.HasPrefix(line, []byte("HTTP/1.1 200 ")):
			return false, fmt.Errorf("the server answers %.40q", line)
		case first:
			continue
		case len(line) == len("\r\n"):
			if length != o.Size {
				return false, fmt.Errorf("an answer of %d bytes, not %d", length, o.Size)
			}
			_, err := c.r.Discard(length)
			return wanted, err
		}
		name, value, ok := bytes.Cut(line, []byte(": "))
		switch {
		case !ok:
			return false, errors.New("the server's header cannot be read")
		case string(name) == "Content-Length":
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return false, err
			}
		case string(name) == "Cache-Status":
			wanted = wanted || bytes.Contains(value, []byte(o.Want))
		}
	}
}
