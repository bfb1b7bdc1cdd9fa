package middleware_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/herdgate/herdgate/middleware"
	"github.com/herdgate/herdgate/stampede"
)

func TestKeysOfDifferentURLsDiffer(t *testing.T) {
	seen := make(map[string]string)
	for _, raw := range []string{
		"/", "/a", "/A", "/a/", "//a", "/./a", "/a%2e", "/a.", "/a%2F", "/a?", "/a??", "/a?id=1", "/a?id=2", "/a?id=1&", "/a?&id=1", "/a?id=1;b",
		"/a%3Fid=1", "/a?a=1&b=2", "/a?b=2&a=1", "/a?a=1&a=1", "/a?a=%31",
	} {
		u, err := url.ParseRequestURI(raw)
		if err != nil {
			t.Fatal(err)
		}
		k, name := middleware.BaseKey("", "p", "http", "h", u.EscapedPath(), middleware.QueryOf(u))
		if other, ok := seen[k]; ok {
			t.Errorf("%s and %s share a key", raw, other)
		}
		seen[k] = raw
		if len(name) != 43 || strings.ContainsAny(name, "/?") {
			t.Errorf("%q is known to the store as %q", raw, name)
		}
	}
}

func TestRoutesWithPrefixesStrippedAreKeptApart(t *testing.T) {
	s := &site{t: t}
	var err error
	if s.cache, err = middleware.New(new(stampede.MemoryStore), minute()); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for _, prefix := range []string{"/one", "/two"} {
		mux.Handle(prefix+"/", http.StripPrefix(prefix, s.cache.Handler(s.counted(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "b")
			fmt.Fprint(w, prefix, " ", r.URL.Path)
		}))))
	}
	s.start(mux)
	for range 2 {
		for _, prefix := range []string{"/one", "/two"} {
			if a := s.get(prefix + "/a"); a.body != prefix+" /a" {
				t.Errorf("%q", a.body)
			}
		}
	}
	s.wantRuns(2)
	s.get("/one/b")
	s.do(http.MethodPost, "/one/a") // invalidates itself and what Location names
	s.get("/one/a")
	s.get("/one/b")
	s.get("/two/a")
	s.wantRuns(6)
}

func FuzzBaseKey(f *testing.F) {
	f.Add("", "p", "http", "a", "/", "", "1", "p", "http", "a", "/", "")
	f.Add("", "p", "http", "a", "/b", "?c", "", "p", "http", "a/", "b", "?c")
	f.Fuzz(func(t *testing.T, a1, a2, a3, a4, a5, a6, b1, b2, b3, b4, b5, b6 string) {
		a, b := [6]string{a1, a2, a3, a4, a5, a6}, [6]string{b1, b2, b3, b4, b5, b6}
		ka, na := middleware.BaseKey(a1, a2, a3, a4, a5, a6)
		kb, nb := middleware.BaseKey(b1, b2, b3, b4, b5, b6)
		if (ka == kb) != (a == b) || (na == nb) != (a == b) {
			t.Errorf("%q and %q", a, b)
		}
	})
}

func FuzzVariantKey(f *testing.F) {
	f.Add("k", "h:A", "1", "h:B", "2", "k", "h:A", "1\x01h:B", "h:B", "2")
	f.Fuzz(func(t *testing.T, a1, a2, a3, a4, a5, b1, b2, b3, b4, b5 string) {
		a, b := [5]string{a1, a2, a3, a4, a5}, [5]string{b1, b2, b3, b4, b5}
		if got := middleware.VariantKey(a1, a2, a3, a4, a5) == middleware.VariantKey(b1, b2, b3, b4, b5); got != (a == b) {
			t.Errorf("%q and %q", a, b)
		}
		if middleware.VariantKey(a1, a2, a3) == middleware.VariantKey(b1, b2, b3, b4, b5) {
			t.Errorf("%q: a dimension is lost", b)
		}
	})
}

func FuzzKeptQuery(f *testing.F) {
	f.Add("id=1&utm=2&id=3;x")
	f.Add("%69d=1&id=%zz")
	f.Fuzz(func(t *testing.T, raw string) {
		kept := middleware.KeptQuery(raw, []string{"id"})
		values, err := url.ParseQuery(kept)
		if err != nil {
			t.Errorf("%q leaves %q: %v", raw, kept, err)
		}
		for name := range values {
			if name != "id" {
				t.Errorf("%q leaves %q", raw, kept)
			}
		}
		// The handler sees of id what it would have seen.
		all, _ := url.ParseQuery(raw)
		if strings.Join(all["id"], "|") != strings.Join(values["id"], "|") {
			t.Errorf("%q: %q, then %q", raw, all["id"], values["id"])
		}
		if again := middleware.KeptQuery(kept, []string{"id"}); again != kept {
			t.Errorf("%q, then %q", kept, again)
		}
	})
}
