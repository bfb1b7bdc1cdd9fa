package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// Elect implements [stampede.Store].
func (s *Store) Elect(ctx context.Context, key stampede.Key, ballot stampede.Ballot) (stampede.Election, error) {
	n, err := namesOf(key)
	if err != nil {
		return stampede.Election{}, err
	}
	seen := ""
	if ballot.Seen != (stampede.Stamp{}) {
		seen = string(ballot.Seen[:])
	}
	lease, channel := n.lease(), n.channel()
	keys := []string{n.entry(), lease}
	el, err := do(ctx, s, keys[0], func(ctx context.Context) (stampede.Election, error) {
		el, err := s.elect(ctx, keys, n.Check, ballot.Token[:], millis(ballot.Length), seen, n.keyCheck(), s.opt.MaxEntrySize)
		if err != nil && !answered(err) && !unsent(err) {
			// It may still be run, and take the lease for nobody.
			s.ghosts.add(ghost{lease: lease, channel: channel, token: ballot.Token})
		}
		return el, err
	}, func(el stampede.Election, err error) {
		// The caller has gone; it will not use the lease.
		if err == nil && el.Role == stampede.RoleLeader {
			s.ghosts.add(ghost{lease: lease, channel: channel, token: ballot.Token})
		}
	})
	return el, wrap("elect", key, err)
}

func (s *Store) elect(ctx context.Context, keys []string, check uint64, args ...any) (el stampede.Election, err error) {
	reply, err := electScript.Run(ctx, s.rdb, keys, args...).Slice()
	if err != nil {
		return el, err
	}
	if len(reply) < 3 {
		return el, fmt.Errorf("redisstore: elect answered %d values", len(reply))
	}
	role, _ := reply[0].(int64)
	if role < int64(stampede.RoleFresh) || role > int64(stampede.RoleFollower) {
		return el, fmt.Errorf("redisstore: elect answered role %v", reply[0])
	}
	got, err := storedReply(reply[1], reply[2])
	if err != nil {
		return el, err
	}
	el.Role, el.Entry = stampede.Role(role), got.entry(check)
	if el.Role == stampede.RoleFresh {
		return el, nil
	}
	want := 4
	switch el.Role {
	case stampede.RoleBackOff, stampede.RoleFollower:
		want = 5
	case stampede.RolePass:
		want = 6
	}
	if len(reply) < want {
		return el, fmt.Errorf("redisstore: elect answered %d values for role %d", len(reply), role)
	}
	stamp, _ := reply[3].(string)
	if len(stamp) != len(el.Lease) {
		return el, fmt.Errorf("redisstore: elect answered a stamp of %d bytes", len(stamp))
	}
	copy(el.Lease[:], stamp)
	switch el.Role {
	case stampede.RoleLeader:
		return el, nil
	case stampede.RolePass:
		flag, _ := reply[5].(string)
		el.Unshared = flag == "1"
	}
	ms, _ := reply[4].(int64)
	el.Left = time.Duration(ms) * time.Millisecond
	return el, nil
}

// millis is d in whole milliseconds, as an argument for PX: at least 1.
func millis(d time.Duration) int64 { return max(d.Milliseconds(), 1) }
