package stampedetest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/stampedetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openMemory(*testing.T) stampede.Store { return new(stampede.MemoryStore) }

func TestMemoryStoreKeepsTheContract(t *testing.T) {
	stampedetest.TestStore(t, openMemory, stampedetest.Parallel())
}

func TestMemoryStoreKeepsTheContractInABubble(t *testing.T) {
	stampedetest.TestStore(t, openMemory, stampedetest.InBubble())
}
