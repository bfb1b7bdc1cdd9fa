package stampede_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/stampedetest"
)

// Random options, calls, loaders and faults, all together. What must hold whatever they are: each call returns
// in time and with what belongs to its key, loads keep to MaxLoads, and in the end nothing is left behind.

const (
	breadthKeys = 6
	breadthLoad = 3 * time.Second  // LoadTimeout
	breadthHang = 10 * time.Second // what a loader that hangs takes
)

// play is one random history.
type play struct {
	t      *testing.T
	r      *rand.Rand
	opts   stampede.Options
	faults bool // of the store
	absent bool // some loaders say that there is no such thing
	passes bool // some loads are for their callers alone
	nests  bool // some loaders call the guard
	quiet  bool // no store trouble, no modes, no Close
	pods   []*stage
	store  interface {
		stampede.Store
		Watches() int
	}

	mu    sync.Mutex // protects what follows
	loads int
}

// stage is a pod, and the loads that run in it.
type stage struct {
	pod

	mu      sync.Mutex // protects what follows
	running []*running
	top     int      // so many at once
	twice   []string // keys that were loaded twice at once
	closed  time.Time
	late    int // loads that began after Close had returned
}

type running struct {
	ctx   context.Context // of a load that was given up it has ended
	keys  []string
	began time.Time
}

// mayBeGivenUp says whether the load of one of several keys may have been given up while those of others have not: a
// ManyLoader begins later than the load of a key does, by what steps of the store take, and ends with the last of them.
func (r *running) mayBeGivenUp() bool {
	return len(r.keys) > 1 && time.Since(r.began) > breadthLoad-time.Second/2
}

// enter counts a load until it leaves or is given up.
func (s *stage) enter(ctx context.Context, keys ...string) (leave func()) {
	time.Sleep(time.Nanosecond) // all that happens at this moment has happened
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed.IsZero() && time.Since(s.closed) > tick {
		s.late++
	}
	r := &running{ctx, keys, time.Now()}
	s.running = slices.DeleteFunc(append(s.running, r), func(r *running) bool { return r.ctx.Err() != nil })
	for _, other := range s.running {
		for _, key := range keys {
			if other != r && slices.Contains(other.keys, key) && !other.mayBeGivenUp() {
				s.twice = append(s.twice, key)
			}
		}
	}
	s.top = max(s.top, len(s.running))
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running = slices.DeleteFunc(s.running, func(other *running) bool { return other == r })
	}
}

// turn is one call with what its loader does, drawn before it begins.
type turn struct {
	at, patience, takes time.Duration
	pod                 int
	what, how           string
	keys                []string
	inner               *turn // what the loader calls
}

func (c *turn) String() string {
	if c == nil {
		return "-"
	}
	return fmt.Sprintf("%v pod %d %s(%s) patience %v; load %s %v [%v]", c.at, c.pod, c.what, strings.Join(c.keys, " "), c.patience, c.how, c.takes, c.inner)
}

