package stampedetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/herdgate/herdgate/stampede"
)

// tagStore is the store, if it keeps tags; else the test is skipped.
func (c *check) tagStore() stampede.TagStore {
	c.Helper()
	tags, ok := c.store.(stampede.TagStore)
	if !ok {
		c.Skip("the store keeps no tags")
	}
	return tags
}

// tagTime reads where the record is, and makes one where there is none.
func (c *check) tagTime(space string) (at stampede.TagTime) {
	c.Helper()
	tags := c.tagStore()
	c.step("TagTime", func(ctx context.Context) (err error) { at, err = tags.TagTime(ctx, space); return })
	if at.Epoch == 0 {
		c.Fatal("TagTime returned no epoch")
	}
	return at
}

func (c *check) tagState(space string, names ...string) (s stampede.TagState) {
	c.Helper()
	tags := c.tagStore()
	c.step("Tags", func(ctx context.Context) (err error) { s, err = tags.Tags(ctx, space, names...); return })
	if len(s.Numbers) != len(names) {
		c.Fatalf("%d numbers for %d tags", len(s.Numbers), len(names))
	}
	return s
}

func (c *check) expireTag(space, tag string) {
	c.Helper()
	tags := c.tagStore()
	c.step("ExpireTag", func(ctx context.Context) error { return tags.ExpireTag(ctx, space, tag) })
}

// hardTags look alike, or like what a store may keep beside tags.
func hardTags() []string {
	tags := []string{"a", "A", "a ", " a", "e", "n", "f", ":", ":a", "::a", "{a}", "\x00", "a\x00", "\xff", "\xfe", "é", "e\u0301", "0", "-1", "1:a", "nil", "%s", "\r\n"}
	return append(tags, strings.Repeat("t", stampede.MaxTagSize), strings.Repeat("t", stampede.MaxTagSize-1)+"x")
}

