package redisstore

import (
	"fmt"

	"github.com/herdgate/herdgate/internal/entry"
	"github.com/herdgate/herdgate/internal/keyname"
	"github.com/herdgate/herdgate/stampede"
)

// The kinds of things that are kept for a key.
const (
	kindEntry   = 'v'
	kindLease   = 'l'
	kindChannel = 'w'
)

// names are what a key is called in Redis.
type names struct{ keyname.Names }

func namesOf(k stampede.Key) (names, error) {
	n, err := keyname.Of(k.Space, k.Key)
	if err != nil {
		return names{}, fmt.Errorf("redisstore: %w", err)
	}
	return names{n}, nil
}

func (n *names) entry() string   { return n.Name(kindEntry) }
func (n *names) lease() string   { return n.Name(kindLease) }
func (n *names) channel() string { return n.Name(kindChannel) }

// dropChannel is where keys of space are named that Delete, Set or Expire change. The channel of a key
// has a "{" after the space, which this one has not.
func dropChannel(space string) string { return space + ":d" }

// keyCheck is the check of the key as scripts compare it.
func (n *names) keyCheck() []byte { return entry.AppendCheck(make([]byte, 0, 8), n.Check) }