func one[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func (p *play) options() stampede.Options {
	r := p.r
	o := stampede.Options{
		Policy: stampede.Policy{
			TTL: one(r, 50*time.Millisecond, 300*time.Millisecond, time.Second), StaleFor: one[time.Duration](r, -1, 0, 500*time.Millisecond),
			StaleIfError: one[time.Duration](r, -1, 2*time.Second), NotFoundTTL: one[time.Duration](r, -1, 100*time.Millisecond),
			ErrorBackoff: one[time.Duration](r, -1, 0, 100*time.Millisecond), Jitter: one(r, -1, 0.5), Beta: one(r, -1.0, 0, 5),
		},
		LoadTimeout: breadthLoad, WaitTimeout: one(r, time.Hour, time.Hour, time.Second, -1), OnWaitTimeout: one(r, stampede.LoadAnyway, stampede.FailWait),
		SoftTimeout: one[time.Duration](r, 0, 100*time.Millisecond), Hedge: one(r, 0.0, 0, 2), Lease: one(r, time.Second, 100*time.Millisecond),
		MaxAbandoned: one(r, -1, 0), MaxWaiters: one(r, 0, 0, 1, 5), MaxLoads: one(r, 0, 1, 1, 2), FleetLoads: one(r, 0, 0, 1, 3),
		Local: stampede.Local{
			TTL: one[time.Duration](r, 0, 0, 20*time.Millisecond, time.Second), Entries: one(r, 0, 2), Bytes: one[int64](r, 0, -1),
		},
		CopyOnRead: one(r, false, true),
	}
	if r.IntN(3) == 0 { // callers may stand for election without a read
		o.SoftTimeout, o.MaxWaiters, o.MaxLoads, o.FleetLoads, o.Local.Entries = 0, 0, 0, 0, 0
	}
	if o.Policy.StaleIfError > 0 {
		o.Policy.StaleFor = min(o.Policy.StaleFor, o.Policy.StaleIfError)
	}
	return o
}

func (p *play) turn(depth int) *turn {
	r := p.r
	c := &turn{
		at: time.Duration(r.IntN(3000)) * time.Millisecond, pod: r.IntN(len(p.pods)),
		what: one(r, "get", "get", "get", "many", "many", "fetch", "refresh", "delete", "set", "expire", "peek"),
		how:  one(r, "value", "value", "value", "value", "error", "absent", "panic", "goexit", "hang", "deaf"),
	}
	if r.IntN(3) == 0 {
		c.patience = time.Duration(1+r.IntN(300)) * time.Millisecond
	}
	if r.IntN(2) == 0 {
		c.takes = time.Duration(r.IntN(300)) * time.Millisecond
	}
	n := 1
	if c.what == "many" {
		n = 1 + r.IntN(4)
	}
	for range n {
		c.keys = append(c.keys, fmt.Sprint("k", r.IntN(breadthKeys)))
	}
	if c.what == "fetch" && r.IntN(3) == 0 {
		c.how = one(r, "private", "pass", "stream", "unstored")
	}
	if p.nests && depth < 2 && r.IntN(3) == 0 {
		c.inner = p.turn(depth + 1)
		c.inner.at, c.inner.pod = 0, c.pod
	}
	return c
}

// work is what all loaders do.
func (p *play) work(ctx context.Context, c *turn, keys ...string) (n int, err error) {
	defer p.pods[c.pod].enter(ctx, keys...)()
	if c.inner != nil {
		p.call(ctx, c.inner)
	}
	takes := c.takes
	if c.how == "hang" || c.how == "deaf" {
		takes = breadthHang
	}
	if timer := time.NewTimer(takes); c.how == "deaf" {
		<-timer.C
	} else {
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	switch c.how {
	case "error":
		return 0, errBoom
	case "absent":
		return 0, stampede.ErrNotFound
	case "panic":
		panic(errBoom)
	case "goexit":
		runtime.Goexit()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loads++
	return p.loads, nil
}

// valueOf is a value by which its key can be told.
func valueOf(key string, n int) int {
	i, _ := strconv.Atoi(key[1:])
	return 1000*n + i + 1
}

func (p *play) loadOf(c *turn) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		n, err := p.work(ctx, c, c.keys[0])
		return valueOf(c.keys[0], n), err
	}
}

func (p *play) fetched(c *turn) func(context.Context, *stampede.Load[int]) (int, error) {
	return func(ctx context.Context, l *stampede.Load[int]) (int, error) {
		switch c.how {
		case "private":
			l.DoNotShare()
		case "pass":
			l.Pass(200 * time.Millisecond)
		case "stream":
			l.ReleaseWaiters()
		case "unstored":
			l.DoNotStore()
		}
		n, err := p.work(ctx, c, c.keys[0])
		return valueOf(c.keys[0], n), err
	}
}

func (p *play) loadMany(c *turn) stampede.ManyLoader[int] {
	return func(ctx context.Context, keys []string) (map[string]int, error) {
		n, err := p.work(ctx, c, keys...)
		found := map[string]int{}
		for _, key := range keys {
			found[key] = valueOf(key, n)
		}
		return found, err
	}
}

// call makes a call and looks at what it brings.
func (p *play) call(ctx context.Context, c *turn) {
	if c.patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.patience)
		defer cancel()
	}
	g, key, begun := p.pods[c.pod], c.keys[0], time.Now()
	found, err := map[string]int{}, error(nil)
	switch c.what {
	case "get":
		found[key], err = g.Get(ctx, key, p.loadOf(c))
	case "fetch":
		var r stampede.Result[int]
		r, err = g.Fetch(ctx, key, p.fetched(c))
		found[key] = r.Value
	case "many":
		found, err = g.GetMany(ctx, c.keys, p.loadMany(c))
		if err == nil { // what is not there was not found, which only some loaders say
			for _, k := range c.keys {
				if _, ok := found[k]; ok || p.absent {
					continue
				}
				p.t.Errorf("%v: %s is missing, without an error", c, k)
			}
		}
	case "refresh":
		err = g.Refresh(ctx, key, p.loadOf(c))
	case "peek":
		_, _, err = g.Peek(ctx, key)
	case "delete":
		err = g.Delete(ctx, c.keys...)
	case "expire":
		err = g.Expire(ctx, key)
	case "set":
		err = g.Set(ctx, key, valueOf(key, 1))
	}
	took := time.Since(begun)
	for k, v := range found {
		if (err == nil || c.what == "many") && v%1000 != valueOf(k, 0) {
			p.t.Errorf("%v: %s is %d, which is not one of its values", c, k, v)
		}
		if err != nil && c.what != "many" && v != 0 {
			p.t.Errorf("%v: a value with %v", c, err)
		}
	}
	bound := time.Minute // the loads of all keys one by one, some of which hang
	if c.patience > 0 {
		bound = c.patience
	}
	if took > bound {
		p.t.Errorf("%v: returned after %v: %v", c, took, err)
	}
	known := []error{nil, errBoom, stampede.ErrNotFound, stampede.ErrLoadTimeout, stampede.ErrOverloaded, stampede.ErrGoexit, stampede.ErrClosed,
		stampede.ErrReentrant, context.DeadlineExceeded, context.Canceled}
	if p.opts.OnWaitTimeout == stampede.FailWait {
		known = append(known, stampede.ErrWaitTimeout)
	}
	if p.quiet && !p.faults || c.what == "get" || c.what == "fetch" || c.what == "many" {
		for _, e := range known {
			if errors.Is(err, e) {
				return
			}
		}
		if c.what != "set" {
			p.t.Errorf("%v: %v", c, err)
		}
	}
}

