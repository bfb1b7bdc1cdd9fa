package entry_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/herdgate/herdgate/internal/entry"
	"github.com/herdgate/herdgate/stampede"
)

var update = flag.Bool("update", false, "write golden files that do not exist; those that do are never changed")

const (
	space = "product:1"
	key   = "sku/42"
)

func stamp() (s stampede.Stamp) {
	for i := range 16 {
		s[i] = byte(0xf0 + i)
	}
	copy(s[16:], "1700000000123456")
	return s
}

// golden are entries whose encoding is kept in testdata for ever, by file name.
var golden = map[string]stampede.Entry{
	"v1-value": {
		Stamp: stamp(), Data: []byte("payload \x00\xff"), Type: 0x0123456789abcdef, Took: 120 * time.Millisecond,
		TTL: time.Minute, StaleFor: 5 * time.Minute, StaleIfError: 10 * time.Minute,
	},
	"v1-notfound": {Stamp: stamp(), NotFound: true, Took: time.Millisecond, TTL: 5 * time.Second},
	"v1-expired":  {Stamp: stamp(), Data: []byte{}, Expired: true, TTL: time.Hour, StaleFor: time.Hour},
	"v1-longest":  {Stamp: stamp(), Data: []byte("x"), Type: 1<<64 - 1, TTL: 200 * 365 * 24 * time.Hour},
}

func TestGoldenFilesAreWrittenAndReadAsEver(t *testing.T) {
	check := entry.Check(space, key)
	for name, want := range golden {
		file := filepath.Join("testdata", name+".hex")
		data := entry.Encode(&want, check)
		if _, err := os.Stat(file); *update && errors.Is(err, os.ErrNotExist) {
			if err := os.WriteFile(file, []byte(dump(data)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		kept, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(data, kept) {
			t.Errorf("%s: Encode wrote\n%s, the file holds\n%s", name, dump(data), text)
		}
		if got := entry.Decode(kept, check); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: Decode:\n got %+v\nwant %+v", name, got, want)
		}
	}
}

// dump is data in hex, 16 bytes a line.
func dump(data []byte) string {
	var b strings.Builder
	for len(data) > 0 {
		n := min(16, len(data))
		b.WriteString(hex.EncodeToString(data[:n]) + "\n")
		data = data[n:]
	}
	return b.String()
}

func TestDecodeSaysWhatIsWrong(t *testing.T) {
	check := entry.Check(space, key)
	valid := golden["v1-value"]
	change := func(f func(b []byte) []byte) []byte { return f(entry.Encode(&valid, check)) }
	for name, c := range map[string]struct {
		data    []byte
		want    error
		stamped bool
	}{
		"empty":        {nil, entry.ErrShort, false},
		"short":        {change(func(b []byte) []byte { return b[:entry.HeaderSize-1] }), entry.ErrShort, false},
		"magic":        {change(func(b []byte) []byte { b[0] = 'H'; return b }), entry.ErrMagic, false},
		"version":      {change(func(b []byte) []byte { b[2] = 2; return b }), entry.ErrVersion, false},
		"flags":        {change(func(b []byte) []byte { b[3] |= 4; return b }), entry.ErrFlags, true},
		"another key":  {entry.Encode(&valid, check+1), entry.ErrKey, true},
		"other spaces": {entry.Encode(&valid, entry.Check(space+"x", key)), entry.ErrKey, true},
	} {
		e := entry.Decode(c.data, check)
		if !errors.Is(e.Fault, c.want) {
			t.Errorf("%s: Fault is %v, want %v", name, e.Fault, c.want)
		}
		if got := e.Stamp == valid.Stamp; got != c.stamped {
			t.Errorf("%s: stamp read: %v, want %v", name, got, c.stamped)
		}
		if e.Data != nil || e.Freshness() != stampede.Dead {
			t.Errorf("%s: can be used", name)
		}
	}
}

func TestCheckTellsSpaceFromKey(t *testing.T) {
	if entry.Check("ab", "c") == entry.Check("a", "bc") {
		t.Error("ab/c and a/bc have one check")
	}
}

func TestEncodeRoundsDownAndClampsNegativeDurations(t *testing.T) {
	e := stampede.Entry{Stamp: stampede.Stamp{1}, TTL: 1999 * time.Microsecond, StaleFor: -time.Second, Took: -1}
	got := entry.Decode(entry.Encode(&e, 7), 7)
	if got.TTL != time.Millisecond || got.StaleFor != 0 || got.Took != 0 {
		t.Errorf("%+v", got)
	}
}

func TestDecodeAllocatesNothing(t *testing.T) {
	e := golden["v1-value"]
	data := entry.Encode(&e, 7)
	if n := testing.AllocsPerRun(100, func() { entry.Decode(data, 7) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzDecode(f *testing.F) {
	check := entry.Check(space, key)
	for _, e := range golden {
		f.Add(entry.Encode(&e, check), check)
	}
	f.Add([]byte("hg\x01"), uint64(0))
	f.Fuzz(func(t *testing.T, data []byte, check uint64) {
		e := entry.Decode(data, check)
		if e.Fault != nil {
			return
		}
		if len(e.Data) > len(data)-entry.HeaderSize {
			t.Fatalf("%d bytes of payload in %d", len(e.Data), len(data))
		}
		again := entry.Decode(entry.Encode(&e, check), check)
		if !reflect.DeepEqual(again, e) {
			t.Errorf("\n got %+v\nwant %+v", again, e)
		}
	})
}
