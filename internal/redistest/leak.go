package redistest

import "go.uber.org/goleak"

// IgnoreServers lets goleak overlook the one goroutine that each running server has, where servers outlive the check.
func IgnoreServers() goleak.Option {
	return goleak.IgnoreAnyFunction("github.com/herdgate/herdgate/internal/redisproc.(*process).supervise")
}
