package redisstore

import (
	"context"
	_ "embed"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/internal/leases"
)

// The scripts. They use no shebang line: with one, Redis would refuse a whole script when memory is full,
// even one that only gives a lease back.
var (
	//go:embed scripts/header.lua
	headerLua string
	//go:embed scripts/elect.lua
	electLua string
	//go:embed scripts/commit.lua
	commitLua string
	//go:embed scripts/failed.lua
	failedLua string
	//go:embed scripts/fail.lua
	failLua string
	//go:embed scripts/set.lua
	setLua string
	//go:embed scripts/expire.lua
	expireLua string
	//go:embed scripts/tags.lua
	tagsLua string
	//go:embed scripts/tagtime.lua
	tagTimeLua string
	//go:embed scripts/expiretag.lua
	expireTagLua string

	electScript   = redis.NewScript(headerLua + leases.NonceLua + failedLua + electLua)
	commitScript  = redis.NewScript(headerLua + commitLua)
	renewScript   = leases.Renew
	failScript    = redis.NewScript(failedLua + failLua)
	releaseScript = leases.Release
	setScript     = redis.NewScript(headerLua + setLua)
	expireScript  = redis.NewScript(headerLua + expireLua)

	tagTimeScript   = redis.NewScript(tagsLua + tagTimeLua)
	expireTagScript = redis.NewScript(tagsLua + expireTagLua)
)

// onceCmd is a command that go-redis sends once, whatever comes of it.
type onceCmd struct{ *redis.Cmd }

// NoRetry tells go-redis so.
func (onceCmd) NoRetry() bool { return true }

// runOnce runs a script, sent once. Only when Redis answered that it does not know the script, and so has
// not run it, the text is sent.
func runOnce(ctx context.Context, rdb redis.UniversalClient, sc *redis.Script, text string, keys []string, args ...any) error {
	err := processOnce(ctx, rdb, "evalsha", sc.Hash(), keys, args)
	if errors.Is(err, redis.ErrNoScript) || redis.HasErrorPrefix(err, "NOSCRIPT") {
		err = processOnce(ctx, rdb, "eval", text, keys, args)
	}
	return err
}

func processOnce(ctx context.Context, rdb redis.UniversalClient, how, what string, keys []string, args []any) error {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, how, what, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	cmd := onceCmd{redis.NewCmd(ctx, append(all, args...)...)}
	cmd.SetFirstKeyPos(3)
	return rdb.Process(ctx, cmd)
}
