package middleware_test

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/herdgate/herdgate/middleware"
)

func TestCacheControlIsReadAsTheRFCSays(t *testing.T) {
	type d = middleware.Directives
	for text, want := range map[string]d{
		"":                             {},
		"no-store":                     {NoStore: true},
		"NO-Store , no-CACHE":          {NoStore: true, NoCache: true},
		`private="Set-Cookie", public`: {Private: true, Public: true},
		`no-cache="a, no-store"`:       {NoCache: true},
		"max-age=60":                   {MaxAge: "60"},
		`max-age="60"`:                 {MaxAge: "60"},
		"max-age='60'":                 {MaxAge: "0"},
		"max-age=0060":                 {MaxAge: "60"},
		"max-age=-1":                   {MaxAge: "0"},
		"max-age=1.5":                  {MaxAge: "0"},
		"max-age":                      {MaxAge: "0"},
		"max-age=99999999999999999999": {MaxAge: "2147483648"},
		"max-age=60, max-age=5":        {MaxAge: "5"},
		`a="b, max-age=60"`:            {},
		`a="b\", max-age=60", public`:  {Public: true},
		"s-maxage=1, must-revalidate":  {SMaxAge: "1", MustRevalidate: true},
		"stale-while-revalidate=3,stale-if-error=4": {StaleWhileRevalidate: "3", StaleIfError: "4"},
		"nothing-to-see-here":                       {},
		",, ,proxy-revalidate,":                     {ProxyRevalidate: true},
		"must-understand, only-if-cached":           {MustUnderstand: true, OnlyIfCached: true},

		// What breaks the grammar forbids what it may be meant to forbid, and permits nothing.
		"private; max-age=60":                       {Private: true, MaxAge: "0"},
		"max-age=60; private":                       {Private: true, MaxAge: "0"},
		"no-cache; NO-STORE":                        {NoCache: true, NoStore: true},
		"private max-age=60, s-maxage=5":            {Private: true, MaxAge: "0", SMaxAge: "5"},
		`max-age=60, a="b, private`:                 {Private: true, MaxAge: "60"},
		`a="b\", no-store`:                          {NoStore: true},
		`a="b"no-store, "private"`:                  {NoStore: true, Private: true},
		"[no-store]":                                {NoStore: true},
		"Cache-Control: private":                    {Private: true},
		"public; must-revalidate; only-if-cached":   {ProxyRevalidate: true},
		"public; s-maxage=60; stale-if-error=60":    {MaxAge: "0", StaleIfError: "0"},
		"x stale-while-revalidate=5":                {StaleWhileRevalidate: "0"},
		`a="b; no-store", not-private, private_`:    {},
		`a="no-store\\", b="private", no-store-yet`: {},
	} {
		if got := middleware.ParseCacheControl(text); got != want {
			t.Errorf("%s\n got %+v\nwant %+v", text, got, want)
		}
	}
	if got := middleware.ParseCacheControl("max-age=60", "no-store"); got.MaxAge != "60" || !got.NoStore {
		t.Errorf("two lines: %+v", got)
	}
}

func TestDatesAreReadInTheirThreeFormsOnly(t *testing.T) {
	want := time.Date(2050, 8, 18, 2, 1, 18, 0, time.UTC)
	for _, text := range []string{
		"Thu, 18 Aug 2050 02:01:18 GMT", "Thursday, 18-Aug-50 02:01:18 GMT", "Thu Aug 18 02:01:18 2050",
	} {
		if got, ok := middleware.ParseDate(text); !ok || got.Month() != want.Month() || got.Day() != want.Day() || got.Second() != 18 {
			t.Errorf("%q: %v %v", text, got, ok)
		}
	}
	for _, text := range []string{
		"", "0", "-1", "Thu, 18 Aug 50 02:01:18 GMT", "Thu, 18 Aug 2050 02:01:18 AEST", "Thu, 18 Aug 2050 2:01:18 GMT",
		"Thu 18 Aug 2050 02:01:18 GMT", "Thu, 18 Aug 2050 02:01:18", "Thu, 18 Aug 2050 02:01 GMT", "2050-08-18T02:01:18Z",
	} {
		if got, ok := middleware.ParseDate(text); ok {
			t.Errorf("%q was read as %v", text, got)
		}
	}
}

