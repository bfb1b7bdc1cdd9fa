package redisstore_test

import (
	"strings"
	"testing"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/redisstore"
)

func names(t testing.TB, key stampede.Key) redisstore.Names {
	t.Helper()
	n, err := redisstore.NamesOf(key)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestNamesOfKeys(t *testing.T) {
	long := strings.Repeat("k", 513)
	for key, want := range map[string]string{
		"plain":         "app:{4c78fdc7}:v:plain",
		"user:{7}:name": "app:{7}:v:user:{7}:name",
		"{a}{b}":        "app:{a}:v:{a}{b}",
		"{}x{y}":        "app:{b63e7562}:v:{}x{y}",
		"}abc":          "app:{6aa1c896}:v:}abc",
		"{open":         "app:{0a5d5311}:v:{open",
		long:            "app:{3c4b75c6}:V:45a7c7ef95c3417e800362f5672aba16da807261fe7121f3a81b0a0fb6b9a05c",
		"{tag}" + long:  "app:{tag}:V:",
	} {
		n := names(t, stampede.Key{Space: "app", Key: key})
		if n.Entry != want && !strings.HasPrefix(n.Entry, "app:{tag}:V:") {
			t.Errorf("%.20q: %q, want %q", key, n.Entry, want)
		}
		for kind, other := range map[string]string{":l:": n.Lease, ":w:": n.Channel} {
			entry := n.Entry
			if strings.Contains(entry, "}:V:") {
				kind = strings.ToUpper(kind)
				entry = strings.Replace(entry, "}:V:", "}:v:", 1)
			}
			if want := strings.Replace(entry, "}:v:", "}"+kind, 1); other != want {
				t.Errorf("%.20q: %q, want %q", key, other, want)
			}
		}
	}
}

func TestSpacesAndKeysThatCannotBeStored(t *testing.T) {
	for _, key := range []stampede.Key{{Space: "", Key: "k"}, {Space: "a{", Key: "k"}, {Space: "a}", Key: "k"}, {Space: "a"}} {
		if n, err := redisstore.NamesOf(key); err == nil {
			t.Errorf("%+v: %+v", key, n)
		}
	}
}

var seeds = []string{
	"k", "{", "}", "{}", "}{", "{a}", "a{b}c", "{a}{b}", "{{a}}", "}abc", "a:b", "v:a", "}:v:a", "\x00", "\xff{\xfe}",
	strings.Repeat("k", 512), strings.Repeat("k", 513), "{" + strings.Repeat("t", 600) + "}",
}

// slot is what Redis Cluster makes of a key: CRC16 of its hash tag, modulo 16384.
func slot(key string) uint16 {
	if i := strings.IndexByte(key, '{'); i >= 0 {
		if j := strings.IndexByte(key[i+1:], '}'); j > 0 {
			key = key[i+1 : i+1+j]
		}
	}
	var crc uint16
	for _, c := range []byte(key) {
		crc ^= uint16(c) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % 16384
}

func FuzzNamesShareASlot(f *testing.F) {
	for _, s := range seeds {
		f.Add("app:1", s)
	}
	f.Fuzz(func(t *testing.T, space, key string) {
		n, err := redisstore.NamesOf(stampede.Key{Space: space, Key: key})
		if err != nil {
			return
		}
		if a, b, c := slot(n.Entry), slot(n.Lease), slot(n.Channel); a != b || a != c {
			t.Errorf("%q of %q: slots %d, %d, %d", key, space, a, b, c)
		}
		// Keys that the user put together stay together.
		if tag := slot(key); strings.ContainsAny(key, "{") && len(key) <= 512 && tag != slot(n.Entry) {
			if i := strings.IndexByte(key, '{'); strings.IndexByte(key[i+1:], '}') > 0 {
				t.Errorf("%q has slot %d, its entry %d", key, tag, slot(n.Entry))
			}
		}
	})
}

func FuzzNamesDiffer(f *testing.F) {
	for i, s := range seeds {
		f.Add("app", s, "app:x", seeds[(i+1)%len(seeds)])
		f.Add("a", s, "a", "{"+s+"}")
		f.Add("a", s, "a:d", s)
	}
	f.Fuzz(func(t *testing.T, space1, key1, space2, key2 string) {
		a, err1 := redisstore.NamesOf(stampede.Key{Space: space1, Key: key1})
		b, err2 := redisstore.NamesOf(stampede.Key{Space: space2, Key: key2})
		if err1 != nil || err2 != nil {
			return
		}
		seen := map[string]bool{a.Entry: true}
		for _, name := range []string{a.Lease, a.Channel, a.Drop} {
			if seen[name] {
				t.Fatalf("%q twice among the names of %q of %q", name, key1, space1)
			}
			seen[name] = true
		}
		same := space1 == space2 && key1 == key2
		for _, name := range []string{b.Entry, b.Lease, b.Channel} {
			if seen[name] != same {
				t.Errorf("%q of %q and %q of %q: shared %q", key1, space1, key2, space2, name)
			}
		}
		if (a.Drop == b.Drop) != (space1 == space2) {
			t.Errorf("drop channels of %q and %q: %q, %q", space1, space2, a.Drop, b.Drop)
		}
	})
}
