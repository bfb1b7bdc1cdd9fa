package stampedetest

import (
	"strings"

	"github.com/herdgate/herdgate/stampede"
)

// hardKeys look alike, or look like what a store may make of keys.
func hardKeys() []string {
	keys := []string{
		"foo", "{foo}", "foo}", "{foo", "}foo{", "{}foo", "{}", "{", "}", "{{foo}}", "{foo}bar", "foo{bar}baz", "}abc", "v:{foo}",
		"v:foo", "l:foo", "w:foo", "V:foo", "L:foo", ":", "::", "a:b", "a::b", "foo:v", "foo:l",
		" ", "  ", "foo ", " foo", "\t", "\n", "\r\n", "foo\n", "foo\x00", "\x00foo", "\x00", "\xff", "\xff\xfe", "\x80foo",
		"é", "e\u0301", "FOO", "*", "foo*", "fo?", "[foo]", "%s", "foo%00", `"foo"`, `\x00`, "$1", "0", "-1", "nil",
	}
	for _, n := range []int{127, 128, 129, 255, 256, 257, 511, 512, 513, 1024, 4096, 1 << 16} {
		keys = append(keys, strings.Repeat("k", n), strings.Repeat("k", n-1)+"x", "x"+strings.Repeat("k", n-1))
	}
	return append(keys, "{"+strings.Repeat("t", 1000)+"}", "{"+strings.Repeat("t", 1000)+"}x")
}

var keyTests = []storeTest{
	{"KeysKeepEntriesApart", func(c *check) {
		keys := hardKeys()
		for _, k := range keys {
			c.set(c.key(k), c.entry("of "+k))
		}
		for _, k := range keys {
			c.holds(c.key(k), "of "+k)
		}
		for i, k := range keys {
			if i%2 == 0 {
				c.delete(c.key(k))
			}
		}
		for i, k := range keys {
			if i%2 == 0 {
				c.none(c.key(k))
			} else {
				c.holds(c.key(k), "of "+k)
			}
		}
	}},
	{"KeysKeepLeasesApart", func(c *check) {
		keys := hardKeys()
		leases := make([]stampede.Stamp, len(keys))
		for i, k := range keys {
			leases[i] = c.lead(c.key(k))
		}
		for i, k := range keys {
			c.accept(c.key(k), leases[i], c.entry("of "+k))
		}
		for _, k := range keys {
			c.holds(c.key(k), "of "+k)
		}
	}},
	{"KeysAreOfTheirSpace", func(c *check) {
		keys := []stampede.Key{
			{Space: c.space, Key: "k"},
			{Space: c.space + "k", Key: "k"},
			{Space: c.space + ":k", Key: "k"},
			{Space: c.space, Key: "kk"},
			{Space: c.space, Key: "k:k"},
			{Space: c.space, Key: "v:k"},
			{Space: c.space + ":v", Key: "k"},
			{Space: c.space + ":l", Key: "k"},
		}
		for i, k := range keys {
			c.set(k, c.entry(strings.Repeat("x", i)))
		}
		for i, k := range keys {
			c.holds(k, strings.Repeat("x", i))
		}
		c.delete(keys[0])
		c.none(keys[0])
		for i, k := range keys[1:] {
			c.holds(k, strings.Repeat("x", i+1))
		}
	}},
}
