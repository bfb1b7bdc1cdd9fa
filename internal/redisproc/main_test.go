package redisproc_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/herdgate/herdgate/internal/redisproc"
)

// asParent makes the test binary start a server, print its address and wait to be killed.
const asParent = "HERDGATE_TEST_AS_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(asParent) == "" {
		goleak.VerifyTestMain(m)
		return
	}
	s, err := redisproc.Start(redisproc.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(s.Addr())
	select {}
}
