// Package keyname names what is kept in Redis for a user's key.
package keyname

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/herdgate/herdgate/internal/entry"
)

// longKey is the length of the longest key that is stored as it is; what is longer is hashed.
const longKey = 512

var (
	errSpace = errors.New("a key's space must not be empty or hold '{' or '}'")
	errKey   = errors.New("a key must not be empty")
)

// Names builds what a key is called in Redis: "space:{tag}:kind:key". The tag, which decides the slot in
// a cluster, is the user's own if the key has a valid one, else a hash of the key: the three names of a key
// share a slot. They differ for different keys: the first "}" ends the tag, and the key is the whole rest.
type Names struct {
	Space string
	tag   string // empty: hash
	hash  [8]byte
	key   string // as it stands at the end of the name
	long  bool   // key is a hash
	Check uint64 // of space and key
}

// Of returns the names of key in space.
func Of(space, key string) (Names, error) {
	if space == "" || strings.IndexByte(space, '{') >= 0 || strings.IndexByte(space, '}') >= 0 {
		return Names{}, fmt.Errorf("%w: %q", errSpace, space)
	}
	if key == "" {
		return Names{}, errKey
	}
	n := Names{Space: space, key: key, tag: hashTag(key), Check: entry.Check(space, key)}
	if len(key) > longKey {
		sum := sha256.Sum256([]byte(key))
		n.key, n.long = hex.EncodeToString(sum[:]), true
		if len(n.tag) > longKey {
			n.tag = ""
		}
	}
	if n.tag == "" {
		b := [4]byte{byte(n.Check >> 24), byte(n.Check >> 16), byte(n.Check >> 8), byte(n.Check)}
		hex.Encode(n.hash[:], b[:])
	}
	return n, nil
}

// hashTag returns what Redis Cluster would hash of key alone, if that is not the whole key: what stands
// between the first "{" and the next "}", if it is not empty.
func hashTag(key string) string {
	_, rest, ok := strings.Cut(key, "{")
	if !ok {
		return ""
	}
	tag, _, ok := strings.Cut(rest, "}")
	if !ok {
		return ""
	}
	return tag
}

// Names are the names of three kinds of things, which are parts of one string.
func (n *Names) Names(a, b, c byte) [3]string {
	one := n.Name(a)
	at := len(one) - len(n.key) - 2
	kind := func(k byte) string {
		if n.long {
			k -= 'a' - 'A'
		}
		return string(rune(k))
	}
	all := one + one[:at] + kind(b) + one[at+1:] + one[:at] + kind(c) + one[at+1:]
	return [3]string{all[:len(one)], all[len(one) : 2*len(one)], all[2*len(one):]}
}

// Name is what the kind of thing, a small letter, is called. A hashed key has kinds of its own (in
// capitals), so that no user's key can imitate one.
func (n *Names) Name(kind byte) string {
	var b strings.Builder
	b.Grow(len(n.Space) + len(n.tag) + len(n.hash) + len(n.key) + 6)
	b.WriteString(n.Space)
	b.WriteString(":{")
	if n.tag != "" {
		b.WriteString(n.tag)
	} else {
		b.Write(n.hash[:])
	}
	b.WriteString("}:")
	if n.long {
		kind -= 'a' - 'A'
	}
	b.WriteByte(kind)
	b.WriteByte(':')
	b.WriteString(n.key)
	return b.String()
}
