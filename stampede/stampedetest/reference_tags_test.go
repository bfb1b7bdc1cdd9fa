package stampedetest_test

import (
	"context"
	"strings"

	"github.com/herdgate/herdgate/stampede"
)

// refTags is a record of tags, never bounded and never lost.
type refTags struct {
	stampede.TagTime
	numbers map[string]uint64
}

// tagNames are a space and a tag as careless stores mix them up.
func (s *reference) tagNames(space, tag string) (string, string) {
	switch s.broken {
	case "tags are kept apart":
		tag = strings.ToLower(strings.TrimSpace(tag))
	case "tags are bytes":
		tag = strings.ToValidUTF8(tag, "?")
	case "tags are of their space":
		space = strings.TrimRight(space, "t:")
	}
	return space, tag
}

func (s *reference) TagTime(ctx context.Context, space string) (stampede.TagTime, error) {
	if err := s.enter(ctx); err != nil {
		return stampede.TagTime{}, err
	}
	defer s.mu.Unlock()
	space, _ = s.tagNames(space, "")
	r := s.tags[space]
	if r == nil {
		r = &refTags{stampede.TagTime{Epoch: 7, Number: 1}, map[string]uint64{}}
		s.tags[space] = r
	}
	if !s.not("the epoch stays") {
		r.Epoch++
	}
	return r.TagTime, nil
}

func (s *reference) Tags(ctx context.Context, space string, tags ...string) (stampede.TagState, error) {
	if err := s.enter(ctx); err != nil {
		return stampede.TagState{}, err
	}
	defer s.mu.Unlock()
	state := stampede.TagState{Numbers: make([]uint64, len(tags))}
	for i, tag := range tags {
		space, tag := s.tagNames(space, tag)
		if r := s.tags[space]; r != nil {
			state.Epoch, state.Numbers[i] = r.Epoch, r.numbers[tag]
		} else if !s.not("no record has no epoch") {
			state.Epoch = 7
		}
	}
	return state, nil
}

func (s *reference) ExpireTag(ctx context.Context, space, tag string) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for fn, of := range s.tagDrops {
		if of == space && s.not("expired tags are told") {
			(*fn)(tag)
		}
	}
	space, tag = s.tagNames(space, tag)
	r := s.tags[space]
	if r == nil {
		return nil
	}
	if s.not("numbers grow") {
		r.Number++
	}
	r.numbers[tag] = r.Number
	if !s.not("numbers are those of expiries") {
		r.numbers[tag] = r.Number - 1
	}
	return nil
}

func (s *reference) TagDrops(space string, fn func(tag string)) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tagDrops[&fn] = space
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.tagDrops, &fn)
	}
}
