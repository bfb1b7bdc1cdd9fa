package middlewaretest

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// How long the handler's first run is held back: until the whole crowd is there, and settled; or at most so long.
const (
	settled  = 20 * time.Millisecond
	heldBack = 5 * time.Second
)

// CheckCollapse reports when n requests at the same moment, on an empty cache, make the handler run more than
// once, or get different answers. n below 2 means 2.
//
// That the answer is not shared has a reason as a rule, and the answer shows it: Cache-Control, Set-Cookie,
// Vary, a status that is not stored.
func CheckCollapse(t T, r Route, n int) {
	t.Helper()
	n = max(n, 2)
	if r.Handler == nil || r.Cache == nil {
		r.cached(t)
		return
	}
	var (
		runs  atomic.Int64
		began sync.WaitGroup // the requests that have not yet been sent
		ended sync.WaitGroup
		more  = make(chan struct{}) // closed by the second run
	)
	crowd := make(chan struct{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch runs.Add(1) {
		case 1:
			hold(crowd, more)
		case 2:
			close(more)
		}
		r.Handler.ServeHTTP(w, req)
	})
	cache := r.Cache()(handler)
	answers := make([]answer, n)
	began.Add(n)
	for i := range answers {
		ended.Go(func() {
			req := r.request()
			began.Done()
			answers[i] = r.ask(cache, req)
		})
	}
	began.Wait()
	close(crowd)
	ended.Wait()
	if got := runs.Load(); got != 1 {
		t.Errorf("middlewaretest: %d requests at the same moment were %d runs of the handler, whose answer had the status %d and the headers %v",
			n, got, answers[0].status, answers[0].header)
		return
	}
	for i := range answers[1:] {
		if what := answers[0].difference(&answers[i+1]); what != "" {
			t.Errorf("middlewaretest: %s differs between answers to requests at the same moment", what)
			return
		}
	}
}

// hold returns when the crowd has had time to settle, or a second run has begun.
func hold(crowd, more <-chan struct{}) {
	limit := time.After(heldBack)
	select {
	case <-crowd:
	case <-more:
		return
	case <-limit:
		return
	}
	select {
	case <-time.After(settled):
	case <-more:
	}
}
