package stampede

import "context"

// TagStore is what a [Store] implements to keep tags. For each space it holds one record: an epoch, which is
// drawn when the record is made; a number that only grows; the number of each tag's last expiry; and a floor, the
// highest of the numbers that it has forgotten. A store may lose its record, never a part of it; the next one has
// another epoch.
//
// An entry says in Entry.Tags what the number was before its load began. It is expired unless it is of the record's
// epoch, its number is not below the floor, and none of its tags has a number above its own. Names of spaces, errors and
// time limits are as for the methods of Store.
type TagStore interface {
	// TagTime returns the epoch and the number of space, as they are at some moment between the call and its
	// return. It makes the record where there is none.
	TagTime(ctx context.Context, space string) (TagTime, error)

	// Tags returns what the record of space says of tags, as it is at some moment between the call and its
	// return; all of it at the same one.
	Tags(ctx context.Context, space string, tags ...string) (TagState, error)

	// ExpireTag gives tag a number that is higher than any that TagTime has returned before. It may be executed
	// twice. Where there is no record it does nothing, since all entries with tags are expired.
	ExpireTag(ctx context.Context, space, tag string) error

	// TagDrops calls fn for each tag of space that ExpireTag is called for, on any pod, until stop is called. What
	// is said of Store.Drops holds here, too.
	TagDrops(space string, fn func(tag string)) (stop func())
}

// Bounds on the tags of an entry.
const (
	MaxTags    = 32  // of an entry
	MaxTagSize = 255 // bytes of a tag; the smallest is 1
)

// Tags are the tags of an entry and when they were read. They are read-only.
type Tags struct {
	AsOf  TagTime // before its load began; zero: of no record
	Names []string
}

// TagTime is a moment in the life of a space's record of tags.
type TagTime struct {
	Epoch  uint64 // never zero, but where there is no record
	Number uint64 // higher with each ExpireTag
}

// TagState is what a space's record of tags says, all zero where there is none.
type TagState struct {
	Epoch   uint64
	Floor   uint64
	Numbers []uint64 // of the last expiry of each tag that was asked for; 0: none that is known
}
