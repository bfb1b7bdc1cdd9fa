package lock_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/herdgate/herdgate/internal/redistest"
)

// shared are the servers of the tests that leave them in peace.
var shared redistest.Shared

func TestMain(m *testing.M) {
	redis.SetLogger(mute{})
	goleak.VerifyTestMain(shared.Around(m), redistest.IgnoreServers())
}

// mute is go-redis' log of connections that could not be opened.
type mute struct{}

func (mute) Printf(context.Context, string, ...any) {}
