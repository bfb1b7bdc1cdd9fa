package redistest

import (
	"testing"

	"github.com/herdgate/herdgate/internal/faultproxy"
)

// Proxy puts a fault proxy before the server at target until t ends.
func Proxy(t testing.TB, target string) *faultproxy.Proxy {
	t.Helper()
	p, err := faultproxy.New(target)
	return use(t, p, err)
}
