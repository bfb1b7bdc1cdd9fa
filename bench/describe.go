package main

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/herdgate/herdgate/bench/internal/report"
)

// describe says what is run, where, and in which versions.
func describe(p *plan, redisVersion string) report.Run {
	run := report.Run{
		Time:       time.Now().UTC().Truncate(time.Minute),
		Command:    strings.TrimSpace("go run -C bench . " + strings.Join(os.Args[1:], " ")),
		CPU:        cpuName(),
		Cores:      runtime.NumCPU(),
		OS:         runtime.GOOS + "/" + runtime.GOARCH,
		Go:         runtime.Version(),
		Redis:      redisVersion,
		Versions:   make(map[string]string),
		Contenders: make(map[string]string),
	}
	modules := map[string]bool{"github.com/redis/go-redis/v9": true}
	for _, c := range p.contenders {
		if !slices.ContainsFunc(p.steps, func(s step) bool { return s.contender.Name == c.Name }) {
			continue
		}
		run.Contenders[c.Name] = c.About
		run.Order = append(run.Order, c.Name)
		if c.Module != "" {
			modules[c.Module] = true
		}
	}
	for _, w := range p.workloads {
		run.Workloads = append(run.Workloads, w.Workload)
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if modules[d.Path] {
				run.Versions[d.Path] = d.Version
			}
		}
	}
	return run
}

// cpuName is what the system calls the processor, where it can be asked easily.
func cpuName() string {
	text, err := os.ReadFile(filepath.FromSlash("/proc/cpuinfo"))
	if err == nil {
		for line := range strings.Lines(string(text)) {
			if name, ok := strings.CutPrefix(line, "model name"); ok {
				return strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(name), ":"))
			}
		}
	}
	return runtime.GOARCH
}