var tagTests = []storeTest{
	{"TagTimeStaysUntilATagExpires", func(c *check) {
		first := c.tagTime(c.space)
		if again := c.tagTime(c.space); again != first {
			c.Errorf("TagTime was %v, now it is %v", first, again)
		}
		c.expireTag(c.space, "t")
		if after := c.tagTime(c.space); after.Epoch != first.Epoch || after.Number <= first.Number {
			c.Errorf("TagTime was %v, after ExpireTag it is %v", first, after)
		}
	}},
	{"TagsOfNoRecordAreOfNoEpoch", func(c *check) {
		c.expireTag(c.space, "t") // of what there is not
		if s := c.tagState(c.space, "t"); s.Epoch != 0 || s.Floor != 0 || s.Numbers[0] != 0 {
			c.Errorf("Tags returned %+v before the first TagTime", s)
		}
	}},
	{"ExpireTagGivesAHigherNumberThanAnyBefore", func(c *check) {
		at := c.tagTime(c.space)
		for range 3 {
			c.expireTag(c.space, "t")
			s := c.tagState(c.space, "u", "t")
			if s.Epoch != at.Epoch || s.Numbers[0] != 0 || s.Numbers[1] <= at.Number {
				c.Errorf("Tags returned %+v after an ExpireTag that followed %v", s, at)
			}
			if at = c.tagTime(c.space); at.Number < s.Numbers[1] {
				c.Errorf("TagTime returned %v after an expiry with number %d", at, s.Numbers[1])
			}
		}
	}},
	{"TagsAreKeptApart", func(c *check) {
		hard := hardTags()
		c.tagTime(c.space)
		for i, tag := range hard {
			if i%2 == 0 {
				c.expireTag(c.space, tag)
			}
		}
		last := uint64(0)
		for i, n := range c.tagState(c.space, hard...).Numbers {
			switch {
			case i%2 == 0 && n <= last:
				c.Errorf("tag %.20q has number %d, one that expired before it %d", hard[i], n, last)
			case i%2 == 1 && n != 0:
				c.Errorf("tag %.20q has number %d and never expired", hard[i], n)
			}
			last = max(last, n)
		}
	}},
	{"TagsAreOfTheirSpace", func(c *check) {
		spaces := []string{c.space, c.space + ":t", c.space + "t", c.space + ":"}
		for _, space := range spaces {
			c.tagTime(space)
		}
		c.expireTag(spaces[0], "t")
		for i, space := range spaces {
			if s := c.tagState(space, "t"); (s.Numbers[0] != 0) != (i == 0) {
				c.Errorf("the tag of %q has number %d", space, s.Numbers[0])
			}
		}
	}},
	{"ExpireTagsAtOnceHaveNumbersOfTheirOwn", func(c *check) {
		c.tagTime(c.space)
		var names []string
		var all sync.WaitGroup
		for i := range 16 {
			tag := fmt.Sprint("t", i)
			names = append(names, tag)
			all.Go(func() { c.expireTag(c.space, tag) })
		}
		all.Wait()
		numbers := c.tagState(c.space, names...).Numbers
		slices.Sort(numbers)
		if numbers[0] == 0 || len(slices.Compact(numbers)) != len(names) {
			c.Errorf("%d tags have the numbers %v", len(names), numbers)
		}
	}},
	{"EntriesKeepTheirTags", func(c *check) {
		c.tagStore()
		k := c.key("k")
		e := c.entry("payload")
		e.Tags = &stampede.Tags{AsOf: stampede.TagTime{Epoch: 1<<64 - 1, Number: 1 << 50}, Names: []string{"a", "b\x00", strings.Repeat("t", stampede.MaxTagSize)}}
		want := *e.Tags
		same := func(what string, got stampede.Entry) {
			c.Helper()
			if got.Tags == nil || got.Tags.AsOf != want.AsOf || !slices.Equal(got.Tags.Names, want.Names) {
				c.Errorf("%s: the tags are %+v, want %+v", what, got.Tags, want)
			}
			c.is(got, "payload")
		}
		lease := c.lead(k)
		c.accept(k, lease, e)
		same("Read", c.read(k))
		same("Elect", c.elect(k, stampede.Stamp{}).Entry)
		c.expire(k)
		if e := c.read(k); !e.Expired || e.Freshness() != stampede.Stale {
			c.Errorf("the entry is %s after Expire, want stale", freshnessName(e.Freshness()))
		}
		same("Expire", c.read(k))
		c.set(k, e)
		same("Set", c.read(k))
		c.accept(k, c.lead(k), c.entry("other"))
		if e := c.read(k); e.Tags != nil {
			c.Errorf("an entry without tags has %+v", e.Tags)
		}
	}},
	{"EntriesKeepTagsThatThereIsNoSuchThing", func(c *check) {
		c.tagStore()
		k := c.key("k")
		tags := &stampede.Tags{Names: []string{"a"}}
		c.accept(k, c.lead(k), stampede.Entry{NotFound: true, TTL: long, Tags: tags})
		if e := c.read(k); !e.NotFound || e.Tags == nil || !slices.Equal(e.Tags.Names, tags.Names) || len(e.Data) != 0 {
			c.Errorf("read %+v", e)
		}
	}},
	{"TagDropsTellsOfEachTag", func(c *check) {
		tags := c.tagStore()
		heard := make(chan string, 1024)
		stop := tags.TagDrops(c.space, func(tag string) {
			select {
			case heard <- tag:
			default:
			}
		})
		c.tagTime(c.space)
		for _, tag := range []string{"t", "{a}", "\x00\xff"} {
			c.eventually("a drop is told", func() bool { // the subscription may take a while to stand
				c.expireTag(c.space, tag)
				for {
					select {
					case got := <-heard:
						if got == tag {
							return true
						}
					default:
						return false
					}
				}
			})
		}
		stop()
		stop()
	}},
}
