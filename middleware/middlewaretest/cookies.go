package middlewaretest

import "net/http"

// CheckCookies reports every cookie that the handler sets. An answer with a cookie is somebody's own: the
// middleware neither stores nor shares it, so the route is not protected, and a cache that does store it
// hands one caller's session to all. The handler is asked twice, without cookies and as somebody who has one.
func CheckCookies(t T, r Route) {
	t.Helper()
	if r.Handler == nil {
		t.Fatalf("middlewaretest: Route needs a Handler")
		return
	}
	seen := make(map[string]bool)
	for _, cookie := range []*try{nil, {"Cookie", "session=alice"}} {
		a := r.ask(r.Handler, r.with(cookie))
		for _, line := range a.header.Values("Set-Cookie") {
			name := line
			if c, err := http.ParseSetCookie(line); err == nil {
				name = c.Name
			}
			if !seen[name] {
				seen[name] = true
				t.Errorf("middlewaretest: the route sets the cookie %q, so its answers are not shared", name)
			}
		}
	}
}
