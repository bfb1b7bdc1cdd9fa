package middleware_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/herdgate/herdgate/middleware"
)

const page = "<p>a page that is worth compressing</p>"

// compress is what many compressing layers do: they name Accept-Encoding in Vary only when they compress.
func compress(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Add("Vary", "Accept-Encoding")
		z := &gzipWriter{ResponseWriter: w, zip: gzip.NewWriter(w)}
		next.ServeHTTP(z, r)
		_ = z.zip.Close()
	})
}

type gzipWriter struct {
	http.ResponseWriter
	zip *gzip.Writer
}

func (w *gzipWriter) WriteHeader(status int) {
	w.Header().Del("Content-Length")
	w.ResponseWriter.WriteHeader(status)
}

func (w *gzipWriter) Write(b []byte) (int, error) {
	w.Header().Del("Content-Length")
	return w.zip.Write(b)
}

// go-chi/stampede#15: with a compressing layer outside, what was stored said Content-Encoding: gzip over bytes
// that were not compressed. On either side of the cache, and whoever comes first, everybody gets what he can
// read.
func TestCompressionOnEitherSideIsReadableForAll(t *testing.T) {
	unnamed := func(next http.Handler) http.Handler {
		return compress(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Del("Vary") // it says nothing of what it looked at
			next.ServeHTTP(w, r)
		}))
	}
	for name, set := range map[string]setting{
		"outside":              {outer: compress},
		"inside":               {inner: compress},
		"inside, not a word":   {inner: unnamed},
		"inside, and foreseen": {inner: unnamed, opts: middleware.Options{Policy: middleware.Policy{Encodings: []string{"gzip"}}}},
	} {
		for _, first := range []string{"gzip", "identity", ""} {
			t.Run(name+"/"+first, func(t *testing.T) {
				protocols(t, func(t *testing.T, p protocol) {
					s := p.open(t, set, fresh(func(*http.Request) string { return page }))
					for _, encoding := range []string{first, "gzip", "identity", "gzip", "", "gzip", "identity"} {
						var fields []string
						if encoding != "" {
							fields = []string{"Accept-Encoding", encoding}
						}
						readable(t, s.get("/", fields...), encoding)
					}
				})
			})
		}
	}
}

// readable fails the test unless the answer is the page, in an encoding that was asked for.
func readable(t *testing.T, a reply, asked string) {
	t.Helper()
	body := a.body
	switch encoding := a.header["Content-Encoding"]; {
	case len(encoding) == 1 && encoding[0] == "gzip" && asked == "gzip":
		z, err := gzip.NewReader(strings.NewReader(body))
		if err != nil {
			t.Errorf("says that it is gzip: %v", err)
			return
		}
		plain, err := io.ReadAll(z)
		if err != nil {
			t.Errorf("breaks off: %v", err)
		}
		body = string(plain)
	case len(encoding) != 0:
		t.Errorf("asked for %q, got %q", asked, encoding)
	}
	if n := a.header.Get("Content-Length"); n != "" && n != strconv.Itoa(len(a.body)) {
		t.Errorf("Content-Length %s, but %d bytes", n, len(a.body))
	}
	if body != page {
		t.Errorf("got %q", body)
	}
}

// go-chi/stampede#3: a handler that wrote nothing was stored with the status 0, on which the next request
// panicked. Nothing is an empty 200, every time.
func TestHandlerThatWritesNothingAnswersAnEmpty200(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"nothing":      func(w http.ResponseWriter, _ *http.Request) {},
		"headers only": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-A", "1") },
		"no bytes":     func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(nil) },
		"the status":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) },
		"two statuses": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusOK)
			w.WriteHeader(http.StatusNotFound)
		},
	} {
		for _, cc := range []string{"", "max-age=60"} {
			t.Run(name+"/"+cc, func(t *testing.T) {
				protocols(t, func(t *testing.T, p protocol) {
					s := p.open(t, setting{}, func(w http.ResponseWriter, r *http.Request) {
						if cc != "" {
							w.Header().Set("Cache-Control", cc)
						}
						h(w, r)
					})
					for range 3 {
						s.get("/").wants(t, "")
					}
				})
			})
		}
	}
}

