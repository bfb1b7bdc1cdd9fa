package stampede

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"
)

// Policy says how long entries live. In each field zero means the default and a negative value means
// off. The windows are added to TTL: with TTL 1 m, StaleFor 5 m and StaleIfError 10 m an entry is
// fresh for one minute, served stale for five more, and kept for ten more for when loads fail.
type Policy struct {
	// TTL is how long an entry is fresh. Default 1 m; it cannot be off. The smallest is 1 ms.
	TTL time.Duration
	// StaleFor is how long after TTL an entry is still served at once, while one caller in the fleet
	// loads behind. Default TTL. Off: callers wait for the load as soon as TTL has passed.
	StaleFor time.Duration
	// StaleIfError is how long after TTL an entry is kept for callers whose load fails or takes longer
	// than Options.SoftTimeout. Within StaleFor nobody waits, so it has an effect only where it is
	// longer. Default 10 m, or StaleFor if that is longer.
	StaleIfError time.Duration
	// NotFoundTTL is how long ErrNotFound is remembered. It has no stale windows and no jitter. Default
	// 5 s.
	NotFoundTTL time.Duration
	// ErrorBackoff is how long after a failed load no pod that has something stale to serve starts
	// another one. Then one pod in the fleet tries. If its load fails too, the time is twice as long, and
	// so on up to MaxErrorBackoff; a load that succeeds ends that, and so does Set, Delete or Expire. Who has
	// nothing loads all the same. Default 1 s. Off: the next caller loads.
	ErrorBackoff time.Duration
	// MaxErrorBackoff bounds the time after loads that failed in a row. It is also how long their number is
	// remembered while nobody asks. Default 30 s, or ErrorBackoff if that is longer. Off: the time is
	// ErrorBackoff after each.
	MaxErrorBackoff time.Duration
	// Jitter shortens each TTL by a random share of up to this much, so that entries written together
	// do not expire together, and the times after failed loads in the same way. It does not apply to
	// NotFoundTTL, nor to Load.TTL. From 0 to 1; default 0.1.
	Jitter float64
	// Beta scales early refresh: shortly before TTL ends, a caller may start a load behind, with a
	// probability that grows as the end comes near (XFetch, "Optimal Probabilistic Cache Stampede
	// Prevention", Vattani, Chierichetti and Lowenstein, VLDB 2015). Above 1 earlier, below 1 later.
	// Never before half of TTL. Entries written by Set have no load duration and are not refreshed
	// early. Default 1.
	//
	// In a fleet of n pods the first load starts about Beta times the load's usual duration times ln n
	// before the end. Where that is mostly more than half of TTL, TTL is short for such loads: the source
	// is asked twice as often as TTL says. The guard says so once, by EventShortTTL and to the Logger; a
	// longer TTL or a smaller Beta helps. See docs/early-refresh.md.
	Beta float64
	// TagSpread is over how long the loads of what ExpireTag has expired are spread: each key has its turn within
	// that time, the same in all pods, and is served stale until then. Callers who cannot be served with something
	// stale do not wait for it. It has no effect without Options.Tags. Default a tenth of TTL. Off: all are
	// loaded at their next Get.
	TagSpread time.Duration
}

// WaitAction is what happens to callers who waited for another pod's load for WaitTimeout.
type WaitAction uint8

// What happens to callers who waited for WaitTimeout.
const (
	LoadAnyway WaitAction = iota // this pod loads by itself, once for all its callers; nothing is stored
	FailWait                     // they get ErrWaitTimeout, or the value kept for StaleIfError
)

