package redisstore

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/herdgate/herdgate/internal/entry"
	"github.com/herdgate/herdgate/stampede"
)

// longKey is the length of the longest key that is stored as it is; what is longer is hashed.
const longKey = 512

// The kinds of things that are kept for a key. A hashed key has kinds of its own (in capitals), so that
// no user's key can imitate one.
const (
	kindEntry   = 'v'
	kindLease   = 'l'
	kindChannel = 'w'
)

var (
	errSpace = errors.New("redisstore: a key's Space must not be empty or hold '{' or '}'")
	errKey   = errors.New("redisstore: a key must not be empty")
)

// names builds what a key is called in Redis: "space:{tag}:kind:key". The tag, which decides the slot in
// a cluster, is the user's own if the key has a valid one, else a hash of the key: the three names of a key
// share a slot. They differ for different keys: the first "}" ends the tag, and the key is the whole rest.
type names struct {
	space string
	tag   string // empty: hash
	hash  [8]byte
	key   string // as it stands at the end of the name
	long  bool   // key is a hash
	check uint64
}

func namesOf(k stampede.Key) (names, error) {
	if k.Space == "" || strings.IndexByte(k.Space, '{') >= 0 || strings.IndexByte(k.Space, '}') >= 0 {
		return names{}, fmt.Errorf("%w: %q", errSpace, k.Space)
	}
	if k.Key == "" {
		return names{}, errKey
	}
	n := names{space: k.Space, key: k.Key, tag: hashTag(k.Key), check: entry.Check(k.Space, k.Key)}
	if len(k.Key) > longKey {
		sum := sha256.Sum256([]byte(k.Key))
		n.key, n.long = hex.EncodeToString(sum[:]), true
		if len(n.tag) > longKey {
			n.tag = ""
		}
	}
	if n.tag == "" {
		b := [4]byte{byte(n.check >> 24), byte(n.check >> 16), byte(n.check >> 8), byte(n.check)}
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

func (n *names) entry() string   { return n.name(kindEntry) }
func (n *names) lease() string   { return n.name(kindLease) }
func (n *names) channel() string { return n.name(kindChannel) }

func (n *names) name(kind byte) string {
	var b strings.Builder
	b.Grow(len(n.space) + len(n.tag) + len(n.hash) + len(n.key) + 6)
	b.WriteString(n.space)
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

// dropChannel is where keys of space are named that Delete, Set or Expire change. The channel of a key
// has a "{" after the space, which this one has not.
func dropChannel(space string) string { return space + ":d" }

// keyCheck is the check of the key as scripts compare it.
func (n *names) keyCheck() []byte { return entry.AppendCheck(make([]byte, 0, 8), n.check) }
