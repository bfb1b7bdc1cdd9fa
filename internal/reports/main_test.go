// Package reports replays what users of other caches, locks and clients reported in public: each test names the report, as
// owner/repo#number, and checks that this module does what was asked for there. docs/reports.md lists them all.
package reports_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/herdgate/herdgate/internal/redistest"
)

// shared are the servers of the tests that do not change their settings.
var shared redistest.Shared

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(shared.Around(m), redistest.IgnoreServers())
}
