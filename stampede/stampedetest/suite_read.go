package stampedetest

import (
	"bytes"
	"strings"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

var readTests = []storeTest{
	{"ReadOfAnUnknownKeyIsAMiss", func(c *check) {
		c.none(c.key("k"))
	}},
	{"ReadReturnsWhatWasWritten", func(c *check) {
		k := c.key("k")
		e := c.entry("payload")
		e.Type, e.Took = 1<<63+5, 1234*time.Millisecond
		e.TTL, e.StaleFor, e.StaleIfError = 2*time.Hour, 3*time.Hour, 4*time.Hour
		began := c.now()
		c.set(k, e)
		got := c.holds(k, "payload")
		if got.Type != e.Type || got.Took != e.Took || got.TTL != e.TTL || got.StaleFor != e.StaleFor || got.StaleIfError != e.StaleIfError {
			c.Errorf("read %+v, want %+v", got, e)
		}
		if got.NotFound || got.Expired || got.Fault != nil {
			c.Errorf("read %+v, want no NotFound, Expired, Fault", got)
		}
		if got.Freshness() != stampede.Fresh {
			c.Errorf("the entry is %s, want fresh", freshnessName(got.Freshness()))
		}
		c.left(got.Left, began, 6*time.Hour)
	}},
	{"ReadReturnsOnlyWhatTheStoreSets", func(c *check) {
		k := c.key("k")
		e := c.entry("payload")
		e.Stamp, e.Expired, e.Left, e.Fault = stampede.NewStamp(), true, time.Second, stampede.ErrTooLarge
		c.set(k, e)
		got := c.holds(k, "payload")
		if got.Stamp == e.Stamp || got.Expired || got.Left == e.Left || got.Fault != nil {
			c.Errorf("the writer's Stamp, Expired, Left or Fault came back: %+v", got)
		}
	}},
	{"ReadReturnsBytesAsTheyAre", func(c *check) {
		for name, payload := range map[string]string{
			"empty":  "",
			"binary": string([]byte{0, 1, 0xff, '\r', '\n', 0}),
			"large":  strings.Repeat("0123456789abcdef", 1<<16),
		} {
			k := c.key(name)
			c.set(k, c.entry(payload))
			c.holds(k, payload)
		}
	}},
	{"ReadReturnsThatThereIsNoSuchThing", func(c *check) {
		k := c.key("k")
		lease := c.lead(k)
		c.accept(k, lease, stampede.Entry{NotFound: true, TTL: long})
		e := c.read(k)
		if e.Stamp != lease || !e.NotFound || e.Fault != nil || len(e.Data) != 0 || e.Value != nil {
			c.Errorf("read %+v, want NotFound and no value", e)
		}
		if e.Freshness() != stampede.Fresh {
			c.Errorf("the entry is %s, want fresh", freshnessName(e.Freshness()))
		}
		c.set(k, c.entry("now there is"))
		if c.holds(k, "now there is").NotFound {
			c.Error("the entry is still said to be not found")
		}
	}},
	{"ReadRoundsDownToMilliseconds", func(c *check) {
		k := c.key("k")
		e := c.entry("payload")
		const bit = 999 * time.Microsecond
		e.TTL, e.StaleFor, e.StaleIfError, e.Took = long+bit, long+bit, long+bit, time.Second+bit
		c.set(k, e)
		got := c.read(k)
		if got.TTL != long || got.StaleFor != long || got.StaleIfError != long || got.Took != time.Second {
			c.Errorf("read %v %v %v %v, want whole milliseconds", got.TTL, got.StaleFor, got.StaleIfError, got.Took)
		}
	}},
	{"ReadClassifiesByTheWritersWindows", func(c *check) {
		k := c.key("k")
		e := c.entry("payload")
		e.TTL, e.StaleFor, e.StaleIfError = short, short, 2*short
		began := c.now()
		c.accept(k, c.lead(k), e)
		c.ages(k, began, short, stampede.Stale)
		c.ages(k, began, 2*short, stampede.OnlyIfError)
		c.dies(k, began, 3*short)
	}},
	{"ReadKeepsAnEntryForTheLongerOfItsWindows", func(c *check) {
		k := c.key("k")
		e := c.entry("payload")
		e.TTL, e.StaleFor, e.StaleIfError = short, 2*short, short
		began := c.now()
		c.set(k, e)
		c.ages(k, began, short, stampede.Stale)
		c.dies(k, began, 3*short)
	}},
	{"ReadOfAnEntryWithoutWindowsEndsWithItsTTL", func(c *check) {
		k := c.key("k")
		e := c.entry("payload")
		e.TTL, e.StaleFor = short, 0
		began := c.now()
		c.set(k, e)
		c.dies(k, began, short)
	}},
	{"ReadDoesNotChangeWhatItReturnedBefore", func(c *check) {
		k := c.key("k")
		c.set(k, c.entry("one"))
		one := c.read(k)
		data := bytes.Clone(one.Data)
		c.set(k, c.entry("two"))
		c.holds(k, "two")
		c.is(one, "one")
		if !bytes.Equal(one.Data, data) {
			c.Error("the bytes of an earlier answer changed")
		}
	}},
}