// Options configure a guard. All but Name may be left zero, which means the default.
type Options struct {
	// Name is the namespace of the keys in the store and the label in events. Guards of the same name
	// share their entries. Required; any text without braces, '@', spaces and control characters.
	Name string
	// Version is part of the namespace. Change it when T changes in a way that old and new code must
	// not read from each other. Characters as for Name. Default none.
	Version string
	// Policy says how long entries live.
	Policy Policy
	// Tags lets loads give tags to their values (Load.Tags), and expires all entries of a tag at once
	// (Guard.ExpireTag). It costs one request to the store before each load, and one beside each read that finds a
	// fresh entry with tags. All pods should have the same; where it is off, entries with tags are judged all the
	// same. The store must be a TagStore. Default false.
	Tags bool

	// LoadTimeout ends a load: the loader's ctx ends, callers get ErrLoadTimeout, the lease is given
	// back. A loader that goes on all the same is abandoned. Default 30 s; it cannot be off.
	LoadTimeout time.Duration
	// SoftTimeout is how long callers who could be served within StaleIfError wait for the load.
	// Default, and negative: until it ends.
	SoftTimeout time.Duration
	// WaitTimeout is how long callers wait for another pod's load, in all. Default LoadTimeout.
	// Negative: not at all.
	WaitTimeout time.Duration
	// OnWaitTimeout is what happens then. Default LoadAnyway.
	OnWaitTimeout WaitAction
	// Hedge is how many times the usual duration of a load callers wait for another pod's load before one
	// more pod of the fleet starts one beside it; the first value that is stored serves all. It is for
	// sources where a second attempt may be quick when the first one hangs. The usual duration is that of
	// earlier loads of the entry, if it is still stored, else of this guard's loads in this pod; where neither
	// is known, nothing is hedged. Nor is anything for which a stale value is served. At least 1;
	// default, and negative: off.
	Hedge float64
	// Lease is how long a pod that died keeps others from loading. A living pod renews it at a third
	// of it for as long as the load takes. Default 1 s, smallest 10 ms.
	Lease time.Duration
	// MaxAbandoned bounds the loaders that go on after they were given up. While there are as many,
	// nothing is loaded: stale values are served, other callers get ErrOverloaded. Default 64;
	// negative: no bound.
	MaxAbandoned int

	// MaxWaiters bounds the callers of this pod that wait for one key, the one who started its load included.
	// Others get ErrOverloaded at once, or the value kept for StaleIfError. Default, and negative: no bound;
	// a caller that waits costs a few hundred bytes, and whatever its request holds.
	MaxWaiters int
	// MaxLoads bounds the loads of this guard that run at a time in this pod, also while the store does not
	// answer. Over it, stale values are served and not loaded behind; callers with nothing to be served wait
	// for their turn, and for what another pod may store meanwhile, for up to WaitTimeout, then get
	// ErrOverloaded. A loader that was given up counts for MaxAbandoned, not here. Default, and negative: no
	// bound.
	MaxLoads int
	// FleetLoads bounds in the same way the loads that run at a time in all pods together. It costs each
	// load two requests to the store, and more when it is near its bound. All pods should have the same. A
	// pod that died keeps its part for one Lease. It does not hold while the store does not answer, nor
	// for loads that callers run for themselves, after Load.DoNotShare, say. Default, and negative: no
	// bound.
	FleetLoads int

	// StoreBudget is how long the store may keep a caller of Get or Fetch waiting, over all steps of
	// the call, before it is done without. A store may allow a single step less: with redisstore no
	// step takes longer than its Options.Timeout, whatever the budget. Default 250 ms, smallest 1 ms.
	StoreBudget time.Duration
	// CopyBudget is the same for callers for whom there is a copy in memory; it is StoreBudget once the
	// store has answered that it holds nothing any more. Default 25 ms, smallest 1 ms.
	CopyBudget time.Duration
	// Local configures the pod's memory tier. Stores that keep values as they are, like MemoryStore, need
	// none; for them it has no effect.
	Local Local

	// Codec turns values into bytes. Default Msgpack.
	Codec Codec
	// CopyOnRead gives each caller a value of its own, decoded anew. Without it, callers of a pod may
	// share one, which they must not change.
	CopyOnRead bool
	// MaxValueSize bounds the size of an encoded value with its tags, in bytes. A larger one is served but not
	// stored. It has no effect where values are kept as they are (MemoryStore without CopyOnRead). A store may
	// have a bound of its own: redisstore's Options.MaxEntrySize must be larger by 84 bytes.
	// Default 8 MiB; negative: no bound.
	MaxValueSize int

	// Observer is told of what happens, from many goroutines at once. Default none.
	Observer Observer
	// Logger gets what no caller can be told, on changes of state, not per request. A panic in its handler
	// is swallowed. Default slog.Default().
	Logger *slog.Logger
}

// Local configures the memory tier of a pod: copies of what is in the store. They are served when the
// store does not answer, and, with TTL, without asking it.
type Local struct {
	// TTL is for how long a copy is served, fresh or stale, without asking the store, counted from when it
	// was last read there. It is the most by which this pod may lag behind a Delete, Set or Expire on
	// another one; mostly that is told at once. This pod's own are never missed. Copies in use are read
	// anew behind before that, and stale ones every 20 ms, until another pod or this one has loaded. Default
	// and negative: the store is asked each time.
	TTL time.Duration
	// Entries bounds the number of copies. Default 10,000; negative: none are kept.
	Entries int
	// Bytes bounds the sum of their encoded sizes and of what they cost beside. A copy counts for at least
	// Bytes/Entries. Default 64 MiB; negative: no bound.
	Bytes int64
}

// or returns d, or def if d is zero, or zero (off) if d is negative.
func or[N int | int64 | float64 | time.Duration](d, def N) N {
	switch {
	case d == 0:
		return def
	case d < 0:
		return 0
	}
	return d
}

// withDefaults returns a copy of p in which nothing is zero for "default" and zero means off.
func (p Policy) withDefaults() Policy {
	p.TTL = or(p.TTL, time.Minute)
	p.StaleFor = or(p.StaleFor, p.TTL)
	p.StaleIfError = or(p.StaleIfError, max(10*time.Minute, p.StaleFor))
	p.NotFoundTTL = or(p.NotFoundTTL, 5*time.Second)
	p.ErrorBackoff = or(p.ErrorBackoff, time.Second)
	p.MaxErrorBackoff = or(p.MaxErrorBackoff, max(30*time.Second, p.ErrorBackoff))
	p.Jitter = or(p.Jitter, 0.1)
	p.Beta = or(p.Beta, 1)
	p.TagSpread = or(p.TagSpread, p.TTL/10)
	return p
}

// backoff is what a load that failed leaves behind; its First is zero if that is off.
func (p *Policy) backoff() Backoff {
	share := 1 - p.Jitter*rand.Float64()
	shorter := func(d time.Duration) time.Duration {
		return min(d, max(time.Duration(float64(d)*share), time.Millisecond))
	}
	return Backoff{First: shorter(p.ErrorBackoff), Max: shorter(p.MaxErrorBackoff)}
}

func (p Policy) validate() error {
	var errs []error
	if p.TTL < 0 || p.TTL > 0 && p.TTL < time.Millisecond {
		errs = append(errs, fmt.Errorf("stampede: Policy.TTL is %v; the smallest is 1ms", p.TTL))
	}
	if p.TTL > maxTTL {
		errs = append(errs, fmt.Errorf("stampede: Policy.TTL is %v; the longest is %v", p.TTL, maxTTL))
	}
	if p.StaleFor > 0 && p.StaleIfError > 0 && p.StaleIfError < p.StaleFor {
		errs = append(errs, fmt.Errorf("stampede: Policy.StaleIfError (%v) is shorter than StaleFor (%v), in which it has no effect; leave it zero or turn it off",
			p.StaleIfError, p.StaleFor))
	}
	if first := p.withDefaults().ErrorBackoff; p.MaxErrorBackoff > 0 && first == 0 {
		errs = append(errs, errors.New("stampede: Policy.MaxErrorBackoff without ErrorBackoff has no effect"))
	} else if p.MaxErrorBackoff > 0 && p.MaxErrorBackoff < first {
		errs = append(errs, fmt.Errorf("stampede: Policy.MaxErrorBackoff (%v) is shorter than ErrorBackoff (%v)", p.MaxErrorBackoff, first))
	}
	for _, w := range []struct {
		name string
		d    time.Duration
	}{
		{"StaleFor", p.StaleFor}, {"StaleIfError", p.StaleIfError}, {"NotFoundTTL", p.NotFoundTTL},
		{"ErrorBackoff", p.ErrorBackoff}, {"MaxErrorBackoff", p.MaxErrorBackoff}, {"TagSpread", p.TagSpread},
	} {
		if w.d > 0 && w.d < time.Millisecond {
			errs = append(errs, fmt.Errorf("stampede: Policy.%s is %v; the smallest is 1ms", w.name, w.d))
		}
		if w.d > maxTTL {
			errs = append(errs, fmt.Errorf("stampede: Policy.%s is %v; the longest is %v", w.name, w.d, maxTTL))
		}
	}
	if !(p.Jitter <= 1) { // also NaN
		errs = append(errs, fmt.Errorf("stampede: Policy.Jitter is %v; the largest is 1", p.Jitter))
	}
	if p.Beta != p.Beta || p.Beta > 1000 {
		errs = append(errs, fmt.Errorf("stampede: Policy.Beta is %v; the largest is 1000", p.Beta))
	}
	return errors.Join(errs...)
}

