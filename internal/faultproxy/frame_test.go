package faultproxy_test

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/herdgate/herdgate/internal/faultproxy"
)

func TestFramesAreCutWhereTheyEnd(t *testing.T) {
	frames := []string{
		"PING\r\n",
		"\r\n",
		"+OK\r\n",
		"-ERR no\r\n",
		":42\r\n",
		"_\r\n",
		"#t\r\n",
		",1.5\r\n",
		"(12345678901234567890\r\n",
		"$-1\r\n",
		"$0\r\n\r\n",
		"$4\r\na\r\nb\r\n",
		"=5\r\ntxt:a\r\n",
		"!5\r\nERR a\r\n",
		"*-1\r\n",
		"*0\r\n",
		"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
		"*2\r\n*1\r\n:1\r\n$-1\r\n",
		"~2\r\n:1\r\n:2\r\n",
		"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:2\r\n",
		">2\r\n+message\r\n+x\r\n",
		"|1\r\n+ttl\r\n:3\r\n$1\r\nv\r\n",
	}
	r := bufio.NewReader(strings.NewReader(strings.Join(frames, "")))
	for _, want := range frames {
		if got, err := faultproxy.ReadFrame(r); err != nil || string(got) != want {
			t.Fatalf("got %q, %v; want %q", got, err, want)
		}
	}
	if _, err := faultproxy.ReadFrame(r); !errors.Is(err, io.EOF) {
		t.Errorf("got %v at the end", err)
	}
}

func TestBrokenFramesAreErrors(t *testing.T) {
	for _, in := range []string{"PING", "$x\r\n", "$5\r\nabc", "*2\r\n:1\r\n", "*x\r\n", "*2\r\n$x\r\n:1\r\n"} {
		if got, err := faultproxy.ReadFrame(bufio.NewReader(strings.NewReader(in))); err == nil {
			t.Errorf("%q: got %q", in, got)
		}
	}
}
