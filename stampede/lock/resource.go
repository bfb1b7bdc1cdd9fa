package lock

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/internal/leases"
)

// FenceLua is for scripts of your own that change what a lock protects. It defines
//
//	fence_admits(key, fence)
//
// which keeps the highest fencing number it has been given in the field "fence" of the hash at key, and
// returns false for a lower one: then the script must not change anything. The key must be in KEYS. Numbers up to
// 20 digits are compared exactly, not as Lua's floating-point numbers.
//
//go:embed scripts/admit.lua
var FenceLua string

//go:embed scripts/setfenced.lua
var setFencedLua string

var setFencedScript = redis.NewScript(FenceLua + setFencedLua)

// SetFenced writes value into the field "value" of the hash at key, unless the key has seen a higher fencing
// number than fence, in which case nothing is written and the error is ErrStale. It is what a resource in
// Redis has to do; the resource need not be on the server that the lock is on. The same number may write
// again and again.
//
// With a ttl above 0 the hash, and with it the memory of fencing numbers, ends ttl after the last write, so it
// must be longer than any holder may be paused. With 0 or less it stays.
//
// A fence of 0 is ErrMisuse: that is what a lock without a number says, and it would fence nothing.
func SetFenced(ctx context.Context, rdb redis.Scripter, key, value string, fence uint64, ttl time.Duration) error {
	if fence == 0 {
		return fmt.Errorf("%w: a fencing number of 0 for %q", ErrMisuse, short(key))
	}
	ms := int64(0)
	if ttl > 0 {
		ms = leases.Millis(ttl)
	}
	seen, err := setFencedScript.Run(ctx, rdb, []string{key}, strconv.FormatUint(fence, 10), value, ms).Text()
	switch {
	case err != nil:
		return fmt.Errorf("lock: write %q fenced: %w", short(key), err)
	case seen != "":
		return fmt.Errorf("%w: %d, when %q has seen %s", ErrStale, fence, short(key), seen)
	}
	return nil
}
