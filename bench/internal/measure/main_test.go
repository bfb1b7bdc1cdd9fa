package measure_test

import (
	"os"
	"testing"

	"github.com/herdgate/herdgate/internal/redistest"
)

var shared redistest.Shared

func TestMain(m *testing.M) { os.Exit(shared.Around(m).Run()) }
