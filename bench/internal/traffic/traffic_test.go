package traffic_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/herdgate/herdgate/bench/internal/measure"
	"github.com/herdgate/herdgate/bench/internal/traffic"
)

func TestMain(m *testing.M) {
	traffic.Main() // tests start themselves as clients
	os.Exit(m.Run())
}

// server answers with 5 bytes and notes which pages were asked for, and how often.
func server(t *testing.T) (addr string, asked func() map[string]int) {
	var mu sync.Mutex
	pages := make(map[string]int)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		pages[r.URL.Path]++
		first := pages[r.URL.Path] == 1
		mu.Unlock()
		if !first {
			w.Header().Set("Cache-Status", "test; hit")
		}
		if r.Header.Get("Authorization") != "" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte("hello"))
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://"), func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		return pages
	}
}

func start(t *testing.T) *traffic.Client {
	c, err := traffic.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	return c
}

func TestClientTellsWhatItHasSent(t *testing.T) {
	for _, pages := range []traffic.Pages{traffic.One, traffic.Own, traffic.Together} {
		t.Run(fmt.Sprint(pages), func(t *testing.T) {
			addr, asked := server(t)
			const connections = 4
			order := traffic.Order{Addr: addr, Connections: connections, Pages: pages, Size: 5, Want: "; hit", For: 50 * time.Millisecond}
			c := start(t)
			requests, wanted := 0, 0
			for range 2 { // the second time on the same connections
				a, err := c.Send(order)
				if err != nil {
					t.Fatal(err)
				}
				if took, err := measure.DecodeLatency(a.Latency); err != nil || took.Count() != int64(a.Requests) || a.Took < order.For {
					t.Errorf("%d requests in %v, of which %d were timed, error %v", a.Requests, a.Took, took.Count(), err)
				}
				requests, wanted = requests+a.Requests, wanted+a.Wanted
			}
			seen := 0
			for page, n := range asked() {
				seen += n
				if pages == traffic.Own && n != 1 || pages == traffic.Together && n != connections {
					t.Errorf("%s was asked for %d times", page, n)
				}
			}
			if requests != seen || wanted != seen-len(asked()) {
				t.Errorf("%d requests and %d hits are told, the server saw %d of %d pages", requests, wanted, seen, len(asked()))
			}
			if pages == traffic.One && len(asked()) != 1 {
				t.Errorf("%d pages were asked for", len(asked()))
			}
		})
	}
}

func TestClientRefusesWhatItDidNotAskFor(t *testing.T) {
	addr, _ := server(t)
	for name, order := range map[string]traffic.Order{
		"401":         {Addr: addr, Connections: 1, Size: 5, Field: "Authorization: x"},
		"not 6":       {Addr: addr, Connections: 1, Size: 6},
		"connect":     {Addr: "127.0.0.1:1", Connections: 1, Size: 5},
		"of 5 bytes,": {Addr: addr, Connections: 2, Size: 6, Pages: traffic.Together},
	} {
		order.For = 10 * time.Millisecond
		if _, err := start(t).Send(order); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("no word of %q: %v", name, err)
		}
	}
}
