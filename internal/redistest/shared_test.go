package redistest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/herdgate/herdgate/internal/redistest"
)

type runner func() int

func (r runner) Run() int { return r() }

func TestSharedServerIsOneForAllAndEndsWithTheRun(t *testing.T) {
	var shared redistest.Shared
	s := shared.Server(t)
	code := shared.Around(runner(func() int {
		if again := shared.Server(t); again != s || !s.Running() {
			t.Error("no shared server")
		}
		return 3
	})).Run()
	if code != 3 || s.Running() {
		t.Errorf("exit code %d, running %v", code, s.Running())
	}
}

func TestGoleakOverlooksRunningServers(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	s := redistest.Server(t)
	goleak.VerifyNone(t, ignore, redistest.IgnoreServers())
	must(t, s.Close())
	goleak.VerifyNone(t, ignore)
}
