package middleware_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/herdgate/herdgate/internal/redistest"
)

var servers redistest.Shared

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(servers.Around(m), redistest.IgnoreServers())
}
