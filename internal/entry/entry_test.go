package entry_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

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
	"v1-tags": {
		Stamp: stamp(), Data: []byte("payload"), TTL: time.Minute, StaleFor: time.Minute,
		Tags: &stampede.Tags{AsOf: stampede.TagTime{Epoch: 1<<52 - 1, Number: 1700000000123456}, Names: []string{"category:7", "\x00\xff"}},
	},
	"v1-tags-notfound": {
		Stamp: stamp(), NotFound: true, Expired: true, TTL: time.Second,
		Tags: &stampede.Tags{Names: []string{strings.Repeat("t", stampede.MaxTagSize)}},
	},
	"v1-tags-most": {Stamp: stamp(), Data: []byte{}, TTL: time.Second, Tags: &stampede.Tags{AsOf: stampede.TagTime{Epoch: 1<<64 - 1, Number: 1}, Names: mostTags()}},
}

// mostTags are as many as an entry may have.
func mostTags() (names []string) {
	for i := range stampede.MaxTags {
		names = append(names, string(rune('A'+i)))
	}
	return names
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
		"flags":        {change(func(b []byte) []byte { b[3] |= 8; return b }), entry.ErrFlags, true},
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

// resum gives b the checksum that it would have been written with.
func resum(b []byte) []byte {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.Write(b[36:76])
	_, _ = d.Write(b[84:])
	return append(binary.BigEndian.AppendUint64(b[:76:76], d.Sum64()), b[84:]...)
}

func TestDecodeRefusesTagsThatMakeNoSense(t *testing.T) {
	check := entry.Check(space, key)
	e := golden["v1-tags"] // 16 bytes, the count, 10 and 2 bytes with their lengths
	const block = entry.HeaderSize
	for name, change := range map[string]func(b []byte) []byte{
		"no block":             func(b []byte) []byte { return b[:block] },
		"a part of the block":  func(b []byte) []byte { return b[:block+16] },
		"none":                 func(b []byte) []byte { b[block+16] = 0; return b },
		"too many":             func(b []byte) []byte { b[block+16] = stampede.MaxTags + 1; return b },
		"more than there are":  func(b []byte) []byte { b[block+16] = 3; return b[:block+17+11+3] },
		"an empty one":         func(b []byte) []byte { b[block+17] = 0; return b },
		"longer than the rest": func(b []byte) []byte { b[block+17+11] = 255; return b },
		"cut in a length":      func(b []byte) []byte { return b[:block+17+11] },
	} {
		b := resum(change(entry.Encode(&e, check)))
		if got := entry.Decode(b, check); !errors.Is(got.Fault, entry.ErrTags) || got.Stamp != e.Stamp || got.Tags != nil || got.Data != nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	sound := resum(entry.Encode(&e, check))
	if got := entry.Decode(sound, check); !reflect.DeepEqual(got, e) {
		t.Errorf("a sound one: %+v", got)
	}
	sound[block] ^= 1
	if got := entry.Decode(sound, check); !errors.Is(got.Fault, entry.ErrSum) {
		t.Errorf("a damaged one: %v", got.Fault)
	}
}

func TestTagsThatCannotBeEncoded(t *testing.T) {
	long := strings.Repeat("t", stampede.MaxTagSize)
	for name, c := range map[string]struct {
		tags *stampede.Tags
		ok   bool
	}{
		"nil":      {nil, true},
		"most":     {&stampede.Tags{Names: mostTags()}, true},
		"long":     {&stampede.Tags{Names: []string{long}}, true},
		"none":     {&stampede.Tags{}, false},
		"too many": {&stampede.Tags{Names: append(mostTags(), "one more")}, false},
		"empty":    {&stampede.Tags{Names: []string{"a", ""}}, false},
		"too long": {&stampede.Tags{Names: []string{long + "t"}}, false},
	} {
		if err := entry.CheckTags(c.tags); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
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
		if len(data) >= entry.HeaderSize { // else hardly any would get past the checksum
			data = resum(data)
		}
		e := entry.Decode(data, check)
		if e.Fault != nil {
			return
		}
		if err := entry.CheckTags(e.Tags); err != nil {
			t.Fatalf("%v: %+v", err, e.Tags)
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
