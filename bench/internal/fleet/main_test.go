package fleet_test

import (
	"os"
	"testing"

	"github.com/herdgate/herdgate/bench/internal/fleet"
	"github.com/herdgate/herdgate/internal/redistest"
)

var shared redistest.Shared

func TestMain(m *testing.M) {
	fleet.Main() // tests start themselves as pods
	os.Exit(shared.Around(m).Run())
}
