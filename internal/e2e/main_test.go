package e2e_test

import (
	"context"
	"flag"
	"io"
	"log/slog"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/herdgate/herdgate/internal/redistest"
)

// shared are the servers of the tests that leave them in peace.
var shared redistest.Shared

func TestMain(m *testing.M) {
	if isChild() {
		os.Exit(childMain())
	}
	flag.Parse()
	if !given("test.parallel") {
		// Most of the time the tests wait for real clocks, so more of them fit on a machine than it has cores.
		_ = flag.Set("test.parallel", parallel)
	}
	redis.SetLogger(mute{})
	goleak.VerifyTestMain(metered{shared.Around(m)})
}

// mute is go-redis' log of connections that could not be opened.
type mute struct{}

func (mute) Printf(context.Context, string, ...any) {}

// given says whether a flag is on the command line.
func given(name string) (ok bool) {
	flag.Visit(func(f *flag.Flag) { ok = ok || f.Name == name })
	return ok
}

// metered measures the machine while the tests run.
type metered struct{ inner redistest.Runner }

func (m metered) Run() int {
	defer machine.run()()
	return m.inner.Run()
}

// quiet is the logger of pods whose Redis is in trouble on purpose.
func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }
