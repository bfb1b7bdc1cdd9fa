package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/herdgate/herdgate/bench/internal/contender"
	"github.com/herdgate/herdgate/bench/internal/fleet"
	"github.com/herdgate/herdgate/bench/internal/measure"
	"github.com/herdgate/herdgate/bench/internal/report"
	"github.com/herdgate/herdgate/bench/internal/traffic"
	"github.com/herdgate/herdgate/bench/internal/workload"
	"github.com/herdgate/herdgate/internal/redisproc"
)

// config is what the command line says.
type config struct {
	quick      bool
	run        string
	contenders string
	repeats    int
	redis      string
	procs      bool
	out        string
	render     string
	publish    string
	profile    string
	list       bool
	words      []string // that are no flags
}

func (c *config) flags() *flag.FlagSet {
	fs := flag.NewFlagSet("bench", flag.ExitOnError)
	fs.BoolVar(&c.quick, "quick", false, "shorter runs, one repeat, in less than 3 minutes; to see that all works, not to compare")
	fs.StringVar(&c.run, "run", "", "workloads to run, separated by commas (default all)")
	fs.StringVar(&c.contenders, "contenders", "", "contenders to run, separated by commas (default all)")
	fs.IntVar(&c.repeats, "repeats", 0, "how often to repeat each measurement (default what the workload says)")
	fs.StringVar(&c.redis, "redis", "", "`address` of a Redis that nobody else uses; default: start a redis-server on a free port")
	fs.BoolVar(&c.procs, "procs", false, "make each pod a process (the crash workload always does)")
	fs.StringVar(&c.out, "out", "", "`directory` for results.jsonl, report.md and report.html (default: print the tables only)")
	fs.StringVar(&c.render, "render", "", "measure nothing: write the tables, and the pictures if there is -out, of this `file` of results")
	fs.StringVar(&c.publish, "publish", "", "`root` of the repository: put the numbers into its README.md and docs/performance.md, the picture into docs/storm.svg")
	fs.StringVar(&c.profile, "cpuprofile", "", "write a profile of the processor to this `file`; of use with one contender and one workload")
	fs.BoolVar(&c.list, "list", false, "list workloads and contenders")
	fs.Usage = func() {
		fmt.Fprint(fs.Output(), "Bench measures herdgate beside what people use instead of it.\n\nusage: go run -C bench . [flags]\n\n")
		fs.PrintDefaults()
	}
	return fs
}

