package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"
)

//go:embed expected.txt
var expectedList string

func main() {
	var (
		dir     = flag.String("suite", "internal/conformance/suite", "`folder` in which npm installed the suite")
		cache   = flag.String("cache", "memory", "what the proxy caches in: memory, redis or none")
		test    = flag.String("test", "", "run this test only, and trace it (an `id`)")
		all     = flag.Bool("all", false, "name every test that did not pass, the expected ones too")
		timeout = flag.Duration("timeout", 5*time.Minute, "end everything after this time")
	)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	err := run(ctx, *dir, *cache, *test, *all)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir, cache, test string, all bool) (err error) {
	known, err := parseExpected(expectedList)
	if err != nil {
		return err
	}
	origin, err := startOrigin(ctx, dir, test != "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, origin.stop()) }()
	proxy, err := startProxy(ctx, origin.url, cache)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, proxy.stop()) }()
	results, err := runSuite(ctx, dir, proxy.url, test)
	if err != nil {
		return err
	}
	switch {
	case len(results) == 0:
		return fmt.Errorf("there is no test %q", test)
	case test != "":
		fmt.Fprintln(os.Stdout, results[0])
		return nil
	}
	surprises := known.surprises(results)
	if cache == "none" {
		surprises = nil
	}
	for _, r := range results {
		if all && r.judged() && !r.passed() {
			fmt.Fprintln(os.Stdout, r)
		}
	}
	for _, s := range surprises {
		fmt.Fprintln(os.Stdout, s)
	}
	fmt.Fprint(os.Stdout, table(results))
	fmt.Fprintln(os.Stdout, summary(results))
	if n := len(surprises); n > 0 {
		return fmt.Errorf("%d tests did not do what expected.txt says", n)
	}
	return nil
}

// oneLine keeps what a test said on its line.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
