package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/stampede/lock"
)

// storage is what the lock is to protect.
type storage interface {
	write(ctx context.Context, price string, fence uint64) error
	read(ctx context.Context) (string, error)
}

// plain writes whatever comes.
type plain struct {
	rdb *redis.Client
	key string
}

func (p plain) write(ctx context.Context, price string, _ uint64) error {
	return p.rdb.Set(ctx, p.key, price, time.Hour).Err()
}

func (p plain) read(ctx context.Context) (string, error) { return p.rdb.Get(ctx, p.key).Result() }

// fenced refuses a number that is lower than one that it has seen.
type fenced struct {
	rdb *redis.Client
	key string
}

func (f fenced) write(ctx context.Context, price string, fence uint64) error {
	return lock.SetFenced(ctx, f.rdb, f.key, price, fence, time.Hour)
}

func (f fenced) read(ctx context.Context) (string, error) {
	return f.rdb.HGet(ctx, f.key, "value").Result()
}

// story is told once for each storage.
type story struct {
	title   string
	storage storage
	rdb     *redis.Client
	space   string
	out     io.Writer
	begun   time.Time
}

func (s *story) say(who, format string, args ...any) {
	fmt.Fprintf(s.out, "  %4d ms  %-5s %s\n", time.Since(s.begun).Milliseconds(), who, fmt.Sprintf(format, args...))
}

// tell has Ann paused while she holds the lock.
func (s *story) tell(ctx context.Context) error {
	fmt.Fprintf(s.out, "\n%s\n\n", s.title)
	s.begun = time.Now()
	anns, err := newLocker(s.rdb, s.space)
	if err != nil {
		return err
	}
	defer anns.Close()
	bobs, err := newLocker(s.rdb, s.space)
	if err != nil {
		return err
	}
	defer bobs.Close()

	// Ann is paused as a whole, so nothing renews her lock: that is why it is not kept.
	ann, err := anns.Acquire(ctx, "price", lease)
	if err != nil {
		return err
	}
	s.say("Ann", "has the lock, %s, works out the price 17.00, and is paused", number(ann, ann))

	bob, err := bobs.Acquire(ctx, "price", lease)
	if err != nil {
		return err
	}
	s.say("Bob", "waited until her lease was over, has the lock, %s, and works out 18.50", number(bob, ann))
	if err := s.storage.write(ctx, "18.50", bob.Fence()); err != nil {
		return err
	}
	s.say("Bob", "has written 18.50")
	if err := bob.Release(ctx); err != nil {
		return err
	}

	s.say("Ann", "goes on where she was, and writes")
	switch err := s.storage.write(ctx, "17.00", ann.Fence()); {
	case errors.Is(err, lock.ErrStale):
		s.say("", "the storage refuses: it has seen a higher number")
	case err != nil:
		return err
	default:
		s.say("", "the storage takes it")
	}
	if err := ann.Release(ctx); !errors.Is(err, lock.ErrLost) {
		return fmt.Errorf("the lock that was lost was released: %w", err)
	}
	s.say("Ann", "learns that her lock was lost, too late to help")

	price, err := s.storage.read(ctx)
	if err != nil {
		return err
	}
	verdict := "right"
	if price != "18.50" {
		verdict = "wrong: the old writer won"
	}
	fmt.Fprintf(s.out, "\n  The price is %s: %s.\n", price, verdict)
	return nil
}

// number says what a lock's fencing number is, from that of the first one on.
func number(l, first *lock.Lock) string {
	if l == first {
		return "number n"
	}
	return fmt.Sprintf("number n+%d", l.Fence()-first.Fence())
}