// fault draws what becomes of a step.
func (p *play) fault(c stampedetest.Call) (f stampedetest.Fault) {
	switch rand.IntN(40) {
	case 0:
		f.Delay = time.Duration(rand.IntN(400)) * time.Millisecond
	case 1:
		f.Err = stampede.ErrUnavailable
	case 2:
		f.Lost, f.Ghost = errBoom, rand.IntN(2) == 0
	case 3:
		f.Full = errBoom
	case 4:
		f.EndLease = true
	case 5:
		f.Steal = time.Duration(1+rand.IntN(500)) * time.Millisecond
	case 6:
		f.Delay = time.Minute
	}
	return f
}

// trouble is what happens to pods meanwhile.
func (p *play) trouble(ctx context.Context) {
	for ctx.Err() == nil {
		s := p.pods[rand.IntN(len(p.pods))]
		switch rand.IntN(7) {
		case 0:
			s.net.Down(nil)
		case 1:
			s.net.Hang()
		case 2:
			s.net.Mute(true)
		case 3: // the store restarts empty
			for i := range breadthKeys {
				_ = p.store.Delete(ctx, key(fmt.Sprint("k", i)))
			}
			for i := range p.opts.FleetLoads {
				_ = p.store.Delete(ctx, stampede.Key{Space: "test@@seats", Key: strconv.Itoa(i)})
			}
		case 4:
			if rand.IntN(4) > 0 {
				break
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(1000))*time.Millisecond)
			_ = s.Close(ctx)
			cancel()
			s.mu.Lock()
			s.closed = time.Now()
			s.mu.Unlock()
		case 5, 6:
			s.SetMode(one(p.r, stampede.Normal, stampede.ReadOnly, stampede.Bypass))
		}
		time.Sleep(time.Duration(rand.IntN(500)) * time.Millisecond)
		s.net.Up()
		s.net.Mute(false)
	}
}

