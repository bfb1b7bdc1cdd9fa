package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program the hard way
	os.Exit(command(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// command parses the arguments, runs what they ask for and returns the exit code.
func command(ctx context.Context, args []string, out, errs io.Writer) int {
	cfg, err := parse(args, errs)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil: // parse has said so
		return 2
	}
	if err := run(ctx, cfg, out); err != nil {
		fmt.Fprintln(errs, "example:", err)
		return 1
	}
	return 0
}

// run sets up the shop and Redis, then compares and sends crowds, or serves. That ctx ends is no error.
func run(ctx context.Context, cfg config, out io.Writer) (err error) {
	rds, err := openRedis(ctx, cfg.redisURL)
	if err != nil {
		return unlessEnded(ctx, err)
	}
	defer rds.close()
	fmt.Fprintln(out, "Redis:     ", rds.about)

	shop, err := openCatalogue()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shop.close()) }()
	cost, err := shop.fill(ctx, cfg.scan)
	if err != nil {
		return unlessEnded(ctx, err)
	}
	fmt.Fprintf(out, "Database:   %d products, %d orders; the report scans them all, in %s when alone\n", numProducts, shop.orders, short(cost))

	if cfg.serve {
		return serve(ctx, cfg, rds, shop, out)
	}
	if _, err = compare(ctx, cfg, rds, shop, out); err != nil || ctx.Err() != nil {
		return err
	}
	_, err = crowds(ctx, cfg, rds, shop, out)
	return unlessEnded(ctx, err)
}

// unlessEnded returns err, or nil after ctx has ended, since err is then no more than a consequence.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}
