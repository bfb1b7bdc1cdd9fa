package middleware_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/herdgate/herdgate/middleware"
	"github.com/herdgate/herdgate/stampede"
)

// sink is a ResponseWriter that keeps nothing.
type sink struct{ h http.Header }

func (s *sink) Header() http.Header         { return s.h }
func (s *sink) Write(p []byte) (int, error) { return len(p), nil }
func (s *sink) WriteHeader(int)             {}

// BenchmarkServe is what the cache itself costs, beside a handler that is called directly. What a server and a
// connection cost on top is measured in bench/.
func BenchmarkServe(b *testing.B) {
	for _, size := range []int{1 << 10, 100 << 10} {
		body := make([]byte, size)
		h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			_, _ = w.Write(body)
		})
		c, err := middleware.New(new(stampede.MemoryStore), &middleware.Options{Policy: middleware.Policy{TTL: time.Hour}})
		if err != nil {
			b.Fatal(err)
		}
		for _, m := range []struct {
			name    string
			handler http.Handler
			cookie  string
		}{{"bare", h, ""}, {"hit", c.Handler(h), ""}, {"bypass", c.Handler(h), "a=b"}} {
			b.Run(m.name+"/"+strconv.Itoa(size), func(b *testing.B) {
				b.ReportAllocs()
				r, _ := http.NewRequest(http.MethodGet, "http://example.com/report?a=1", nil)
				if m.cookie != "" {
					r.Header.Set("Cookie", m.cookie)
				}
				for b.Loop() {
					m.handler.ServeHTTP(&sink{make(http.Header)}, r)
				}
			})
		}
	}
}
