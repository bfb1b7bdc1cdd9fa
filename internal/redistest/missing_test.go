package redistest_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/herdgate/herdgate/internal/redisproc"
	"github.com/herdgate/herdgate/internal/redistest"
)

// outcome is a testing.TB that notes how it ended.
type outcome struct {
	testing.TB
	end string
}

func (o *outcome) Helper() {}

func (o *outcome) Skip(args ...any) {
	o.end = "skip: " + fmt.Sprint(args...)
	runtime.Goexit()
}

func (o *outcome) Fatal(args ...any) {
	o.end = "fatal: " + fmt.Sprint(args...)
	runtime.Goexit()
}

func (o *outcome) Fatalf(format string, args ...any) {
	o.Fatal(fmt.Sprintf(format, args...))
}

// endOf runs f as a test and returns how it ended.
func endOf(f func(testing.TB)) string {
	o := &outcome{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(o)
	}()
	<-done
	return o.end
}

func TestMissingServerSkipsTheTestButFailsItInCI(t *testing.T) {
	t.Setenv(redisproc.BinaryEnv, "no-such-redis-server")
	for ci, want := range map[string]string{"": "skip: ", "true": "fatal: "} {
		t.Setenv("CI", ci)
		for name, start := range map[string]func(testing.TB){
			"Server":   func(t testing.TB) { redistest.Server(t) },
			"Sentinel": func(t testing.TB) { redistest.Sentinel(t) },
			"Cluster":  func(t testing.TB) { redistest.Cluster(t) },
			"Shared":   func(t testing.TB) { new(redistest.Shared).Server(t) },
		} {
			end := endOf(start)
			if !strings.HasPrefix(end, want) || !strings.Contains(end, "apt-get install redis-server redis-sentinel") {
				t.Errorf("CI=%q: %s ended with %q", ci, name, end)
			}
			if strings.Count(end, "\n") != 0 {
				t.Errorf("CI=%q: %s ended with more than a line: %q", ci, name, end)
			}
		}
	}
}

func TestEventuallyFailsAtItsDeadline(t *testing.T) {
	if end := endOf(func(t testing.TB) { redistest.Eventually(t, 1, func() bool { return false }) }); !strings.HasPrefix(end, "fatal: ") {
		t.Errorf("ended with %q", end)
	}
	if end := endOf(func(t testing.TB) { redistest.Eventually(t, soon, func() bool { return true }) }); end != "" {
		t.Errorf("ended with %q", end)
	}
}
