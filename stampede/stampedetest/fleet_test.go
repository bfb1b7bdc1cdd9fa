package stampedetest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/stampedetest"
)

func TestFleetLoadsAColdKeyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := stampedetest.NewFleet[string](t, 4, new(stampede.MemoryStore), &stampede.Options{Name: "test"})
		loads := &stampedetest.Loads[string]{Value: func(key string, _ int) string { return "of " + key }, Takes: time.Second}
		answers := fleet.GetAll(t.Context(), 8, "k", loads.Loader("k"))
		if len(answers) != 32 {
			t.Errorf("%d answers, want 32", len(answers))
		}
		pods := map[int]int{}
		for _, a := range answers {
			if a.Value != "of k" || a.Err != nil || a.Took < time.Second {
				t.Errorf("pod %d: %q, %v after %v", a.Pod, a.Value, a.Err, a.Took)
			}
			pods[a.Pod]++
		}
		if len(pods) != 4 || pods[0] != 8 {
			t.Errorf("callers of pods: %v, want 8 of each of 4", pods)
		}
		loads.AssertLoads(t, 1)
		commits := 0
		for _, f := range fleet.Faulty {
			commits += f.Calls(stampedetest.StepCommit)
		}
		if commits != 1 {
			t.Errorf("%d commits, want 1", commits)
		}
	})
}
