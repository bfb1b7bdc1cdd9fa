package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/internal/entry"
	"github.com/herdgate/herdgate/stampede"
)

// stored is what Redis answered for an entry: its bytes, nil when there are none, and its PTTL.
type stored struct {
	data  []byte
	left  time.Duration // -1 and -2 as Redis means them
	alien bool          // there is something, but no string
}

var errAlien = errors.New("redisstore: unusable entry: it is no string")

// storedFrom reads the answers of GETRANGE and PTTL. GETRANGE goes first: should an entry be written between
// the two, the older one is seen with the newer one's time. The other way round the newer one would seem
// stale, and be loaded once more.
//
// GETRANGE answers with nothing for an empty string and for none; PTTL tells which it is. An entry that is
// written between the two where there was none looks like an empty string: garbage, so that whoever reads it
// elects, and elect, which sees all at once, answers with the entry.
func storedFrom(get *redis.StringCmd, pttl *redis.DurationCmd) (stored, error) {
	if err := get.Err(); err != nil {
		if redis.HasErrorPrefix(err, "WRONGTYPE") {
			return stored{alien: true}, nil
		}
		return stored{}, err
	}
	if err := pttl.Err(); err != nil {
		return stored{}, err
	}
	data, _ := get.Bytes() // go-redis does not copy
	if len(data) == 0 {
		if pttl.Val() == -2 {
			return stored{}, nil
		}
		data = []byte{}
	}
	return stored{data: data, left: pttl.Val()}, nil
}

// readCommands adds to pipe what storedFrom reads the answers of. What goes on beyond the offset last is cut
// off, fails its checksum and is garbage.
func readCommands(ctx context.Context, pipe redis.Pipeliner, key string, last any) (*redis.StringCmd, *redis.DurationCmd) {
	var k any = key // once for both
	get := redis.NewStringCmd(ctx, "getrange", k, 0, last)
	pttl := redis.NewDurationCmd(ctx, time.Millisecond, "pttl", k)
	_ = pipe.BatchProcess(ctx, get, pttl) // queues them
	return get, pttl
}

// asked is a request on its way.
type asked struct {
	get    *redis.StringCmd
	pttl   *redis.DurationCmd
	scores *redis.FloatSliceCmd // instead of both
}

// ask adds to pipe what asks for it.
func ask(ctx context.Context, pipe redis.Pipeliner, what request, last any) (a asked) {
	if what.members != "" {
		a.scores = scoresCommand(ctx, pipe, what.name, what.members)
		return a
	}
	a.get, a.pttl = readCommands(ctx, pipe, what.name, last)
	return a
}

// result is the answer.
func (a asked) result() (r result) {
	if a.scores != nil {
		r.scores, r.err = a.scores.Result()
		return r
	}
	r.stored, r.err = storedFrom(a.get, a.pttl)
	return r
}

// entry makes of it what the Store returns.
func (s stored) entry(check uint64) stampede.Entry {
	if s.alien {
		return stampede.Entry{Fault: errAlien}
	}
	if s.data == nil {
		return stampede.Entry{}
	}
	e := entry.Decode(s.data, check)
	switch {
	case s.left == -1 || s.left > e.TTL+e.Window():
		// Somebody made it live for ever (PERSIST), or the server's clock was set back: it has more time left
		// than it ever had. It counts as past its TTL, so that it is rewritten.
		e.Left = e.Window()
	case s.left < 0:
		e.Left = 0
	default:
		e.Left = s.left
	}
	return e
}

// storedReply reads an entry and its PTTL, in milliseconds, from the answer of a script.
func storedReply(left, data any) (stored, error) {
	ms, ok := left.(int64)
	if !ok {
		return stored{}, fmt.Errorf("redisstore: script answered %T for a PTTL", left)
	}
	s := stored{left: time.Duration(ms)} // -1 and -2 stay as they are
	if ms >= 0 {
		s.left = time.Duration(ms) * time.Millisecond
	}
	switch v := data.(type) {
	case nil:
	case string:
		s.data = []byte(v)
	default:
		return stored{}, fmt.Errorf("redisstore: script answered %T for an entry", data)
	}
	return s, nil
}
