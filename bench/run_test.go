package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/bench/internal/contender"
	"github.com/herdgate/herdgate/bench/internal/report"
	"github.com/herdgate/herdgate/bench/internal/workload"
)

// interrupter is told of progress, and interrupts once the second run has begun.
type interrupter struct {
	cancel context.CancelFunc
}

func (i interrupter) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "2/") {
		i.cancel()
	}
	return len(p), nil
}

func TestAnInterruptedRunReportsWhatWasMeasured(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	dir := t.TempDir()
	cfg := &config{quick: true, run: "memory-hit", contenders: "otter,herdgate-memory", redis: server.Addr(), out: dir}
	var out bytes.Buffer
	if err := start(ctx, cfg, &out, interrupter{cancel}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "| otter |") || strings.Contains(out.String(), "| **herdgate-memory** |") {
		t.Errorf("not the one run that was made is shown:\n%s", out.String())
	}
	if !strings.Contains(out.String(), "interrupted") {
		t.Errorf("that it was interrupted is not said:\n%s", out.String())
	}
	f, err := os.Open(filepath.Join(dir, "results.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	run, results, err := report.Read(f)
	if err != nil || len(results) != 1 || run.Redis == "" {
		t.Errorf("%d results of %+v, error %v", len(results), run, err)
	}
	var again bytes.Buffer
	if err := start(t.Context(), &config{render: f.Name()}, &again, &again); err != nil {
		t.Fatal(err)
	}
	if again.String() != out.String() {
		t.Error("a file of results is not shown as the run was")
	}
}

func TestPlanLetsContendersTakeTurns(t *testing.T) {
	p, err := newPlan(&config{run: "cold", contenders: "none,herdgate", repeats: 2})
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, s := range p.steps {
		order = append(order, s.contender.Name)
	}
	if got := strings.Join(order, " "); got != "none herdgate herdgate none" {
		t.Errorf("they run as %s", got)
	}
}

func TestPlanKnowsItsNames(t *testing.T) {
	for _, cfg := range []*config{{run: "warm"}, {contenders: "nobody"}, {run: "memory-hit", contenders: "none"}} {
		if _, err := newPlan(cfg); err == nil {
			t.Errorf("%+v is a plan", cfg)
		}
	}
}

// What would waste half an hour is found before anything is measured.
func TestAMistakeIsFoundBeforeAnythingIsMeasured(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]config{
		"a directory that cannot be": {out: filepath.Join(file, "results")},
		"a file for a directory":     {out: file},
		"less than no repeats":       {repeats: -1},
		"too many repeats":           {repeats: maxRepeats + 1},
		"a word that is no flag":     {words: []string{"storm"}},
	} {
		cfg.quick, cfg.run, cfg.contenders, cfg.redis = true, "memory-hit", "otter", server.Addr()
		var progress bytes.Buffer
		if err := start(t.Context(), &cfg, new(bytes.Buffer), &progress); err == nil || progress.Len() > 0 {
			t.Errorf("%s: error %v, after\n%s", name, err, progress.String())
		}
	}
}

func TestARunThatNeverReturnsIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := make(chan struct{})
		defer close(gone)
		s := step{variant: workload.Variant{Takes: time.Second, Run: func(context.Context, *workload.Rig, contender.Contender) (report.Result, error) {
			<-gone
			return report.Result{}, nil
		}}}
		begun := time.Now()
		_, err := runStep(t.Context(), new(workload.Rig), s)
		if took := time.Since(begun); err == nil || took > time.Minute {
			t.Errorf("error %v after %v", err, took)
		}
	})
}
