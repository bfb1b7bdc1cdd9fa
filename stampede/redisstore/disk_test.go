package redisstore_test

import (
	"os"
	"path/filepath"
	"testing"
)

// occupy puts a directory that is not empty in the place of a file, in the directory that CONFIG GET dir
// answered.
func occupy(t *testing.T, config any, file string) {
	t.Helper()
	var dir string
	switch c := config.(type) {
	case map[any]any:
		dir, _ = c["dir"].(string)
	case []any:
		dir, _ = c[1].(string)
	}
	if dir == "" {
		t.Fatalf("CONFIG GET dir: %v", config)
	}
	path := filepath.Join(dir, file)
	_ = os.Remove(path)
	if err := os.MkdirAll(filepath.Join(path, "occupied"), 0o700); err != nil {
		t.Fatal(err)
	}
}
