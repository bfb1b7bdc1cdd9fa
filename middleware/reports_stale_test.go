package middleware_test

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// scripted is a handler that answers the n-th run, and all after the last, as told: a status, a body and headers.
type scripted []struct {
	status int
	body   string
	header []string
}

func (p protocol) play(t *testing.T, set setting, script scripted) *scene {
	return p.open(t, set, func(w http.ResponseWriter, r *http.Request) {
		step := script[min(run(r), len(script))-1]
		setHeaders(w, step.header)
		w.WriteHeader(step.status)
		fmt.Fprint(w, step.body)
	})
}

// darkweak/souin#699, #684: the refresh ran under the request's ctx and died with it, every time; elsewhere
// stale was served for ever. Stale is served at once, and a moment later the entry is new, after one run,
// though whoever caused it is gone.
func TestRefreshOutlivesTheRequestThatCausedIt(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		s := p.open(t, setting{}, func(w http.ResponseWriter, r *http.Request) {
			n := run(r)
			if n > 1 {
				select {
				case <-time.After(100 * time.Millisecond):
				case <-r.Context().Done():
					http.Error(w, r.Context().Err().Error(), http.StatusServiceUnavailable)
					return
				}
			}
			w.Header().Set("Cache-Control", "max-age=10, stale-while-revalidate=60")
			fmt.Fprint(w, "answer ", n)
		})
		s.get("/").wants(t, "answer 1")
		s.sleep(11)
		begun := time.Now()
		s.get("/").wants(t, "answer 1")
		if took := time.Since(begun); took != 0 {
			t.Errorf("stale after %v", took)
		}
		s.sleep(1)
		for range 3 {
			s.get("/").wants(t, "answer 2")
		}
		s.ran(2)
	})
}

// darkweak/souin#846: the body was sent twice when a stale answer stood in for a failure. Byte for byte it is
// the answer that was, once.
func TestStaleAnswerStandsInForAFailure(t *testing.T) {
	const header = "max-age=10, stale-if-error=600"
	for _, failure := range []int{500, 502, 503, 504, 0} {
		t.Run(strconv.Itoa(failure), func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				var s *scene
				if failure == 0 {
					s = p.open(t, setting{}, func(w http.ResponseWriter, r *http.Request) {
						if run(r) > 1 {
							panic(http.ErrAbortHandler)
						}
						w.Header().Set("Cache-Control", header)
						fmt.Fprint(w, page)
					})
				} else {
					s = p.play(t, setting{}, scripted{
						{200, page, []string{"Cache-Control", header}},
						{failure, "failure", nil},
					})
				}
				s.get("/").wants(t, page)
				s.sleep(20)
				for range 3 {
					a := s.get("/")
					a.wants(t, page)
					if got := a.header["Content-Length"]; len(got) != 1 || got[0] != strconv.Itoa(len(page)) {
						t.Errorf("Content-Length %q", got)
					}
					s.sleep(5)
				}
				s.sleep(600)
				if a := s.do(s.request("/")); a.err == nil && a.status < 500 {
					t.Errorf("past its window: %v", a)
				}
			})
		})
	}
}

// A failure behind a stale hit leaves what can still be served; a later success replaces it.
func TestFailedRefreshLeavesTheStaleAnswer(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		good := []string{"Cache-Control", "max-age=10, stale-while-revalidate=600, stale-if-error=600"}
		s := p.play(t, setting{}, scripted{
			{200, "one", good},
			{503, "failure", []string{"Cache-Control", "max-age=60"}},
			{200, "two", good},
		})
		s.get("/").wants(t, "one")
		for range 2 {
			s.sleep(20)
			s.get("/").wants(t, "one")
		}
		s.sleep(20)
		s.get("/").wants(t, "two")
	})
}

// What the handler forbids is not served stale, whatever window there is; what it allows is, up to the
// window's end.
func TestHandlerDecidesWhatIsServedStale(t *testing.T) {
	for cc, stale := range map[string]bool{
		"max-age=10, stale-while-revalidate=60":                   true,
		"s-maxage=10, stale-while-revalidate=60":                  true,
		"max-age=10, stale-while-revalidate=60, must-revalidate":  false,
		"max-age=10, stale-while-revalidate=60, proxy-revalidate": false,
		"max-age=10, stale-while-revalidate=60, no-cache":         false,
		"max-age=10, stale-while-revalidate=2":                    false,
		"max-age=10, stale-while-revalidate=0":                    false,
		"s-maxage=10, max-age=600":                                false,
		"s-maxage=10":                                             false,
		"max-age=10, must-revalidate":                             false,
	} {
		t.Run(cc, func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				s := p.play(t, setting{}, scripted{
					{200, "old", []string{"Cache-Control", cc}},
					{200, "new", []string{"Cache-Control", cc}},
				})
				s.get("/").wants(t, "old")
				s.sleep(15)
				want := "new"
				if stale {
					want = "old"
				}
				a := s.get("/")
				if a.wants(t, want); stale && a.header.Get("Age") != "15" {
					t.Errorf("Age %q", a.header["Age"])
				}
				synctest.Wait()
				s.get("/").wants(t, "new")
			})
		})
	}
}
