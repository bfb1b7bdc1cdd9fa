package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/stampede"
)

// A space's record of tags is one sorted set. Scores are numbers below 2^53, which a float64 holds exactly.

// tagRecord is what the record of space is called, and the channel on which its tags are named that expire. It has
// no "{", which all other names have, so it is nobody else's; all of it is in one slot.
func tagRecord(space string) string { return space + ":t" }

// tagsName returns the name, or why a space can have none.
func tagsName(space string) (string, error) {
	if space == "" || strings.ContainsAny(space, "{}") {
		return "", fmt.Errorf("redisstore: a space must not be empty or hold '{' or '}': %q", space)
	}
	return tagRecord(space), nil
}

// recordMembers are asked for before the tags.
var recordMembers = []string{"e", "n", "f"}

// maxEpoch is the highest epoch there is. The lowest is 1.
const maxEpoch = 1<<52 - 1

// TagTime implements [stampede.TagStore].
func (s *Store) TagTime(ctx context.Context, space string) (stampede.TagTime, error) {
	state, now, err := s.record(ctx, space, nil)
	if err != nil || state.Epoch != 0 {
		return stampede.TagTime{Epoch: state.Epoch, Number: now}, wrapTag("read the time of tags", space, err)
	}
	name := tagRecord(space)
	at, err := do(ctx, s, name, func(ctx context.Context) (stampede.TagTime, error) {
		reply, err := tagTimeScript.Run(ctx, s.rdb, []string{name}, 1+rand.Uint64N(maxEpoch)).StringSlice()
		if err != nil {
			return stampede.TagTime{}, err
		}
		if len(reply) != 2 {
			return stampede.TagTime{}, fmt.Errorf("redisstore: tagtime answered %d values", len(reply))
		}
		epoch, err1 := strconv.ParseUint(reply[0], 10, 64)
		number, err2 := strconv.ParseUint(reply[1], 10, 64)
		return stampede.TagTime{Epoch: epoch, Number: number}, errors.Join(err1, err2)
	}, nil)
	return at, wrapTag("read the time of tags", space, err)
}

// Tags implements [stampede.TagStore]. It is one ZMSCORE, in a batch with reads where some are under way.
func (s *Store) Tags(ctx context.Context, space string, tags ...string) (stampede.TagState, error) {
	state, _, err := s.record(ctx, space, tags)
	return state, wrapTag("read tags", space, err)
}

// ExpireTag implements [stampede.TagStore].
func (s *Store) ExpireTag(ctx context.Context, space, tag string) error {
	name, err := tagsName(space)
	if err != nil {
		return err
	}
	_, err = do(ctx, s, name, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, expireTagScript.Run(ctx, s.rdb, []string{name}, tag, s.opt.MaxTags, name).Err()
	}, nil)
	return wrapTag("expire a tag", space, err)
}

// TagDrops implements [stampede.TagStore].
func (s *Store) TagDrops(space string, fn func(tag string)) (stop func()) {
	name, err := tagsName(space)
	if err != nil || s.closed.Load() {
		return func() {}
	}
	d := &drops{fn: fn}
	t := s.hub.Join(name, d)
	return sync.OnceFunc(func() { s.hub.Leave(t, d) })
}

// record asks what the record of space says of tags.
func (s *Store) record(ctx context.Context, space string, tags []string) (state stampede.TagState, now uint64, err error) {
	name, err := tagsName(space)
	if err != nil {
		return state, 0, err
	}
	l, err := s.begin(ctx, name)
	if err != nil {
		return state, 0, err
	}
	got, err := s.ask(ctx, l, request{name: name, members: members(tags)})
	if err != nil {
		return state, 0, err
	}
	if len(got.scores) != len(recordMembers)+len(tags) {
		return state, 0, fmt.Errorf("redisstore: %d scores for %d tags", len(got.scores), len(tags))
	}
	state.Epoch, now, state.Floor = number(-got.scores[0]), number(-got.scores[1]), number(-got.scores[2])
	state.Numbers = make([]uint64, len(tags))
	for i, score := range got.scores[len(recordMembers):] {
		state.Numbers[i] = number(score)
	}
	return state, now, nil
}

// number makes a number of a score. What is none, which nobody writes, is 0.
func number(score float64) uint64 {
	if score > 0 && score < 1<<53 {
		return uint64(score)
	}
	return 0
}

// members are the members to ask for, in one string, so that requests can be compared: each with its length in
// digits and a colon before it.
func members(tags []string) string {
	var b strings.Builder
	for _, m := range recordMembers {
		writeMember(&b, "", m)
	}
	for _, tag := range tags {
		writeMember(&b, ":", tag)
	}
	return b.String()
}

func writeMember(b *strings.Builder, prefix, m string) {
	b.WriteString(strconv.Itoa(len(prefix) + len(m)))
	b.WriteString(":" + prefix + m)
}

// scoresCommand adds the command to pipe that asks for the scores of members.
func scoresCommand(ctx context.Context, pipe redis.Pipeliner, name, members string) *redis.FloatSliceCmd {
	args := []any{"zmscore", name}
	for members != "" {
		size, rest, _ := strings.Cut(members, ":")
		n, _ := strconv.Atoi(size)
		args = append(args, rest[:n])
		members = rest[n:]
	}
	cmd := redis.NewFloatSliceCmd(ctx, args...)
	_ = pipe.Process(ctx, cmd) // queues it
	return cmd
}

// wrapTag names the step that failed, once.
func wrapTag(step, space string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("redisstore: %s of %s: %w", step, space, err)
}
