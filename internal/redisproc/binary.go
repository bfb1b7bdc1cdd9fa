package redisproc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// BinaryEnv names the environment variable that holds the path of redis-server. Without it PATH is searched.
const BinaryEnv = "HERDGATE_REDIS_SERVER"

// ErrNotInstalled means that there is no redis-server to start.
var ErrNotInstalled = errors.New("redisproc: redis-server not found; on Debian: apt-get install redis-server redis-sentinel; or set " + BinaryEnv)

func findBinary(path string) (string, error) {
	if path == "" {
		path = os.Getenv(BinaryEnv)
	}
	if path == "" {
		path = "redis-server"
	}
	found, err := exec.LookPath(path)
	if err != nil {
		return "", fmt.Errorf("%w (%w)", ErrNotInstalled, err)
	}
	return found, nil
}
