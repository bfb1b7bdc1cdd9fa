package redisproc_test

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/herdgate/herdgate/internal/redistest"
)

func TestServerDiesWithItsParent(t *testing.T) {
	redistest.Server(t)             // skip where there is none
	t.Setenv("TMPDIR", t.TempDir()) // the files stay behind
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), asParent+"=1")
	parent.Stderr = os.Stderr
	out, err := parent.StdoutPipe()
	must(t, err)
	must(t, parent.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil {
		conn, err := net.Dial("tcp", strings.TrimSpace(line))
		must(t, err)
		must(t, conn.Close())
	}
	must(t, parent.Process.Kill())
	_ = parent.Wait() // killed
	must(t, err)
	redistest.Eventually(t, 5*time.Second, func() bool {
		conn, err := net.Dial("tcp", strings.TrimSpace(line))
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
}
