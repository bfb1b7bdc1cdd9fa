package measure_test

import (
	"testing"

	"github.com/herdgate/herdgate/bench/internal/measure"
)

// BenchmarkReadAlong is what counting adds to a write of GETRANGE and PTTL.
func BenchmarkReadAlong(b *testing.B) {
	request := []byte("*4\r\n$8\r\ngetrange\r\n$16\r\nproduct-00000001\r\n$1\r\n0\r\n$7\r\n8388607\r\n*2\r\n$4\r\npttl\r\n$16\r\nproduct-00000001\r\n")
	read := measure.ReadAlong()
	b.ReportAllocs()
	for b.Loop() {
		read(request)
	}
}
