// Package workload holds what the contenders are put through, each in a file of its own.
//
// To add one, write a file with a Workload and name it in All.
package workload

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/bench/internal/contender"
	"github.com/herdgate/herdgate/bench/internal/fleet"
	"github.com/herdgate/herdgate/bench/internal/measure"
	"github.com/herdgate/herdgate/bench/internal/report"
	"github.com/herdgate/herdgate/internal/redisproc"
)

// Workload is something that contenders are put through.
type Workload struct {
	report.Workload
	// For says whether a contender takes part.
	For func(c contender.Contender) bool
	// Quick names those that take part in a quick run. Nil: all.
	Quick []string
	// Variants lists what is run, fewer and shorter when quick.
	Variants func(quick bool) []Variant
}

// Variant is a workload with its numbers filled in.
type Variant struct {
	Name string
	// Repeats is how often it is run when the user does not say.
	Repeats int
	// Takes is about how long one run of one contender takes.
	Takes time.Duration
	// Series names the number in which the variant differs from others, X is it; see report.Result.
	Series string
	X      float64
	Run    func(ctx context.Context, rig *Rig, c contender.Contender) (report.Result, error)
}

// TakesPart says whether a contender takes part, in a quick run or in a whole one.
func (w *Workload) TakesPart(c contender.Contender, quick bool) bool {
	return w.For(c) && (!quick || w.Quick == nil || slices.Contains(w.Quick, c.Name))
}

// All returns every workload, in the order in which they are run.
func All() []Workload {
	return []Workload{storm, cold, cost, redisHit, memoryHit, zipf, web, early, crash, hang, outage, restart, growth, hitGrowth}
}

// ErrNotHere is returned for what cannot be done with the rig at hand.
var ErrNotHere = errors.New("workload: needs a redis-server that the benchmark started itself")

// Rig is what workloads run on.
type Rig struct {
	// Addr is the address of Redis.
	Addr string
	// Server is the process, if it is ours.
	Server *redisproc.Server
	// Procs makes each pod a process.
	Procs bool

	rdb *redis.Client
}

// Client is the benchmark's own client of Redis, which is not counted.
func (r *Rig) Client() *redis.Client {
	if r.rdb == nil {
		r.rdb = redis.NewClient(&redis.Options{Addr: r.Addr})
	}
	return r.rdb
}

// Close frees what the rig has. It leaves the server alone.
func (r *Rig) Close() error {
	if r.rdb == nil {
		return nil
	}
	return r.rdb.Close()
}

// prefix returns a beginning for the keys of one run, which no other run has.
func (r *Rig) prefix() string {
	return "herdgate-bench:" + strconv.FormatUint(rand.Uint64(), 36) + ":"
}

// clean empties Redis if it is ours: what a run leaves behind must not cost the next one.
func (r *Rig) clean(ctx context.Context) error {
	if r.Server == nil {
		return nil
	}
	return r.Client().FlushAll(ctx).Err()
}

// setup is a fleet before a run.
type setup struct {
	pods   int
	spec   fleet.Spec // of each pod; Arrivals.Seed and Redis are filled in
	source *measure.Source
	procs  bool
	// during is run beside the calls. It ends when its ctx does.
	during func(ctx context.Context, f *fleet.Fleet, begin time.Time) error
}

// measured is what was measured in a run.
type measured struct {
	fleet.Outcomes
	measure.Counted
	server   measure.Server // what it did meanwhile
	arrivals []measure.Arrivals
	begin    time.Time
	took     *measure.Latency
	length   time.Duration
	deadline time.Duration // of a call
	pods     int
}

// lasted is how long a call took. One that failed brought nothing, however fast: it counts as one that took until its
// deadline, so that nobody looks better for failing.
func (m *measured) lasted(s fleet.Sample) time.Duration {
	if s.Outcome == fleet.Failed || s.Outcome == fleet.Unanswered {
		return max(s.Took, m.deadline)
	}
	return s.Took
}

// run opens a fleet, lets it make its calls and measures.
func (r *Rig) run(ctx context.Context, c contender.Contender, s setup) (m measured, err error) {
	if err := r.clean(ctx); err != nil {
		return m, err
	}
	s.spec.Redis, s.spec.Prefix = r.Addr, r.prefix()
	m.pods, m.length, m.deadline = s.pods, s.spec.Arrivals.For, s.spec.CallTimeout
	var specs []fleet.Spec
	for i := range s.pods {
		spec := s.spec
		spec.Arrivals.Seed = uint64(i + 1)
		specs = append(specs, spec)
		m.arrivals = append(m.arrivals, spec.Arrivals)
	}
	f, err := fleet.Open(ctx, c, specs, s.source, r.Procs || s.procs)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()

	before, err := measure.ReadServer(ctx, r.Client())
	if err != nil {
		return m, err
	}
	s.source.Reset()
	m.begin = time.Now().Add(fleet.Lead)
	beside := make(chan error, 1)
	besideCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		if s.during == nil {
			beside <- nil
			return
		}
		beside <- s.during(besideCtx, f, m.begin)
	}()
	m.Outcomes, err = f.Run(ctx, m.begin)
	m.Counted = s.source.Counted()
	cancel()
	err = errors.Join(err, <-beside)
	if err != nil {
		return m, err
	}
	after, err := measure.ReadServer(ctx, r.Client())
	if err != nil {
		return m, err
	}
	m.server = after.Minus(before)
	// Some may have been under way when the counts were taken.
	if n := m.server.Unseen(m.Sent); n > 20+int64(len(m.Samples))/10 {
		return m, fmt.Errorf("workload: Redis ran %d commands that were sent over connections which are not counted; is Env.Dial used by all clients, and Redis by nobody else?", n)
	}
	m.took = measure.NewLatency()
	for _, s := range m.Samples {
		m.took.Record(m.lasted(s))
	}
	slices.SortFunc(m.Samples, func(a, b fleet.Sample) int { return int(a.Due - b.Due) })
	return m, nil
}

