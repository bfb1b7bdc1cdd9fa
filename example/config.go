package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"time"
)

// config is what the command line says.
type config struct {
	redisURL string
	pods     int
	rate     float64       // requests a second, of all pods together
	duration time.Duration // of each phase
	timeout  time.Duration // of a request
	ttl      time.Duration // of the report
	scan     time.Duration // what the report should cost
	serve    bool
	addr     string
}

// loadPerCPU is how many CPUs' worth of scans come in for each CPU there is while the entry is missing
// and nobody is held back. Above 1 scans pile up, and each new one slows down those under way. At 5 the
// first of a burst ends only when about fifty for each CPU are under way: a database in collapse, from
// which it just comes back.
const loadPerCPU = 5

func parse(args []string, errs io.Writer) (config, error) {
	var cfg config
	fs := flag.NewFlagSet("example", flag.ContinueOnError)
	fs.SetOutput(errs)
	fs.StringVar(&cfg.redisURL, "redis", "", "`url` of a Redis, like redis://localhost:6379/0; default $REDIS_URL, else an\nembedded stand-in")
	fs.IntVar(&cfg.pods, "pods", 3, "`number` of pods")
	fs.Float64Var(&cfg.rate, "rate", 0, "`requests` per second, over all pods; 0: as many as make the scans of an\nunprotected expiry ask for five times the CPUs there are")
	fs.DurationVar(&cfg.duration, "duration", 3*time.Second, "how long each of the three phases is under load")
	fs.DurationVar(&cfg.timeout, "timeout", 2*time.Second, "how long a client waits for an answer")
	fs.DurationVar(&cfg.ttl, "ttl", time.Second, "how long the report is fresh")
	fs.DurationVar(&cfg.scan, "scan", 100*time.Millisecond, "what one report should cost; the number of orders is chosen for it")
	fs.BoolVar(&cfg.serve, "serve", false, "no storm: serve until Ctrl-C, for curl")
	fs.StringVar(&cfg.addr, "addr", "localhost:8080", "with -serve: `address` of the first pod; the others have the ports after it")
	fs.Usage = func() {
		fmt.Fprint(errs, "Compares what an expiring cache entry costs the database without protection, with a\n"+
			"singleflight in each pod, and with herdgate; then what crowds cost handlers behind the\n"+
			"HTTP middleware. Ctrl-C ends it at any moment.\n\n"+
			"usage: go run ./example [flags]\n\n")
		fs.PrintDefaults()
	}
	if err := fs.Parse(args); err != nil {
		return cfg, err
	}
	cfg.redisURL = cmp.Or(cfg.redisURL, os.Getenv("REDIS_URL"))
	cfg.rate = cmp.Or(cfg.rate, loadPerCPU*float64(runtime.GOMAXPROCS(0))/cfg.scan.Seconds())
	if err := cfg.validate(fs.Args()); err != nil {
		fmt.Fprintf(errs, "%v\nrun with -h for help\n", err)
		return cfg, err
	}
	return cfg, nil
}

func (cfg *config) validate(rest []string) error {
	var errs []error
	if len(rest) > 0 {
		errs = append(errs, fmt.Errorf("unknown argument %q", rest[0]))
	}
	if cfg.pods < 1 || cfg.pods > 100 {
		errs = append(errs, fmt.Errorf("-pods is %d, which is not from 1 to 100", cfg.pods))
	}
	if !(cfg.rate > 0 && cfg.rate <= 100_000) {
		errs = append(errs, fmt.Errorf("-rate is %v, which is not from above 0 to 100,000", cfg.rate))
	}
	for _, d := range []struct {
		name        string
		d, from, to time.Duration
	}{
		{"duration", cfg.duration, 100 * time.Millisecond, time.Hour},
		{"timeout", cfg.timeout, 10 * time.Millisecond, time.Minute},
		{"ttl", cfg.ttl, 100 * time.Millisecond, time.Hour},
		{"scan", cfg.scan, time.Millisecond, 10 * time.Second},
	} {
		if d.d < d.from || d.d > d.to {
			errs = append(errs, fmt.Errorf("-%s is %v, which is not from %v to %v", d.name, d.d, d.from, d.to))
		}
	}
	if _, err := cfg.listenAddr(cfg.pods - 1); cfg.serve && err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// listenAddr is where pod i listens: in a storm on any free port.
func (cfg *config) listenAddr(i int) (string, error) {
	if !cfg.serve {
		return "127.0.0.1:0", nil
	}
	host, port, err := net.SplitHostPort(cfg.addr)
	n, nerr := strconv.ParseUint(port, 10, 16)
	if err != nil || nerr != nil || n > 0 && int(n)+i > 65535 {
		return "", fmt.Errorf("-addr %q is not a host and a port that leaves room for all pods", cfg.addr)
	}
	if n == 0 {
		i = 0
	}
	return net.JoinHostPort(host, strconv.Itoa(int(n)+i)), nil
}
