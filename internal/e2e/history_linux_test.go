package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/herdgate/herdgate/internal/redisproc"
	"github.com/herdgate/herdgate/internal/redistest"
)

// Pods, two of them processes that are stopped and killed, call at random on a Redis that closes connections. Whatever they saw
// must be explained by an order of what took effect.
func TestHistoriesOfPodsThatAreStoppedAndKilledAreExplained(t *testing.T) {
	for name, broad := range map[string]bool{"core": false, "breadth": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, broad)
		})
	}
}

func play(t *testing.T, broad bool) {
	seed := rand.Uint64()
	long := 6 * time.Second
	if text := os.Getenv("HERDGATE_SOAK"); text != "" {
		d, err := time.ParseDuration(text)
		must(t, err)
		long = d
	}
	t.Logf("seed %d", seed)
	s := redistest.Server(t)
	m := startMonitor(t, s)
	defer m.conn.Close()

	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	var wg sync.WaitGroup
	inside := new(log)
	for i := range 2 {
		p := player{Seed: seed + uint64(i), Keys: 3, Workers: 3, Broad: broad}
		wg.Go(func() {
			if err := p.run(ctx, s.Addr(), fmt.Sprintf("in%d", i), inside); err != nil {
				t.Error(err)
			}
		})
	}
	c := &chaos{t: t, server: s, seed: seed, broad: broad, rnd: rand.New(rand.NewPCG(seed, 99))}
	c.run(ctx)
	wg.Wait()
	records := slices.Concat(inside.records(), c.end())
	end, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	effects, err := m.stop(end, s)
	must(t, err)

	faults := slices.Concat(judgeCalls(records), judgeEffects(records, effects))
	counts := map[string]int{}
	for _, r := range records {
		counts[strings.TrimSpace(string(r.Kind)+" "+r.Op)]++
		if r.Kind == ended {
			t.Logf("%s: %s", r.Pod, r.Value)
		}
	}
	t.Logf("%d effects; %v; %v", len(effects), counts, c.did)
	for i, f := range faults {
		if i == 10 {
			t.Errorf("and %d more faults", len(faults)-i)
			break
		}
		t.Errorf("seed %d: %s", seed, f)
	}
	for what, least := range map[string]int{"returned get": 500, "load ended": 100, "returned delete": 40, "returned expire": 40, "returned set": 30} {
		if counts[what] < least {
			t.Errorf("only %d times %q: that proves nothing", counts[what], what)
		}
	}
	if c.did["stop"] == 0 || c.did["kill"] == 0 || c.did["close"] == 0 {
		t.Errorf("not everything has happened: %v", c.did)
	}
}

// chaos keeps two child pods and does what may happen to them.
type chaos struct {
	t      *testing.T
	server *redisproc.Server
	seed   uint64
	broad  bool
	rnd    *rand.Rand

	children [2]*child
	past     []*child
	started  int
	did      map[string]int
}

func (c *chaos) run(ctx context.Context) {
	c.did = map[string]int{}
	for i := range c.children {
		c.start(i)
	}
	for n := 0; pause(ctx, time.Duration(50+c.rnd.IntN(150))*time.Millisecond); n++ {
		i := c.rnd.IntN(len(c.children))
		switch n % 4 {
		case 0, 2:
			c.did["stop"]++
			c.children[i].signal(c.t, syscall.SIGSTOP)
			pause(ctx, playedLease+time.Duration(c.rnd.IntN(300))*time.Millisecond)
			c.children[i].signal(c.t, syscall.SIGCONT)
		case 1:
			c.did["close"]++
			c.closeOne()
		case 3:
			c.did["kill"]++
			c.children[i].kill(c.t)
			c.start(i)
		}
	}
}

func (c *chaos) start(i int) {
	c.started++
	c.children[i] = startChild(c.t, orders{
		Addr: c.server.Addr(), Name: fmt.Sprintf("child%d", c.started),
		History: &player{Seed: c.seed + uint64(100*c.started), Keys: 3, Workers: 3, Broad: c.broad},
	})
	c.past = append(c.past, c.children[i])
}

// closeOne makes Redis close a connection of some pod, whatever it is used for. The monitor's is spared.
func (c *chaos) closeOne() {
	list, _ := do(c.t, c.server, "CLIENT", "LIST").(string)
	var ids []string
	for line := range strings.Lines(list) {
		if strings.Contains(line, " name=in") || strings.Contains(line, " name=child") {
			id, _, _ := strings.Cut(strings.TrimPrefix(line, "id="), " ")
			ids = append(ids, id)
		}
	}
	if len(ids) > 0 {
		do(c.t, c.server, "CLIENT", "KILL", "ID", ids[c.rnd.IntN(len(ids))])
	}
}

// end ends the children and returns what all have reported.
func (c *chaos) end() (records []record) {
	for _, x := range c.children {
		x.end(c.t)
	}
	for _, x := range c.past {
		records = append(records, x.said()...)
	}
	return records
}