// A hit has what the miss had: what the server adds to a handler's headers (the kind of content, the length,
// the date) is there as well, and the Date stays that of the run.
func TestHitHasTheHeadersOfTheMiss(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"text":  fresh(func(*http.Request) string { return page }),
		"bytes": fresh(func(*http.Request) string { return "\x89PNG\x0d\x0a\x1a\x0a" }),
		"empty": fresh(func(*http.Request) string { return "" }),
		"large": fresh(func(*http.Request) string { return strings.Repeat(page, 1000) }),
		"no kind": func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			fresh(func(*http.Request) string { return page })(w, nil)
		},
		"lines":          numbered("X-A", "1", "X-A", "2", "Link", "</a>", "Link", "</b>"),
		"after the head": func(w http.ResponseWriter, r *http.Request) { numbered()(w, r); w.Header().Set("X-Late", "1") },
		"redirect":       func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/b", http.StatusMovedPermanently) },
		"not found": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "max-age=60")
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, page)
		},
	} {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				s := p.open(t, setting{}, h)
				bare := p.connect(t, h)
				miss := s.get("/")
				s.sleep(5)
				hit := s.get("/")
				plain := (&scene{t: t, client: bare}).get("/")
				if hit.status != miss.status || hit.body != miss.body || hit.status != plain.status {
					t.Errorf("hit %v, miss %v, without a cache %v", hit, miss, plain)
				}
				if hits(hit) == 1 && hit.header.Get("Age") != "5" {
					t.Errorf("Age %q after five seconds", hit.header["Age"])
				}
				if miss.header.Get("Age") != "" {
					t.Errorf("a miss has the Age %q", miss.header["Age"])
				}
				if hits(hit) == 1 && hit.header.Get("Date") != miss.header.Get("Date") {
					t.Errorf("Date %q, was %q", hit.header["Date"], miss.header["Date"])
				}
				if plain.header.Get("Content-Length") == "" { // sent in chunks; the cache knows the length
					plain.header["Content-Length"] = []string{strconv.Itoa(len(plain.body))}
				}
				for _, a := range []reply{miss, hit, plain} {
					for _, name := range []string{"Age", "Date", "Cache-Status", "Etag"} {
						a.header.Del(name)
					}
				}
				if fmt.Sprint(hit.header) != fmt.Sprint(miss.header) || fmt.Sprint(miss.header) != fmt.Sprint(plain.header) {
					t.Errorf("hit %v\nmiss %v\nwithout a cache %v", hit.header, miss.header, plain.header)
				}
			})
		})
	}
}

// gregjones/httpcache#51, #50; darkweak/souin#667, #249: a part was stored and then answered requests for the
// whole, in production for all images of a site.
func TestPartIsNeverTakenForTheWhole(t *testing.T) {
	const whole = "0123456789abcdef"
	content := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		w.Header().Set("Etag", `"v1"`)
		http.ServeContent(w, r, "a.txt", time.Time{}, strings.NewReader(whole))
	}
	parts := []struct {
		ask, body string
		status    int
	}{
		{"bytes=0-9", "0123456789", 206},
		{"bytes=0-0", "0", 206},
		{"bytes=10-", "abcdef", 206},
		{"bytes=-3", "def", 206},
		{"bytes=0-99", whole, 206},
		{"bytes=16-", "", 416},
		{"bytes=9-3", "", 416}, // as http.ServeContent has it
		{"lines=0-9", "", 416},
	}
	protocols(t, func(t *testing.T, p protocol) {
		for _, part := range parts {
			s := p.open(t, setting{}, content)
			for range 2 {
				a := s.get("/", "Range", part.ask)
				if a.status == http.StatusOK {
					a.wants(t, whole) // to ignore Range is always right
				} else if a.status != part.status || part.status == 206 && a.body != part.body {
					t.Errorf("%s: %v", part.ask, a)
				}
				s.get("/").wants(t, whole)
			}
			if n := s.source.total(); n > 2 {
				t.Errorf("%s: %d runs", part.ask, n)
			}
			if a := s.get("/", "Range", "bytes=0-3", "If-Range", `"v0"`); a.status != http.StatusOK || a.body != whole {
				t.Errorf("the part of another version: %v", a)
			}
		}
		// A crowd that asks for parts and for the whole.
		gate := make(chan struct{})
		s := p.open(t, setting{}, func(w http.ResponseWriter, r *http.Request) { <-gate; content(w, r) })
		c := s.crowd(20, func(i int) *http.Request {
			if i%2 == 0 {
				return s.request("/", "Range", "bytes=0-3")
			}
			return s.request("/")
		})
		close(gate)
		for i, a := range c.wait() {
			if i%2 == 1 || a.status == http.StatusOK {
				a.wants(t, whole)
			} else if a.status != http.StatusPartialContent || a.body != whole[:4] {
				t.Errorf("request %d: %v", i, a)
			}
		}
	})
	// A handler that answers with a part, or with nothing at all, unasked, and says that it may be kept.
	for _, status := range []int{http.StatusPartialContent, http.StatusNotModified} {
		protocols(t, func(t *testing.T, p protocol) {
			s := p.play(t, setting{}, scripted{{status, "", []string{"Cache-Control", "max-age=60"}}})
			s.get("/")
			s.get("/")
			s.ran(2)
		})
	}
	// A handler that answers a Range with a part, and says that it may be kept.
	protocols(t, func(t *testing.T, p protocol) {
		s := p.open(t, setting{}, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "max-age=60")
			if r.Header.Get("Range") != "" {
				w.Header().Set("Content-Range", "bytes 0-3/16")
				w.WriteHeader(http.StatusPartialContent)
				_, _ = io.WriteString(w, whole[:4])
				return
			}
			_, _ = io.WriteString(w, whole)
		})
		s.get("/", "Range", "bytes=0-3")
		s.get("/").wants(t, whole)
	})
}

