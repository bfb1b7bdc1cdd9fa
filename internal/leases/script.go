package leases

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Script is a redis.Script for the hot path: it spares the copies of keys and arguments that that makes.
type Script struct{ hash, text any }

// NewScript returns the script of this text.
func NewScript(text string) *Script {
	return &Script{hash: redis.NewScript(text).Hash(), text: text}
}

// Run runs the script, by its hash, and by its text when Redis does not know that. In args the first three
// places are left free; then come the keys, then the arguments.
func (s *Script) Run(ctx context.Context, rdb redis.UniversalClient, keys int, args []any) *redis.Cmd {
	args[0], args[1], args[2] = "evalsha", s.hash, keys
	cmd := redis.NewCmd(ctx, args...)
	cmd.SetFirstKeyPos(3)
	if err := rdb.Process(ctx, cmd); err == nil || !redis.HasErrorPrefix(err, "NOSCRIPT") {
		return cmd
	}
	args[0], args[1] = "eval", s.text
	cmd = redis.NewCmd(ctx, args...)
	cmd.SetFirstKeyPos(3)
	_ = rdb.Process(ctx, cmd)
	return cmd
}
