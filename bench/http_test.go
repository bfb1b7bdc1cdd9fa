//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/herdgate/herdgate/middleware"
	"github.com/herdgate/herdgate/stampede"
)

const (
	connections = 64
	perRound    = 1024 // requests to each server in a round
)

// BenchmarkHTTP is the middleware over loopback connections that are kept alive, beside the bare handler that
// writes the same bytes. One iteration is a round of requests to the one and then to the other, so both see
// the same machine. The client is the least that speaks HTTP, lest its own cost hide the difference.
//
// x-bare is the throughput and cpu-x-bare the requests for each second of CPU, in those of the bare handler; the
// client's share, about half, is the same on both sides. On a machine that is not idle, only the second says
// much. allocs/req and bare-allocs/req are those of the server.
func BenchmarkHTTP(b *testing.B) {
	for _, size := range []int{1 << 10, 100 << 10} {
		bare := writes(size)
		for _, c := range []struct {
			name  string
			store func(b *testing.B) stampede.Store
			field string // of the request
		}{
			{"hit/memory", func(*testing.B) stampede.Store { return new(stampede.MemoryStore) }, ""},
			{"hit/redis", func(b *testing.B) stampede.Store { return newStore(b) }, ""},
			{"bypass", func(*testing.B) stampede.Store { return new(stampede.MemoryStore) }, "Authorization: Bearer x\r\n"},
		} {
			b.Run(fmt.Sprintf("%s/size=%dKiB", c.name, size>>10), func(b *testing.B) {
				o := new(middleware.Options)
				o.Guard.Name = b.Name() // one store, but entries of its own
				cache, err := middleware.New(c.store(b), o)
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = cache.Close(context.Background()) })
				compare(b, bare, cache.Handler(bare), size, c.field)
			})
		}
	}
}

// writes is a handler that answers with size bytes.
func writes(size int) http.Handler {
	body := bytes.Repeat([]byte("x"), size)
	length := strconv.Itoa(size)
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/plain")
		h.Set("Content-Length", length)
		h.Set("Cache-Control", "max-age=3600")
		_, _ = w.Write(body)
	})
}

// compare sends rounds of requests to both.
func compare(b *testing.B, bare, cached http.Handler, size int, field string) {
	request := []byte("GET /report HTTP/1.1\r\nHost: bench.example\r\n" + field + "\r\n")
	var sides [2]side
	for i, h := range []http.Handler{bare, cached} {
		sides[i] = connect(b, h)
		sides[i].request, sides[i].size = request, size
		sides[i].round(b) // fills the cache, and the connections' buffers
		sides[i].took, sides[i].cpu, sides[i].allocs = 0, 0, 0
	}
	for b.Loop() {
		for i := range sides {
			sides[i].round(b)
		}
	}
	n := float64(b.N * perRound)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(sides[0].took)/float64(sides[1].took), "x-bare")
	b.ReportMetric(float64(sides[0].cpu)/float64(sides[1].cpu), "cpu-x-bare")
	b.ReportMetric(n/sides[1].took.Seconds(), "req/s")
	b.ReportMetric(float64(sides[1].allocs)/n, "allocs/req")
	b.ReportMetric(float64(sides[0].allocs)/n, "bare-allocs/req")
}

// side is a server with the connections to it.
type side struct {
	conns   []*bufio.ReadWriter
	request []byte
	size    int // of the answer
	took    time.Duration
	cpu     time.Duration
	allocs  uint64
}

func connect(b *testing.B, h http.Handler) side {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	srv := &http.Server{Handler: h}
	go func() { _ = srv.Serve(ln) }()
	b.Cleanup(func() { _ = srv.Close() })
	var s side
	for range connections {
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = conn.Close() })
		s.conns = append(s.conns, bufio.NewReadWriter(bufio.NewReaderSize(conn, 16<<10), bufio.NewWriter(conn)))
	}
	return s
}

// round sends perRound requests, shared among the connections.
func (s *side) round(b *testing.B) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begun, cpu := time.Now(), cpuTime(b)
	var done sync.WaitGroup
	for _, conn := range s.conns {
		done.Go(func() {
			for range perRound / connections {
				if err := exchange(conn, s.request, s.size); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	done.Wait()
	s.took += time.Since(begun)
	s.cpu += cpuTime(b) - cpu
	runtime.ReadMemStats(&after)
	s.allocs += after.Mallocs - before.Mallocs
}

// cpuTime returns what this process has used.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// exchange sends a request and reads its answer, a 200 of that size.
func exchange(conn *bufio.ReadWriter, request []byte, size int) error {
	if _, err := conn.Write(request); err != nil {
		return err
	}
	if err := conn.Flush(); err != nil {
		return err
	}
	length := -1
	for first := true; ; first = false {
		line, err := conn.ReadSlice('\n')
		switch {
		case err != nil:
			return err
		case first && !bytes.HasPrefix(line, []byte("HTTP/1.1 200 ")):
			return fmt.Errorf("%.40q", line)
		case len(line) == 2:
			if length != size {
				return fmt.Errorf("%d bytes", length)
			}
			_, err := conn.Discard(length)
			return err
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			length = 0
			for _, c := range bytes.TrimSpace(value) {
				length = 10*length + int(c-'0')
			}
		}
	}
}
