package redisstore

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// warned is what was logged once and is not again.
type warned struct{ denied, readOnly atomic.Bool }

// inspect looks once at what kind of Redis this is, as soon as it answers, and warns of what will not
// work. INFO is not among the rights that the Store needs; without it there is nothing to say.
func (s *Store) inspect() {
	for {
		ctx, cancel := context.WithTimeout(s.ctx, s.opt.Timeout)
		info, err := s.rdb.Info(ctx).Result()
		cancel()
		if err == nil || answered(err) {
			s.warnOf(parseInfo(info))
			return
		}
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(time.Second):
		}
	}
}

func (s *Store) warnOf(info map[string]string) {
	if v := info["redis_version"]; v != "" && olderThan(v, 6, 2) {
		s.opt.Logger.Warn("redisstore: Redis is older than 6.2, nothing is promised there", "version", v)
	}
	if role := info["role"]; role == "slave" && s.lanes.cluster == nil {
		s.opt.Logger.Warn("redisstore: this Redis is a replica: it cannot be written to and may be behind; use the master")
	}
	if info["maxmemory_policy"] == "noeviction" && info["maxmemory"] != "0" && info["maxmemory"] != "" {
		s.opt.Logger.Warn("redisstore: this Redis evicts nothing: when its memory is full, nothing more will be cached",
			"maxmemory", info["maxmemory"])
	}
}

// notice warns, once each, of answers that show a fault of the set-up.
func (s *Store) notice(err error) {
	switch {
	case err == nil || !answered(err):
	case redis.HasErrorPrefix(err, "NOPERM"), strings.Contains(err.Error(), "NOPERM"):
		if s.warned.denied.CompareAndSwap(false, true) {
			s.opt.Logger.Warn("redisstore: the Redis user lacks a right that the store needs, see docs/operations.md", "error", err)
		}
	case strings.Contains(err.Error(), "READONLY"):
		if s.warned.readOnly.CompareAndSwap(false, true) {
			s.opt.Logger.Warn("redisstore: Redis refuses writes, it is or has become a replica", "error", err)
		}
	}
}

func parseInfo(info string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

func olderThan(version string, major, minor int) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	a, err1 := strconv.Atoi(parts[0])
	b, err2 := strconv.Atoi(parts[1])
	if err1 != nil || err2 != nil {
		return false
	}
	return a < major || a == major && b < minor
}
