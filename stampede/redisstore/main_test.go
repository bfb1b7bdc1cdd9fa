package redisstore_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/herdgate/herdgate/internal/redistest"
)

// shared are the servers of the tests that leave them in peace.
var shared redistest.Shared

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(shared.Around(m), redistest.IgnoreServers())
}