func TestAgeThatIsNotOneNumberIsOlderThanAnyLifetime(t *testing.T) {
	for text, want := range map[string]time.Duration{"0": 0, "7200": 7200 * time.Second} {
		if got := middleware.ParseAge([]string{text}); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	for _, lines := range [][]string{{"abc"}, {"-1"}, {"1.0"}, {"0, 0"}, {"0", "0"}, {""}, {"1;a=b"}} {
		if got := middleware.ParseAge(lines); got < 24*time.Hour {
			t.Errorf("%q: %v", lines, got)
		}
	}
}

func TestVaryNominatesFieldsOrEverything(t *testing.T) {
	for _, c := range []struct {
		lines []string
		want  string
		star  bool
	}{
		{nil, "", false}, {[]string{""}, "", false}, {[]string{"foo, BAR", "bar"}, "Bar Foo", false},
		{[]string{"*"}, "", true}, {[]string{"*, *"}, "", true}, {[]string{"", "*"}, "", true},
		{[]string{"Foo; Bar"}, "", true}, {[]string{"Foo Bar"}, "", true}, {[]string{`"Foo"`}, "", true}, {[]string{"Foo: Bar"}, "", true},
		{[]string{", *"}, "", true}, {[]string{"*, Foo"}, "", true}, {[]string{"Foo", "Bar, *"}, "", true},
	} {
		names, star := middleware.VaryFields(c.lines)
		if got := strings.Join(names, " "); got != c.want || star != c.star {
			t.Errorf("%q: %q %v", c.lines, got, star)
		}
	}
}

func TestSelectingFieldsAreComparedWithoutTheSpaceBetweenMembers(t *testing.T) {
	value := func(lines ...string) string {
		v, ok := middleware.Selecting(http.Header{"Foo": lines}, "Foo")
		return strconv.FormatBool(ok) + v
	}
	for _, same := range [][2]string{
		{value("1", "2"), value(" 1", "2 ")}, {value("1 ,2"), value("1,2")}, {value(" a "), value("a")},
	} {
		if same[0] != same[1] {
			t.Errorf("%q and %q differ", same[0], same[1])
		}
	}
	for _, other := range [][2]string{
		{value("1,2"), value("2,1")}, {value("a"), value("A")}, {value(), value("")}, {value(",a"), value("a")}, {value("a,"), value("a")},
		{value(`"a, b"`), value(`"a,b"`)}, {value("1,2"), value("1", "2")}, {value("1,2", "3"), value("1", "2,3")}, {value("", "1"), value("1")},
		{value("a", "b"), value("\x00\x01a\x01b")},
	} {
		if other[0] == other[1] {
			t.Errorf("%q stands for two", other[0])
		}
	}
}

func TestConditionsAreEvaluatedAgainstWhatIsStored(t *testing.T) {
	const early, late = "Thu, 01 Jan 2020 00:00:00 GMT", "Fri, 01 Jan 2021 00:00:00 GMT"
	for _, c := range []struct {
		name     string
		req, has http.Header
		want     bool
	}{
		{"no condition", nil, http.Header{"Etag": {`"a"`}}, false},
		{"same tag", http.Header{"If-None-Match": {`"a"`}}, http.Header{"Etag": {`"a"`}}, true},
		{"weak", http.Header{"If-None-Match": {`W/"a"`}}, http.Header{"Etag": {`"a"`}}, true},
		{"one of many", http.Header{"If-None-Match": {`"x", "a,b"`, `"c"`}}, http.Header{"Etag": {`"a,b"`}}, true},
		{"backslash", http.Header{"If-None-Match": {`"a\", "b"`}}, http.Header{"Etag": {`"b"`}}, true},
		{"other tag", http.Header{"If-None-Match": {`"b"`}}, http.Header{"Etag": {`"a"`}}, false},
		{"star", http.Header{"If-None-Match": {"*"}}, http.Header{}, true},
		{"tag before date", http.Header{"If-None-Match": {`"b"`}, "If-Modified-Since": {late}}, http.Header{"Etag": {`"a"`}, "Last-Modified": {early}}, false},
		{"since", http.Header{"If-Modified-Since": {late}}, http.Header{"Last-Modified": {early}}, true},
		{"modified since", http.Header{"If-Modified-Since": {early}}, http.Header{"Last-Modified": {late}}, false},
		{"by Date", http.Header{"If-Modified-Since": {late}}, http.Header{"Date": {early}}, true},
		{"no date", http.Header{"If-Modified-Since": {"yesterday"}}, http.Header{"Last-Modified": {early}}, false},
	} {
		if got := middleware.NotModified(c.req, c.has); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestAcceptEncodingIsReducedToWhatTheHandlerMayUse(t *testing.T) {
	codings := []string{"gzip", "br"}
	for text, want := range map[string]string{
		"": "", "gzip": "gzip", "br;q=0.1, gzip": "gzip, br", "gzip;q=0": "", "gzip;q=0.000, *": "br", "*": "gzip, br",
		"identity": "", "GZIP": "gzip", "deflate, zstd": "", "*;q=0, br": "br",
	} {
		h := http.Header{"Accept-Encoding": {text}}
		if got := middleware.AcceptedEncodings(h, codings); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestOverriddenLifetimeReplacesTheHandlersOwn(t *testing.T) {
	got := middleware.OverrideMaxAge([]string{`public, max-age=5 , S-MAXAGE=9`, `x="a, max-age=1"`}, time.Minute)
	if got != `max-age=60, public, x="a, max-age=1"` {
		t.Error(got)
	}
}

func FuzzCacheControl(f *testing.F) {
	for _, s := range []string{"", "max-age=1", `private="a,b", max-age`, `"`, `a="\`, "no-store,no-cache;x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		d := middleware.ParseCacheControl(line)
		if strings.Contains(line, `"`) || strings.ContainsAny(line, "\x00\r\n") {
			return
		}
		// Without quotes a list is what lies between commas: what forbids must not be overlooked.
		names := strings.FieldsFunc(strings.ToLower(line), func(r rune) bool { return r == ',' })
		for i, n := range names {
			n, _, _ = strings.Cut(n, "=")
			names[i] = strings.Trim(n, " \t")
		}
		for name, got := range map[string]bool{"no-store": d.NoStore, "private": d.Private, "no-cache": d.NoCache} {
			if !isASCII(line) {
				continue
			}
			if want := slices.Contains(names, name); want && !got || got && !strings.Contains(strings.ToLower(line), name) {
				t.Errorf("%q: %s is %v", line, name, got)
			}
		}
	})
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= 0x80 })
}

func FuzzVary(f *testing.F) {
	f.Add("Foo, Bar", "")
	f.Add(", *", "x")
	f.Fuzz(func(t *testing.T, a, b string) {
		names, star := middleware.VaryFields([]string{a, b})
		for _, line := range []string{a, b} {
			for member := range strings.SplitSeq(line, ",") {
				if strings.Trim(member, " \t") == "*" && !star {
					t.Errorf("%q, %q: the star was overlooked", a, b)
				}
			}
		}
		if star && names != nil || !slices.IsSorted(names) {
			t.Errorf("%q, %q: %q %v", a, b, names, star)
		}
	})
}

func FuzzAgeAndDates(f *testing.F) {
	f.Add("7200")
	f.Add("Thu, 18 Aug 2050 02:01:18 GMT")
	f.Fuzz(func(t *testing.T, text string) {
		if age := middleware.ParseAge([]string{text}); age < 0 {
			t.Errorf("%q: %v", text, age)
		}
		if at, ok := middleware.ParseDate(text); ok && at.Location() != time.UTC {
			t.Errorf("%q: %v", text, at)
		}
	})
}
