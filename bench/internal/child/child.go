// Package child starts this program once more, as a process of its own that takes part in a measurement.
package child

import (
	"context"
	"io"
	"os"
	"os/exec"
)

// Start starts it with env set to 1, by which it knows what it is for. It is killed when ctx ends. What is written to in
// is its standard input; out is its standard output.
func Start(ctx context.Context, env string) (cmd *exec.Cmd, in io.WriteCloser, out io.Reader, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, nil, err
	}
	cmd = exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), env+"=1")
	cmd.Stderr = os.Stderr
	if in, err = cmd.StdinPipe(); err != nil {
		return nil, nil, nil, err
	}
	if out, err = cmd.StdoutPipe(); err != nil {
		return nil, nil, nil, err
	}
	return cmd, in, out, cmd.Start()
}
