package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/herdgate/herdgate/internal/redisproc"
)

// traffic is what clients send to a server, as MONITOR shows it.
type traffic struct {
	server *redisproc.Server
	conn   net.Conn
	done   chan struct{}

	mu   sync.Mutex // protects sent
	sent map[string][]string
}

// By address; what scripts call has none.
var sentLine = regexp.MustCompile(`^\+[\d.]+ \[\d+ ([\d.]+:\d+)\] "([^"]*)"`)

func listen(t testing.TB, s *redisproc.Server) *traffic {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Addr())
	must(t, err)
	_, err = conn.Write([]byte("MONITOR\r\n"))
	must(t, err)
	x := &traffic{server: s, conn: conn, done: make(chan struct{}), sent: map[string][]string{}}
	r := bufio.NewReader(conn)
	_, err = r.ReadString('\n')
	must(t, err)
	go func() {
		defer close(x.done)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			if m := sentLine.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
				x.mu.Lock()
				x.sent[m[1]] = append(x.sent[m[1]], strings.ToLower(m[2]))
				x.mu.Unlock()
			}
		}
	}()
	t.Cleanup(x.stop)
	return x
}

func (x *traffic) stop() {
	_ = x.conn.Close()
	<-x.done
}

// readRequest is what a read is.
const readRequest = "getrange+pttl"

// byClient returns how often each client, by name, sent each request. A GETRANGE with its PTTL is one request: they travel together.
// What a connection is opened with does not count.
func (x *traffic) byClient(t testing.TB) map[string]map[string]int {
	t.Helper()
	list, _ := do(t, x.server, "CLIENT", "LIST").(string)
	names := map[string]string{}
	for line := range strings.Lines(list) {
		var addr, name string
		for field := range strings.FieldsSeq(line) {
			if v, ok := strings.CutPrefix(field, "addr="); ok {
				addr = v
			}
			if v, ok := strings.CutPrefix(field, "name="); ok {
				name = v
			}
		}
		names[addr] = name
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	all := map[string]map[string]int{}
	for addr, commands := range x.sent {
		name := names[addr]
		if name == "" {
			continue
		}
		if all[name] == nil {
			all[name] = map[string]int{}
		}
		for _, c := range commands {
			switch c {
			case "getrange":
				c = readRequest
			case "pttl", "hello", "client", "ping", "info":
				continue
			}
			all[name][c]++
		}
	}
	return all
}

func counts(m map[string]int) (text string, sum int) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		text += fmt.Sprintf("%s %d, ", name, m[name])
		sum += m[name]
	}
	return strings.TrimSuffix(text, ", "), sum
}

// nothingLoaded is a loader without a value of interest.
func nothingLoaded(context.Context) (string, error) { return "", nil }
