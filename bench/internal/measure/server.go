package measure

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Server is what Redis says about itself.
type Server struct {
	CPU      time.Duration    // user and system time of all its threads, by the operating system
	Commands map[string]int64 // calls by name, in lower case; those made by scripts included
	Version  string
}

// ReadServer asks Redis what it has done until now.
func ReadServer(ctx context.Context, rdb *redis.Client) (Server, error) {
	// Not INFO with several sections, which came with Redis 7.
	text := ""
	for _, section := range []string{"server", "cpu", "commandstats"} {
		part, err := rdb.Info(ctx, section).Result()
		if err != nil {
			return Server{}, fmt.Errorf("measure: INFO %s: %w", section, err)
		}
		text += part
	}
	s := Server{Commands: make(map[string]int64)}
	for line := range strings.Lines(text) {
		field, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch {
		case field == "used_cpu_user" || field == "used_cpu_sys":
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return Server{}, fmt.Errorf("measure: %s: %w", field, err)
			}
			s.CPU += time.Duration(seconds * float64(time.Second))
		case field == "redis_version":
			s.Version = value
		case strings.HasPrefix(field, "cmdstat_"):
			calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			n, err := strconv.ParseInt(calls, 10, 64)
			if err != nil {
				return Server{}, fmt.Errorf("measure: %s: %w", field, err)
			}
			name, _, _ := strings.Cut(strings.TrimPrefix(field, "cmdstat_"), "|") // "client|setinfo"
			s.Commands[name] += n
		}
	}
	return s, nil
}

// Minus returns s less what had been before.
func (s Server) Minus(before Server) Server {
	d := Server{CPU: s.CPU - before.CPU, Commands: make(map[string]int64), Version: s.Version}
	for name, n := range s.Commands {
		d.Commands[name] = n - before.Commands[name]
	}
	return d
}

// Unseen is how many commands Redis ran that can have come neither from scripts nor over connections that are counted: it
// is zero where a script was sent, as then nobody can tell.
func (s Server) Unseen(sent Sent) int64 {
	for _, name := range []string{"eval", "eval_ro", "evalsha", "evalsha_ro", "fcall", "fcall_ro"} {
		if sent.Commands[name] > 0 {
			return 0
		}
	}
	return max(0, s.Scripted(sent))
}

// Scripted is how many commands were run by scripts: those that Redis ran and nobody sent. Both sides must
// be of the same time, and nobody else may use the server.
func (s Server) Scripted(sent Sent) int64 {
	total := int64(0)
	for name, n := range s.Commands {
		if !setUp[name] {
			total += n - sent.Commands[name]
		}
	}
	return total
}