// bartventer/httpcache#4: the values that Vary named were compared with the answer's headers, so nothing
// that varied was ever a hit.
func TestVariantsAreFoundAgain(t *testing.T) {
	for name, c := range map[string]struct {
		vary     []string
		requests [][]string // fields; equal ones share an answer
		runs     int
	}{
		"one header":        {[]string{"X-A"}, [][]string{{"X-A", "1"}, {"X-A", "2"}, {"X-A", "1"}}, 2},
		"absent is a value": {[]string{"X-A"}, [][]string{nil, {"X-A", "1"}, nil}, 2},
		"empty is another":  {[]string{"X-A"}, [][]string{{"X-A", ""}, nil, {"X-A", ""}}, 2},
		"in other letters":  {[]string{"x-a"}, [][]string{{"X-A", "1"}, {"X-A", "2"}, {"x-a", "1"}}, 2},
		"a list":            {[]string{"X-A, X-B"}, [][]string{{"X-A", "1", "X-B", "1"}, {"X-A", "1", "X-B", "2"}, {"X-A", "1", "X-B", "1"}}, 2},
		"two lines":         {[]string{"X-A", "X-B"}, [][]string{{"X-A", "1", "X-B", "1"}, {"X-A", "2", "X-B", "1"}, {"X-A", "1", "X-B", "1"}}, 2},
		"an empty member":   {[]string{", X-A,"}, [][]string{{"X-A", "1"}, {"X-A", "2"}, {"X-A", "1"}}, 2},
		"another header":    {[]string{"X-A"}, [][]string{{"X-B", "1"}, {"X-B", "2"}}, 1},
		"the answer's own":  {[]string{"X-Out"}, [][]string{nil, nil, {"X-Out", "other"}, nil}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				s := p.open(t, setting{}, func(w http.ResponseWriter, r *http.Request) {
					w.Header()["Vary"] = c.vary
					w.Header().Set("X-Out", "1")
					fresh(func(r *http.Request) string { return r.Header.Get("X-A") + "/" + r.Header.Get("X-Out") })(w, r)
				})
				for _, fields := range c.requests {
					r := s.request("/", fields...)
					s.do(r).wants(t, r.Header.Get("X-A")+"/"+r.Header.Get("X-Out"))
				}
				s.ran(c.runs)
			})
		})
	}
}

