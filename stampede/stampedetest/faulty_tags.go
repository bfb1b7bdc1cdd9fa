package stampedetest

import (
	"context"
	"fmt"

	"github.com/herdgate/herdgate/stampede"
)

var _ stampede.TagStore = (*Faulty)(nil)

func (f *Faulty) tags() (stampede.TagStore, error) {
	if tags, ok := f.store.(stampede.TagStore); ok {
		return tags, nil
	}
	return nil, fmt.Errorf("stampedetest: %T keeps no tags", f.store)
}

// TagTime is a step of the store behind, which must be a [stampede.TagStore], if nothing happens to it. So are the
// other steps about tags.
func (f *Faulty) TagTime(ctx context.Context, space string) (stampede.TagTime, error) {
	tags, err := f.tags()
	if err != nil {
		return stampede.TagTime{}, err
	}
	return execute(ctx, f, Call{Step: StepTagTime, Key: stampede.Key{Space: space}}, func(ctx context.Context) (stampede.TagTime, error) {
		return tags.TagTime(ctx, space)
	})
}

// Tags returns what is known of tags.
func (f *Faulty) Tags(ctx context.Context, space string, names ...string) (stampede.TagState, error) {
	tags, err := f.tags()
	if err != nil {
		return stampede.TagState{}, err
	}
	return execute(ctx, f, Call{Step: StepTags, Key: stampede.Key{Space: space}, Tags: names}, func(ctx context.Context) (stampede.TagState, error) {
		return tags.Tags(ctx, space, names...)
	})
}

// ExpireTag makes the entries of a tag stale.
func (f *Faulty) ExpireTag(ctx context.Context, space, tag string) error {
	tags, err := f.tags()
	if err != nil {
		return err
	}
	return f.do(ctx, Call{Step: StepExpireTag, Key: stampede.Key{Space: space}, Tags: []string{tag}}, func(ctx context.Context) error {
		return tags.ExpireTag(ctx, space, tag)
	})
}

// TagDrops tells of expired tags, unless the Faulty is down, hanging or mute.
func (f *Faulty) TagDrops(space string, fn func(tag string)) (stop func()) {
	tags, err := f.tags()
	if err != nil {
		return func() {}
	}
	f.arrive(&Call{Step: StepTagDrops, Key: stampede.Key{Space: space}})
	return tags.TagDrops(space, func(tag string) {
		if f.pushes() {
			fn(tag)
		}
	})
}