// result is m as a result with the numbers that most workloads show.
func (m *measured) result() report.Result {
	calls := float64(max(1, len(m.Samples)))
	failed, oldest, late := 0, time.Duration(0), measure.NewLatency()
	for _, s := range m.Samples {
		if s.Outcome == fleet.Failed || s.Outcome == fleet.Unanswered {
			failed++
		}
		oldest = max(oldest, s.Age)
		late.Record(s.Late)
	}
	r := report.Result{
		Values: map[string]float64{
			"calls":            float64(len(m.Samples)),
			"errors":           float64(failed),
			"loads":            float64(len(m.Loads)),
			"most":             float64(m.Most),
			"p50":              ms(m.took.Quantile(0.5)),
			"p99":              ms(m.took.Quantile(0.99)),
			"p999":             ms(m.took.Quantile(0.999)),
			"max":              ms(m.took.Max()),
			"within5":          100 * m.took.Within(5*time.Millisecond),
			"age":              ms(oldest),
			"requests":         float64(m.Sent.Requests) / calls,
			"requests_per_pod": float64(m.Sent.Requests) / float64(m.pods),
			"writes":           float64(m.Sent.Writes) / calls,
			"scripted":         float64(m.server.Scripted(m.Sent)) / calls,
			"cpu":              us(m.CPU) / calls,
			"redis_cpu":        us(m.server.CPU) / calls,
			"late_p99":         ms(late.Quantile(0.99)), // how late calls were made: the machine's doing
		},
		Errors:   m.Errors,
		Commands: m.Sent.Commands,
		Timeline: m.timeline(100 * time.Millisecond),
	}
	r.Latency, _ = m.took.Encode() // a histogram in memory always encodes
	return r
}

// timeline cuts the run into stretches of the given length.
func (m *measured) timeline(each time.Duration) []report.Point {
	at := func(d time.Duration) int { return max(0, int(d/each)) }
	points := make([]report.Point, at(max(m.length-1, 0))+1)
	took := make([]*measure.Latency, len(points))
	for i := range points {
		points[i].At = (time.Duration(i) * each).Seconds()
		took[i] = measure.NewLatency()
	}
	for _, s := range m.Samples {
		i := at(s.Due)
		if i >= len(points) {
			continue
		}
		points[i].Calls++
		took[i].Record(s.Took)
		if s.Outcome == fleet.Failed || s.Outcome == fleet.Unanswered {
			points[i].Fails++
		}
	}
	for _, l := range m.Loads {
		if i := at(l.Begin.Sub(m.begin)); i < len(points) {
			points[i].Loads++
		}
	}
	for i := range points {
		points[i].P50, points[i].Max = ms(took[i].Quantile(0.5)), ms(took[i].Max())
	}
	return points
}

// between returns the calls that were due in a part of the run.
func (m *measured) between(from, to time.Duration) (samples []fleet.Sample) {
	for _, s := range m.Samples {
		if s.Due >= from && s.Due < to {
			samples = append(samples, s)
		}
	}
	return samples
}

// loadsBetween counts the loads that began in a part of the run.
func (m *measured) loadsBetween(from, to time.Duration) (n int) {
	for _, l := range m.Loads {
		if at := l.Begin.Sub(m.begin); at >= from && at < to {
			n++
		}
	}
	return n
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	values = slices.Sorted(slices.Values(values))
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// columns picks from the columns that many workloads share.
func columns(keys ...string) (list []report.Column) {
	for _, key := range keys {
		c, ok := shared[key]
		if !ok {
			panic(fmt.Sprintf("workload: no column %q; there are %v", key, slices.Sorted(maps.Keys(shared))))
		}
		c.Key = key
		list = append(list, c)
	}
	return list
}

var shared = map[string]report.Column{
	"errors":    {Title: "errors", Limit: "0"},
	"loads":     {Title: "loads"},
	"most":      {Title: "at once", Limit: "1"},
	"p50":       {Title: "p50", Unit: "ms", Digits: 2},
	"p99":       {Title: "p99", Unit: "ms", Digits: 2},
	"p999":      {Title: "p99.9", Unit: "ms", Digits: 1},
	"max":       {Title: "max", Unit: "ms", Digits: 0},
	"within5":   {Title: "within 5 ms", Unit: "%", Digits: 2, Limit: "that of raw GET"},
	"age":       {Title: "oldest", Unit: "ms"},
	"requests":  {Title: "requests per call", Digits: 3},
	"writes":    {Title: "writes per call", Digits: 3},
	"scripted":  {Title: "in scripts per call", Digits: 3},
	"cpu":       {Title: "CPU per call", Unit: "µs", Digits: 1},
	"late_p99":  {Title: "made late, p99", Unit: "ms", Digits: 1, Limit: "0"},
	"redis_cpu": {Title: "Redis CPU per call", Unit: "µs", Digits: 1},
}

// oneOfEach are those in Redis, but only one of the locks: when Redis does not answer they all load without one.
func oneOfEach(c contender.Contender) bool {
	return inRedis(c) && !slices.Contains([]string{xfetchName, "setnx-poll", "redsync"}, c.Name)
}

// inRedis are the contenders that keep values in Redis.
func inRedis(c contender.Contender) bool {
	return c.Kind == contender.Shared || c.Kind == contender.Elected
}