func (p *play) run() {
	t, r := p.t, p.r
	p.opts = p.options()
	p.opts.Logger = slog.New(slog.DiscardHandler)
	p.faults, p.quiet, p.nests = r.IntN(2) == 0, r.IntN(2) == 0, r.IntN(2) == 0
	store := new(stampede.MemoryStore)
	p.store = store
	var behind stampede.Store = store
	if r.IntN(2) == 0 {
		b := new(bytesStore)
		p.store, behind = b, b
	}
	for range 1 + r.IntN(3) {
		p.pods = append(p.pods, &stage{pod: newPod(t, behind, p.opts)})
	}
	var turns []*turn
	for range 10 + r.IntN(40) {
		c := p.turn(0)
		for i := c; i != nil; i = i.inner {
			p.absent = p.absent || i.how == "absent"
			p.passes = p.passes || i.how == "private" || i.how == "pass" || i.how == "stream"
		}
		turns = append(turns, c)
	}
	history := fmt.Sprintf("options %+v; %d pods, faults %v, quiet %v", p.opts, len(p.pods), p.faults, p.quiet)
	for _, c := range turns {
		history += fmt.Sprintf("\n%v", c)
	}
	t.Log(history)
	if p.faults {
		for _, s := range p.pods {
			s.net.Script(p.fault)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg, other sync.WaitGroup
	if !p.quiet {
		other.Go(func() { p.trouble(ctx) })
	}
	for _, c := range turns {
		wg.Go(func() {
			time.Sleep(c.at)
			p.call(t.Context(), c)
		})
	}
	wg.Wait()
	cancel()
	other.Wait()
	for _, s := range p.pods {
		s.net.Script(nil)
		s.SetMode(stampede.Normal)
	}
	time.Sleep(time.Minute) // whatever hangs has ended
	synctest.Wait()
	for i, s := range p.pods {
		p.after(i, s)
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	if n := p.store.Watches(); n != 0 {
		t.Errorf("%d watches are left", n)
	}
}

// after is what must hold of a pod when all is over.
func (p *play) after(i int, s *stage) {
	t := p.t
	if st := s.Stats(); st.Loading != 0 || st.Abandoned != 0 {
		t.Errorf("pod %d: %d loads under way, %d abandoned", i, st.Loading, st.Abandoned)
	}
	if most := p.opts.MaxLoads; most > 0 && s.top > most && !p.nests { // what another load asks for needs no seat
		t.Errorf("pod %d: %d loads at once, with MaxLoads %d", i, s.top, most)
	}
	if len(s.twice) > 0 && !p.passes && p.quiet {
		t.Errorf("pod %d: %v were loaded twice at once", i, s.twice)
	}
	if s.late > 0 {
		t.Errorf("pod %d: %d loads began after Close", i, s.late)
	}
	if !s.closed.IsZero() {
		return
	}
	for range 3 { // all seats are free
		synctest.Wait() // seats in the fleet are given back behind
		fresh := fmt.Sprint("fresh", rand.Int())
		get(t.Context(), s.Guard, fresh, value(7)).within(t, 7, time.Second)
		synctest.Wait()
		begun := time.Now()
		getMany(t, s.Guard, []string{fresh, fresh + "a", fresh + "b"}, func(_ context.Context, keys []string) (map[string]int, error) {
			found := map[string]int{}
			for _, key := range keys {
				found[key] = 7
			}
			return found, nil
		}, map[string]int{fresh: 7, fresh + "a": 7, fresh + "b": 7})
		if d := time.Since(begun); d > time.Second {
			t.Errorf("pod %d: GetMany of fresh keys took %v", i, d)
		}
	}
	for k := range breadthKeys { // what was changed is seen
		synctest.Wait()
		key := fmt.Sprint("k", k)
		must(t, s.Delete(t.Context(), key))
		get(t.Context(), s.Guard, key, value(5)).within(t, 5, time.Second)
		must(t, s.Set(t.Context(), key, 6))
		get(t.Context(), s.Guard, key, value(6)).is(t, 6, 0)
	}
}

func TestAnyOptionsCallsLoadersAndFaultsTogether(t *testing.T) {
	plays, seed := 100, rand.Uint64()
	if s := os.Getenv("BREADTH_SEED"); s != "" { // the name of a play; what becomes of the store's steps is drawn anew
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
		plays = 1
	}
	for i := range plays {
		t.Run(fmt.Sprint(seed+uint64(i)), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				(&play{t: t, r: rand.New(rand.NewPCG(seed+uint64(i), 0))}).run()
			})
		})
	}
}
