package stampedetest

import (
	"context"
	"errors"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// steps are all steps that take a ctx, on key k.
func (c *check) steps(k stampede.Key) map[string]func(context.Context) error {
	lease := stampede.NewStamp()
	steps := map[string]func(context.Context) error{
		"Read": func(ctx context.Context) error { _, err := c.store.Read(ctx, k); return err },
		"Elect": func(ctx context.Context) error {
			_, err := c.store.Elect(ctx, k, stampede.Ballot{Token: stampede.NewToken(), Length: long})
			return err
		},
		"Commit": func(ctx context.Context) error { _, err := c.store.Commit(ctx, k, lease, c.entry("x")); return err },
		"Renew":  func(ctx context.Context) error { _, err := c.store.Renew(ctx, k, lease, long); return err },
		"Fail": func(ctx context.Context) error {
			_, err := c.store.Fail(ctx, k, lease, stampede.Backoff{First: long})
			return err
		},
		"Release": func(ctx context.Context) error {
			return c.store.Release(ctx, k, lease, stampede.Pass{For: long})
		},
		"Set":    func(ctx context.Context) error { return c.store.Set(ctx, k, c.entry("x")) },
		"Delete": func(ctx context.Context) error { return c.store.Delete(ctx, k, c.key("another")) },
		"Expire": func(ctx context.Context) error { return c.store.Expire(ctx, k, c.key("another")) },
		"Health": func(ctx context.Context) error { return c.store.Health(ctx) },
	}
	if tags, ok := c.store.(stampede.TagStore); ok {
		steps["TagTime"] = func(ctx context.Context) error { _, err := tags.TagTime(ctx, k.Space); return err }
		steps["Tags"] = func(ctx context.Context) error { _, err := tags.Tags(ctx, k.Space, "tag"); return err }
		steps["ExpireTag"] = func(ctx context.Context) error { return tags.ExpireTag(ctx, k.Space, "tag") }
	}
	return steps
}

// late is how long after its ctx's deadline a step may return here: enough for a machine under load.
const late = time.Second

var answerTests = []storeTest{
	{"EncodedNeverChanges", func(c *check) {
		was := c.store.Encoded()
		c.set(c.key("k"), c.entry("payload"))
		if c.store.Encoded() != was {
			c.Error("Encoded changed")
		}
	}},
	{"HealthIsFineWhenTheStoreAnswers", func(c *check) {
		c.step("Health", c.store.Health)
	}},
	{"EveryStepReturnsByItsDeadline", func(c *check) {
		for name, step := range c.steps(c.key("k")) {
			for _, within := range []time.Duration{-time.Second, 0, time.Microsecond, time.Millisecond} {
				ctx, cancel := context.WithTimeout(c.Context(), within)
				began := time.Now()
				_ = step(ctx) // it may have been in time, or not have looked
				if took := time.Since(began); took > max(0, within)+late {
					c.Errorf("%s took %v with %v to go", name, took, within)
				}
				cancel()
			}
		}
	}},
	{"EveryStepReturnsWhenItsContextWasCancelled", func(c *check) {
		for name, step := range c.steps(c.key("k")) {
			ctx, cancel := context.WithTimeout(c.Context(), grace)
			cancel()
			began := time.Now()
			_ = step(ctx)
			if took := time.Since(began); took > late {
				c.Errorf("%s took %v", name, took)
			}
		}
	}},
	{"AnElectWithoutAnswerLeavesNoLease", func(c *check) {
		k := c.key("k")
		for _, within := range []time.Duration{-time.Second, time.Microsecond, 20 * time.Microsecond, 100 * time.Microsecond} {
			ctx, cancel := context.WithTimeout(c.Context(), within)
			el, err := c.store.Elect(ctx, k, stampede.Ballot{Token: stampede.NewToken(), Length: long})
			cancel()
			switch {
			case err == nil:
				c.role(el, stampede.RoleLeader)
				c.release(k, el.Lease, stampede.Pass{})
			case el.Role != 0 || el.Lease != stampede.Stamp{} || el.Entry.Stamp != stampede.Stamp{}:
				c.Errorf("an error comes with an answer: %+v", el)
			}
			c.eventually("the lease is free", func() bool {
				el := c.elect(k, stampede.Stamp{})
				if el.Role == stampede.RoleLeader {
					c.release(k, el.Lease, stampede.Pass{})
				}
				return el.Role == stampede.RoleLeader
			})
		}
	}},
}

var garbageTests = []storeTest{
	{"GarbageIsAMissWithAFault", func(c *check) {
		k := c.key("k")
		c.set(k, c.entry("payload"))
		c.cfg.garbage(c.TB, c.store, k)
		e := c.read(k)
		if e.Fault == nil || e.Freshness() != stampede.Dead || e.Data != nil || e.Value != nil || e.NotFound {
			c.Errorf("read %+v, want a fault and nothing else", e)
		}
	}},
	{"GarbageIsReplaced", func(c *check) {
		for _, name := range []string{"not seen", "seen"} {
			k := c.key(name)
			c.set(k, c.entry("payload"))
			c.cfg.garbage(c.TB, c.store, k)
			var seen stampede.Stamp
			if name == "seen" {
				seen = c.read(k).Stamp
			}
			el := c.elect(k, seen)
			c.role(el, stampede.RoleLeader)
			if el.Entry.Fault == nil || el.Entry.Data != nil || el.Entry.Value != nil {
				c.Errorf("the election's entry is %+v, want a fault", el.Entry)
			}
			c.role(c.elect(k, seen), stampede.RoleFollower)
			c.accept(k, el.Lease, c.entry("new"))
			c.holds(k, "new")
		}
	}},
	{"GarbageIsNoObstacleToChanges", func(c *check) {
		for name, change := range map[string]func(stampede.Key){
			"Set":    func(k stampede.Key) { c.set(k, c.entry("set")); c.holds(k, "set") },
			"Delete": func(k stampede.Key) { c.delete(k); c.none(k) },
			"Expire": func(k stampede.Key) { c.expire(k) },
		} {
			k := c.key(name)
			c.set(k, c.entry("payload"))
			lease := c.lead(k)
			c.cfg.garbage(c.TB, c.store, k)
			change(k)
			c.refuse(k, lease, c.entry("too late"))
			if e := c.read(k); e.Freshness() != stampede.Dead && name != "Set" {
				c.Errorf("after %s the entry is %s", name, freshnessName(e.Freshness()))
			}
			c.free(k)
		}
	}},
}

var silenceTests = []storeTest{
	{"ASilentStoreReturnsAnErrorByTheDeadline", func(c *check) {
		steps := c.steps(c.key("k"))
		restore := c.cfg.silence(c.TB, c.store)
		defer restore()
		const within = 100 * time.Millisecond
		for name, step := range steps {
			ctx, cancel := context.WithTimeout(c.Context(), within)
			began := time.Now()
			err := step(ctx)
			if took := time.Since(began); took > within+late {
				c.Errorf("%s took %v with %v to go", name, took, within)
			}
			cancel()
			switch {
			case err == nil:
				c.Errorf("%s: no error from a silent store", name)
			case name == "Set" && !errors.Is(err, stampede.ErrOutcomeUnknown) && !errors.Is(err, stampede.ErrUnavailable):
				c.Errorf("Set: %v, want ErrOutcomeUnknown, or ErrUnavailable if it was not asked", err)
			}
		}
	}},
	{"AnErrorNeverCarriesAnAnswer", func(c *check) {
		k := c.key("k")
		c.set(k, c.entry("payload"))
		restore := c.cfg.silence(c.TB, c.store)
		defer restore()
		ctx, cancel := context.WithTimeout(c.Context(), 100*time.Millisecond)
		defer cancel()
		if e, err := c.store.Read(ctx, k); err == nil || e.Stamp != (stampede.Stamp{}) || e.Data != nil || e.Value != nil {
			c.Errorf("Read: %+v, %v", e, err)
		}
		if v, err := c.store.Commit(ctx, k, stampede.NewStamp(), c.entry("x")); err == nil || v != stampede.Unknown {
			c.Errorf("Commit: %s, %v; want Unknown and an error", verdictName(v), err)
		}
	}},
	{"ASilentStoreGivesBackTheLeasesThatItMayHaveTaken", func(c *check) {
		k := c.key("k")
		restore := c.cfg.silence(c.TB, c.store)
		for range 3 {
			ctx, cancel := context.WithTimeout(c.Context(), 50*time.Millisecond)
			_, err := c.store.Elect(ctx, k, stampede.Ballot{Token: stampede.NewToken(), Length: long})
			cancel()
			if err == nil {
				c.Error("Elect: no error from a silent store")
			}
		}
		restore()
		c.eventually("the lease is free", func() bool {
			ctx, cancel := context.WithTimeout(c.Context(), time.Second)
			defer cancel()
			el, err := c.store.Elect(ctx, k, stampede.Ballot{Token: stampede.NewToken(), Length: time.Millisecond})
			return err == nil && el.Role == stampede.RoleLeader
		})
	}},
	{"AStoreAnswersAgainByItself", func(c *check) {
		k := c.key("k")
		c.set(k, c.entry("payload"))
		restore := c.cfg.silence(c.TB, c.store)
		ctx, cancel := context.WithTimeout(c.Context(), 50*time.Millisecond)
		if _, err := c.store.Read(ctx, k); err == nil {
			c.Error("Read: no error from a silent store")
		}
		cancel()
		restore()
		c.eventually("the entry is read", func() bool {
			ctx, cancel := context.WithTimeout(c.Context(), time.Second)
			defer cancel()
			e, err := c.store.Read(ctx, k)
			return err == nil && c.payload(e) == "payload"
		})
	}},
}
