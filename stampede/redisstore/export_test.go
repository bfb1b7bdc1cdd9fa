package redisstore

import (
	"github.com/herdgate/herdgate/internal/redisclient"
	"github.com/herdgate/herdgate/stampede"
)

// Names are what a key is called in Redis.
type Names struct{ Entry, Lease, Channel, Drop string }

// NamesOf returns the names of key.
func NamesOf(key stampede.Key) (Names, error) {
	n, err := namesOf(key)
	if err != nil {
		return Names{}, err
	}
	return Names{n.entry(), n.lease(), n.channel(), dropChannel(n.Space)}, nil
}

// BoundedDialer is what all connections are opened with.
var BoundedDialer = redisclient.BoundedDialer