// a-luna/fastapi-redis-cache#39: a 304 lacked what the 200 would have said of freshness, and clients lost it.
// And the first caller's condition must not make a 304 of everybody's answer.
func TestNotModifiedSaysWhatTheWholeAnswerWouldHaveSaid(t *testing.T) {
	modified := time.Date(1999, 12, 1, 0, 0, 0, 0, time.UTC)
	content := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		w.Header().Set("Etag", `"v1"`)
		w.Header().Set("Vary", "X-A")
		w.Header().Set("Content-Location", "/a.html")
		w.Header().Set("Expires", "Sat, 01 Jan 2000 00:01:00 GMT")
		http.ServeContent(w, r, "a.html", modified, bytes.NewReader([]byte(page)))
	}
	old, young := modified.Add(-time.Hour).Format(http.TimeFormat), modified.Add(time.Hour).Format(http.TimeFormat)
	for name, c := range map[string]struct {
		fields []string
		status int
	}{
		"the tag":                       {[]string{"If-None-Match", `"v1"`}, 304},
		"the tag, weak":                 {[]string{"If-None-Match", `W/"v1"`}, 304},
		"in a list":                     {[]string{"If-None-Match", `"v0", "v1"`}, 304},
		"on two lines":                  {[]string{"If-None-Match", `"v0"`, "If-None-Match", `"v1"`}, 304},
		"any":                           {[]string{"If-None-Match", "*"}, 304},
		"another tag":                   {[]string{"If-None-Match", `"v2"`}, 200},
		"the time":                      {[]string{"If-Modified-Since", young}, 304},
		"an older time":                 {[]string{"If-Modified-Since", old}, 200},
		"the tag beats the time":        {[]string{"If-None-Match", `"v1"`, "If-Modified-Since", old}, 304},
		"another tag beats the time":    {[]string{"If-None-Match", `"v2"`, "If-Modified-Since", young}, 200},
		"a time that is none":           {[]string{"If-Modified-Since", "yesterday"}, 200},
		"a tag with a comma in it":      {[]string{"If-None-Match", `"v0,v1", "v1"`}, 304},
		"a tag that only looks like it": {[]string{"If-None-Match", `"v1x"`}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, p protocol) {
				s := p.open(t, setting{}, content)
				for _, age := range []string{"", "5"} { // a miss, and a hit
					a := s.get("/", c.fields...)
					if a.status != c.status {
						t.Errorf("age %q: got %v, want %d", age, a, c.status)
					}
					if a.status == http.StatusNotModified && a.body != "" {
						t.Errorf("a 304 with a body: %q", a.body)
					}
					for _, name := range []string{"Cache-Control", "Etag", "Vary", "Date", "Content-Location", "Expires"} {
						if len(a.header[name]) != 1 {
							t.Errorf("age %q: %s is %q", age, name, a.header[name])
						}
					}
					if age != "" && a.header.Get("Age") != age {
						t.Errorf("Age is %q", a.header["Age"])
					}
					s.get("/").wants(t, page)
					s.sleep(5)
				}
				s.ran(1)
			})
		})
	}
}

// A HEAD is answered from a stored GET, without its body; what a HEAD brings answers no GET (go-chi/stampede
// answered GETs with nothing).
func TestHeadAndGetAreNotMixedUp(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		s := p.open(t, setting{}, fresh(func(*http.Request) string { return page }))
		for _, method := range []string{"HEAD", "GET", "HEAD", "GET"} {
			a := s.do(s.method(method, "/"))
			if want := map[string]string{"GET": page}[method]; a.err != nil || a.status != 200 || a.body != want {
				t.Errorf("%s: %v", method, a)
			}
			if got := a.header.Get("Content-Length"); got != strconv.Itoa(len(page)) {
				t.Errorf("%s: Content-Length %q", method, got)
			}
		}
		if n := s.source.total(); n > 2 {
			t.Errorf("%d runs", n)
		}
		gate := make(chan struct{})
		s = p.open(t, setting{}, func(w http.ResponseWriter, r *http.Request) {
			<-gate
			fresh(func(*http.Request) string { return page })(w, r)
		})
		c := s.crowd(20, func(i int) *http.Request { return s.method([]string{"HEAD", "GET"}[i%2], "/") })
		close(gate)
		for i, a := range c.wait() {
			if want := []string{"", page}[i%2]; a.err != nil || a.status != 200 || a.body != want {
				t.Errorf("request %d: %v", i, a)
			}
		}
	})
}

// Next.js CVE-2023-46298: an empty answer to a prefetch, without a word about caching, was kept for everybody.
// Without a word of the handler's, and without a TTL in the policy, nothing is kept.
func TestAnswerWithoutAWordIsNotKept(t *testing.T) {
	protocols(t, func(t *testing.T, p protocol) {
		s := p.open(t, setting{}, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Purpose") != "prefetch" {
				_, _ = io.WriteString(w, page)
			}
		})
		s.get("/", "Purpose", "prefetch").wants(t, "")
		s.get("/").wants(t, page)
	})
}