// maxTTL keeps sums of durations, and milliseconds in a store's header, far from their limits.
const maxTTL = 10 * 365 * 24 * time.Hour

func (o Options) withDefaults() Options {
	o.Policy = o.Policy.withDefaults()
	o.LoadTimeout = or(o.LoadTimeout, 30*time.Second)
	o.SoftTimeout = or(o.SoftTimeout, 0)
	o.WaitTimeout = or(o.WaitTimeout, o.LoadTimeout)
	o.Hedge = or(o.Hedge, 0)
	o.Lease = or(o.Lease, time.Second)
	o.MaxAbandoned = or(o.MaxAbandoned, 64)
	o.MaxWaiters = or(o.MaxWaiters, 0)
	o.MaxLoads = or(o.MaxLoads, 0)
	o.FleetLoads = or(o.FleetLoads, 0)
	o.StoreBudget = or(o.StoreBudget, 250*time.Millisecond)
	o.CopyBudget = or(o.CopyBudget, 25*time.Millisecond)
	o.Local.TTL = or(o.Local.TTL, 0)
	o.Local.Entries = or(o.Local.Entries, 10_000)
	o.Local.Bytes = or(o.Local.Bytes, 64<<20)
	o.MaxValueSize = or(o.MaxValueSize, 8<<20)
	if o.Codec == nil {
		o.Codec = Msgpack
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

func (o Options) validate() error {
	var errs []error
	if o.Name == "" {
		errs = append(errs, errors.New("stampede: Options.Name is empty; entries of different guards are told apart by it"))
	}
	for _, s := range []struct{ field, text string }{{"Name", o.Name}, {"Version", o.Version}} {
		if i := strings.IndexFunc(s.text, func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune("{}@", r) }); i >= 0 {
			errs = append(errs, fmt.Errorf("stampede: Options.%s %q holds %q", s.field, s.text, s.text[i:i+1]))
		}
	}
	errs = append(errs, o.Policy.validate())
	for _, d := range []struct {
		name     string
		d, least time.Duration
	}{
		{"LoadTimeout", o.LoadTimeout, time.Millisecond}, {"Lease", o.Lease, 10 * time.Millisecond},
		{"StoreBudget", o.StoreBudget, time.Millisecond}, {"CopyBudget", o.CopyBudget, time.Millisecond},
	} {
		if d.d != 0 && d.d < d.least {
			errs = append(errs, fmt.Errorf("stampede: Options.%s is %v; the smallest is %v", d.name, d.d, d.least))
		}
	}
	if l := o.Local; l.TTL > 0 && l.TTL < time.Millisecond {
		errs = append(errs, fmt.Errorf("stampede: Options.Local.TTL is %v; the smallest is 1ms", l.TTL))
	} else if l.TTL > 0 && l.Entries < 0 {
		errs = append(errs, errors.New("stampede: Options.Local.TTL without entries has no effect"))
	}
	if load := o.withDefaults().LoadTimeout; load > 0 && o.SoftTimeout > load {
		errs = append(errs, fmt.Errorf("stampede: Options.SoftTimeout (%v) is longer than LoadTimeout (%v)", o.SoftTimeout, load))
	}
	if o.Hedge > 0 && o.Hedge < 1 || o.Hedge != o.Hedge {
		errs = append(errs, fmt.Errorf("stampede: Options.Hedge is %v; the smallest is 1", o.Hedge))
	}
	if o.OnWaitTimeout > FailWait {
		errs = append(errs, fmt.Errorf("stampede: Options.OnWaitTimeout is %d, which is none of its values", o.OnWaitTimeout))
	}
	return errors.Join(errs...)
}

// space is the namespace of the guard's keys.
func (o *Options) space() string {
	if o.Version == "" {
		return o.Name
	}
	return o.Name + "@" + o.Version
}
