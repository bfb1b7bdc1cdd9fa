// Command mutants shows that the tests can fail: it breaks the code on purpose, in a copy of the tree,
// once for each file of list, and runs the tests that are there to notice. It fails if one of them
// notices nothing, or if the text to be replaced is not there any more.
//
//	go run ./internal/mutants            all of them
//	go run ./internal/mutants commit     those with "commit" in their name
//
// A mutant is a file of this form, where old must occur once in the named file:
//
//	why:  Commit does not say whether it was accepted.
//	file: stampede/recompute.go
//	test: ./stampede -run TestSomething
//	--- old
//		case Accepted:
//	--- new
//		case Accepted, Refused:
//	--- end
//
// "test" is what follows go test, with variables in front if it needs some. There may be several; they
// run until one is red.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

const list = "internal/mutants/list"

func main() {
	timeout := flag.Duration("timeout", 2*time.Minute, "how long one run of a test may take, with its build")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, flag.Args(), *timeout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, words []string, timeout time.Duration) error {
	mutants, err := read(list, words)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "herdgate-mutants-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := copyTree(ctx, dir); err != nil {
		return err
	}
	b := bench{dir: dir, timeout: timeout, sound: make(map[string]error)}
	killed := 0
	for _, m := range mutants {
		by, err := b.kill(ctx, m)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			fmt.Printf("FAULT     %-32s %v\n", m.name, err)
		case by == "":
			fmt.Printf("SURVIVED  %-32s %s\n", m.name, m.why)
		default:
			killed++
			fmt.Printf("killed    %-32s %s\n", m.name, by)
		}
	}
	if killed < len(mutants) {
		return fmt.Errorf("%d of %d mutants were not killed", len(mutants)-killed, len(mutants))
	}
	return nil
}

// mutant is one fault.
type mutant struct {
	name, why, file string
	tests           []string
	old, new        string
}

// read returns the mutants in dir whose name holds one of words, all of them if there are no words.
func read(dir string, words []string) (mutants []mutant, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.mutant"))
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".mutant")
		if !wanted(name, words) {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		m, err := parse(name, string(text))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", path, err))
		}
		mutants = append(mutants, m)
	}
	if len(mutants) == 0 {
		errs = append(errs, errors.New("there are none of that name"))
	}
	return mutants, errors.Join(errs...)
}

func wanted(name string, words []string) bool {
	for _, word := range words {
		if strings.Contains(name, word) {
			return true
		}
	}
	return len(words) == 0
}

func parse(name, text string) (m mutant, err error) {
	m.name = name
	head, rest, ok1 := strings.Cut(text, "--- old\n")
	before, rest, ok2 := strings.Cut(rest, "--- new\n")
	after, _, ok3 := strings.Cut(rest, "--- end")
	if !ok1 || !ok2 || !ok3 {
		return m, errors.New("no old, new and end, in this order")
	}
	m.old, m.new = before, after
	for line := range strings.Lines(head) {
		field, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		switch field {
		case "why":
			m.why = value
		case "file":
			m.file = value
		case "test":
			m.tests = append(m.tests, value)
		case "":
		default:
			return m, fmt.Errorf("unknown field %q", field)
		}
	}
	if m.why == "" || m.file == "" || len(m.tests) == 0 || m.old == "" || m.old == m.new {
		return m, errors.New("why, file, test, or a change is missing")
	}
	return m, nil
}
