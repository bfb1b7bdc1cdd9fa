package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2" //nolint:depguard // the example has to run where there is no Redis
	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/stampede/lock"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(command(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// command parses the arguments, tells the story and returns the exit code.
func command(ctx context.Context, args []string, out, errs io.Writer) int {
	fs := flag.NewFlagSet("locks", flag.ContinueOnError)
	fs.SetOutput(errs)
	url := fs.String("redis", "", "`url` of a Redis, like redis://localhost:6379/0; default $REDIS_URL, else an\nembedded stand-in")
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	if err := run(ctx, cmp.Or(*url, os.Getenv("REDIS_URL")), out); err != nil {
		fmt.Fprintln(errs, "locks:", err)
		return 1
	}
	return 0
}

// open returns a client of the Redis at url, or of a stand-in when url is empty.
func open(ctx context.Context, url string) (*redis.Client, func(), error) {
	if url == "" {
		m, err := miniredis.Run()
		if err != nil {
			return nil, nil, err
		}
		m.ClockTTL(true)
		rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
		return rdb, func() { _ = rdb.Close(); m.Close() }, nil
	}
	if !strings.Contains(url, "://") {
		url = "redis://" + url
	}
	opts, err := redis.ParseURL(url)
	if err != nil {
		return nil, nil, fmt.Errorf("-redis: %w", err)
	}
	opts.MaxRetries, opts.DialerRetries = -1, 1
	rdb := redis.NewClient(opts)
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := rdb.Ping(ctx).Err(); err != nil {
		_ = rdb.Close()
		return nil, nil, fmt.Errorf("no answer from Redis at %s: %w", opts.Addr, err)
	}
	return rdb, func() { _ = rdb.Close() }, nil
}

// run tells the story twice.
func run(ctx context.Context, url string, out io.Writer) (err error) {
	rdb, done, err := open(ctx, url)
	if err != nil {
		return err
	}
	defer done()
	space := "example-locks-" + rand.Text()[:8]
	defer func() { err = errors.Join(err, tidy(ctx, rdb, space)) }()

	fmt.Fprintln(out, "Two workers bring a price up to date. A lock is to keep them apart; its lease is 200 ms.")
	for _, s := range []*story{
		{title: "Without a fencing number", storage: plain{rdb, space + ":plain"}},
		{title: "With a fencing number", storage: fenced{rdb, space + ":fenced"}},
	} {
		s.rdb, s.space, s.out = rdb, space, out
		if err := s.tell(ctx); err != nil {
			return err
		}
	}
	return nil
}

// tidy removes what was written.
func tidy(ctx context.Context, rdb *redis.Client, space string) error {
	keys, err := rdb.Keys(context.WithoutCancel(ctx), space+":*").Result()
	if err != nil || len(keys) == 0 {
		return err
	}
	return rdb.Del(context.WithoutCancel(ctx), keys...).Err()
}

// lease is short, so that the story is. Nothing depends on its length: a pause may always be longer.
const lease = 200 * time.Millisecond

// newLocker is a worker's way to the locks.
func newLocker(rdb *redis.Client, space string) (*lock.Locker, error) {
	return lock.New(&lock.Options{Name: space, Timeout: 5 * time.Second}, rdb)
}