func main() {
	fleet.Main()   // ends here if this process is a pod
	traffic.Main() // or a client
	redis.SetLogger(new(logging.VoidLogger))
	var cfg config
	fs := cfg.flags()
	_ = fs.Parse(os.Args[1:]) // it exits
	cfg.words = fs.Args()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := start(ctx, &cfg, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// maxRepeats bounds what a slip of the finger can ask for.
const maxRepeats = 100

// check finds what would waste a run, before it.
func (c *config) check() error {
	if len(c.words) > 0 {
		return fmt.Errorf("%q is no flag; workloads are named with -run, contenders with -contenders", c.words[0])
	}
	if c.repeats < 0 || c.repeats > maxRepeats {
		return fmt.Errorf("-repeats is %d; it can be 1 to %d, or 0 for what the workload says", c.repeats, maxRepeats)
	}
	if c.out == "" || c.list {
		return nil
	}
	if err := os.MkdirAll(c.out, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(c.out, ".can-be-written-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

func start(ctx context.Context, cfg *config, out, progress io.Writer) error {
	if err := cfg.check(); err != nil {
		return err
	}
	switch {
	case cfg.list:
		return list(out)
	case cfg.render != "":
		return render(cfg, out)
	}
	p, err := newPlan(cfg)
	if err != nil {
		return err
	}
	rig := &workload.Rig{Addr: cfg.redis, Procs: cfg.procs}
	if cfg.redis == "" {
		if rig.Server, err = redisproc.Start(redisproc.Options{}); err != nil {
			return err
		}
		defer rig.Server.Close()
		rig.Addr = rig.Server.Addr()
	}
	defer rig.Close()
	redisNow, err := measure.ReadServer(ctx, rig.Client())
	if err != nil {
		return err
	}
	run := describe(p, redisNow.Version)
	run.Quick = cfg.quick
	book := &report.Book{Run: run}
	if cfg.profile != "" {
		f, err := os.Create(cfg.profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	p.measure(ctx, rig, book, progress)
	if ctx.Err() != nil {
		book.Run.Unfinished = "it was interrupted"
	}
	return write(cfg, book, out)
}

func list(out io.Writer) error {
	fmt.Fprintln(out, "workloads:")
	for _, w := range workload.All() {
		fmt.Fprintf(out, "  %-20s %s\n", w.Name, w.Title)
	}
	fmt.Fprintln(out, "contenders:")
	for _, c := range contender.All() {
		fmt.Fprintf(out, "  %-20s %s\n", c.Name, c.About)
	}
	return nil
}

func render(cfg *config, out io.Writer) error {
	f, err := os.Open(cfg.render)
	if err != nil {
		return err
	}
	defer f.Close()
	run, results, err := report.Read(f)
	if err != nil {
		return err
	}
	return write(cfg, &report.Book{Run: run, Results: results}, out)
}

// write prints the tables and, if there is a place for them, writes the files.
func write(cfg *config, book *report.Book, out io.Writer) error {
	if err := book.Markdown(out); err != nil {
		return err
	}
	if cfg.publish != "" {
		if err := publish(cfg.publish, book); err != nil {
			return err
		}
	}
	if cfg.out == "" {
		return nil
	}
	if err := os.MkdirAll(cfg.out, 0o755); err != nil {
		return err
	}
	for name, write := range map[string]func(io.Writer) error{
		"results.jsonl": book.Lines,
		"report.md":     book.Markdown,
		"report.html":   book.HTML,
	} {
		f, err := os.Create(filepath.Join(cfg.out, name))
		if err != nil {
			return err
		}
		if err := errors.Join(write(f), f.Close()); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// plan is what is to be run, in order.
type plan struct {
	workloads  []workload.Workload
	contenders []contender.Contender
	steps      []step
}

// step is one run of one contender.
type step struct {
	workload  *workload.Workload
	variant   workload.Variant
	contender contender.Contender
	repeat    int
}

func newPlan(cfg *config) (*plan, error) {
	workloads, err := choose(workload.All(), cfg.run, func(w workload.Workload) string { return w.Name })
	if err != nil {
		return nil, err
	}
	contenders, err := choose(contender.All(), cfg.contenders, func(c contender.Contender) string { return c.Name })
	if err != nil {
		return nil, err
	}
	p := &plan{workloads: workloads, contenders: contenders}
	for i := range workloads {
		p.add(&workloads[i], cfg)
	}
	if len(p.steps) == 0 {
		return nil, errors.New("no contender takes part in what is to be run")
	}
	return p, nil
}

// add plans a workload. Contenders take turns within each repeat, and who begins changes from one to the next, so
// that none of them has the machine's good minutes for itself.
func (p *plan) add(w *workload.Workload, cfg *config) {
	var taking []contender.Contender
	for _, c := range p.contenders {
		if w.TakesPart(c, cfg.quick && cfg.contenders == "") {
			taking = append(taking, c)
		}
	}
	variants := w.Variants(cfg.quick)
	for repeat := range maxRepeats {
		for _, v := range variants {
			repeats := v.Repeats
			if cfg.repeats > 0 {
				repeats = cfg.repeats
			}
			if repeat >= repeats {
				continue
			}
			for i := range taking {
				p.steps = append(p.steps, step{w, v, taking[(i+repeat)%len(taking)], repeat})
			}
		}
	}
}

// choose picks from all by the names that the user gave.
func choose[T any](all []T, names string, nameOf func(T) string) ([]T, error) {
	if names == "" {
		return all, nil
	}
	var known, wanted []string
	for _, x := range all {
		known = append(known, nameOf(x))
	}
	for name := range strings.SplitSeq(names, ",") {
		name = strings.TrimSpace(name)
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("there is no %q; there are %s", name, strings.Join(known, ", "))
		}
		wanted = append(wanted, name)
	}
	return slices.DeleteFunc(all, func(x T) bool { return !slices.Contains(wanted, nameOf(x)) }), nil
}

// measure makes all runs, or those that there is time for until ctx ends.
func (p *plan) measure(ctx context.Context, rig *workload.Rig, book *report.Book, progress io.Writer) {
	planned := time.Duration(0) // of what is left
	for _, s := range p.steps {
		planned += s.variant.Takes
	}
	fmt.Fprintf(progress, "%d runs, about %v; Ctrl-C ends it and shows what was measured\n", len(p.steps), planned.Round(time.Second))
	begun, done := time.Now(), time.Duration(0)
	for i, s := range p.steps {
		if ctx.Err() != nil {
			return
		}
		left := planned
		if done > 10*time.Second { // the machine has shown how fast it is
			left = time.Duration(float64(planned) * float64(time.Since(begun)) / float64(done))
		}
		fmt.Fprintf(progress, "%4d/%d  %5v left  %s, %s: %s #%d\n", i+1, len(p.steps), left.Round(time.Second), s.workload.Name, s.variant.Name, s.contender.Name, s.repeat+1)
		r, err := runStep(ctx, rig, s)
		planned -= s.variant.Takes
		done += s.variant.Takes
		if ctx.Err() != nil {
			return // what was cut short is no result
		}
		r.Workload, r.Variant, r.Contender, r.Repeat = s.workload.Name, s.variant.Name, s.contender.Name, s.repeat
		r.Series, r.X = s.variant.Series, s.variant.X
		if !s.workload.OverTime || s.repeat > 0 {
			r.Timeline = nil // nobody looks at it, and it is most of the file
		}
		if err != nil {
			r.Fault = err.Error()
			fmt.Fprintf(progress, "           %v\n", err)
		}
		book.Results = append(book.Results, r)
	}
}

// patience is how long after its end was called for a run may take to clean up. A fleet closes within half of it.
const patience = 20 * time.Second

// runStep bounds a run: a contender that never returns, whatever becomes of its ctx, must not stop the rest.
func runStep(ctx context.Context, rig *workload.Rig, s step) (report.Result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*s.variant.Takes+30*time.Second, errors.New("it took far too long"))
	defer cancel()
	type outcome struct {
		result report.Result
		err    error
	}
	done := make(chan outcome, 1)
	go func() {
		r, err := s.variant.Run(ctx, rig, s.contender)
		done <- outcome{r, err}
	}()
	select {
	case o := <-done:
		return o.result, o.err
	case <-ctx.Done():
	}
	select {
	case o := <-done:
		return o.result, o.err
	case <-time.After(patience):
		return report.Result{}, errors.New("it never returned, and may have weighed on what was run after it")
	}
}
