package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// bench is a copy of the tree, in which one mutant at a time is tried.
type bench struct {
	dir     string
	timeout time.Duration
	sound   map[string]error // by test: how it went without any mutant
}

// kill returns which test noticed the mutant; none if no test did.
func (b *bench) kill(ctx context.Context, m mutant) (by string, err error) {
	path := filepath.Join(b.dir, filepath.FromSlash(m.file))
	whole, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(whole), m.old); n != 1 {
		return "", fmt.Errorf("the text to replace occurs %d times in %s", n, m.file)
	}
	for _, test := range m.tests { // a test that is red anyway proves nothing
		if _, done := b.sound[test]; !done {
			b.sound[test] = b.green(ctx, test)
		}
		if err := b.sound[test]; err != nil {
			return "", fmt.Errorf("without the mutant, %s: %w", test, err)
		}
	}
	broken := strings.Replace(string(whole), m.old, m.new, 1)
	if err := os.WriteFile(path, []byte(broken), 0o600); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.WriteFile(path, whole, 0o600)) }()
	for _, test := range m.tests {
		out, err := b.test(ctx, test)
		switch {
		case err == nil:
		case bytes.Contains(out, []byte("[build failed]")) || bytes.Contains(out, []byte("[setup failed]")):
			return "", fmt.Errorf("it does not build:\n%s", out)
		default:
			return red(out, test), nil
		}
	}
	return "", nil
}

func (b *bench) green(ctx context.Context, test string) error {
	out, err := b.test(ctx, test)
	switch {
	case err != nil:
		return fmt.Errorf("%w\n%s", err, last(out, 30))
	case bytes.Contains(out, []byte("no tests to run")):
		return errors.New("there is no such test")
	}
	return nil
}

// test runs "NAME=value ... arguments of go test".
func (b *bench) test(ctx context.Context, test string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	words := strings.Fields(test)
	env := 0
	for env < len(words) && strings.Contains(words[env], "=") && !strings.HasPrefix(words[env], "-") {
		env++
	}
	// Not vet: it looks at the code of the tests again for each mutant.
	args := append([]string{"test", "-vet=off", "-timeout", b.timeout.String()}, words[env:]...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), words[:env]...)
	cmd.WaitDelay = time.Second // a test binary may outlive go test
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return out, err
}

// red names what was red in the output of a test.
func red(out []byte, test string) string {
	name := test
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "--- FAIL: "); ok && name == test {
			name, _, _ = strings.Cut(rest, " ")
		}
		if _, fault, ok := strings.Cut(line, "FAULT: "); ok {
			return name + ": " + fault
		}
		if strings.HasPrefix(line, "panic: ") {
			return name + ": " + line
		}
	}
	return name
}

func last(out []byte, lines int) []byte {
	all := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	return bytes.Join(all[max(0, len(all)-lines):], []byte("\n"))
}

// copyTree copies what git tracks, or would track next, from here to dir.
func copyTree(ctx context.Context, dir string) error {
	// The tree may belong to another user than the one who tests it.
	out, err := exec.CommandContext(ctx, "git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	for name := range strings.SplitSeq(string(out), "\x00") {
		info, err := os.Lstat(name)
		if name == "" || err != nil || !info.Mode().IsRegular() { // deleted since, or a link
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(to, data, 0o600); err != nil {
			return err
		}
	}
	return nil
}
