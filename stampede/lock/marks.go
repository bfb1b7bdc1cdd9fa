package lock

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"
)

// claimKept is how long a claim stands.
const claimKept = 10 * time.Second

// markKeys are those of the marker and the claim.
func (lk *Locker) markKeys() []string {
	return []string{lk.opt.Name + markerKey, lk.opt.Name + claimKey}
}

// mark is what a server answers about its marker.
type mark struct {
	n     *node
	epoch string // empty: it has none
	top   uint64 // the highest number that it has accepted, or has accepted once, as far as it knows
	clock uint64 // of the server, in microseconds
	claim string // what seeding it takes; empty if it was not claimed
	err   error
}

// look asks all servers for their markers, and claims those without one, if claim is not empty.
func (lk *Locker) look(ctx context.Context, claim string) ([]mark, error) {
	answers := make(chan mark, len(lk.nodes))
	if !lk.onAll(func(n *node) { answers <- n.look(claim) }) {
		return nil, ErrClosed
	}
	marks := make([]mark, 0, len(lk.nodes))
	for range lk.nodes {
		select {
		case m := <-answers:
			marks = append(marks, m)
		case <-ctx.Done():
			return nil, ended(ctx)
		}
	}
	return marks, nil
}

// claimAndLook claims the servers without a marker, and then asks all. What a claimed server forgets it forgets
// together with the claim, so none of the answers is older than anything that seeding with the claim could bring
// back.
func (lk *Locker) claimAndLook(ctx context.Context, claim string) (claimed []mark, all tally, err error) {
	first, err := lk.look(ctx, claim)
	if err != nil {
		return nil, all, err
	}
	marks, err := lk.look(ctx, "")
	if err != nil {
		return nil, all, err
	}
	mute := 0
	for _, m := range first {
		switch {
		case m.claim != "":
			claimed = append(claimed, m)
		case m.err == nil && m.epoch == "":
			mute++
		}
	}
	if len(lk.nodes)-mute < lk.quorum {
		return nil, all, fmt.Errorf("%w: %d of %d servers do not tell their run id, for which the right to run INFO is needed",
			ErrNoFences, mute, len(lk.nodes))
	}
	return claimed, count(marks), nil
}

func (n *node) look(claim string) mark {
	lk := n.lk
	if err := n.identify(); err != nil {
		return mark{n: n, err: err}
	}
	m, err := ask(context.Background(), n, "", lk.opt.Timeout, func(ctx context.Context) (m mark, err error) {
		reply, err := claimScript.Run(ctx, n.rdb, lk.markKeys(), claim, claimKept.Milliseconds()).StringSlice()
		if err != nil {
			return m, err
		}
		if len(reply) != 4 {
			return m, fmt.Errorf("claim answered %q", reply)
		}
		m.epoch, m.claim = reply[0], reply[3]
		if m.top, err = strconv.ParseUint(reply[1], 10, 64); err == nil {
			m.clock, err = strconv.ParseUint(reply[2], 10, 64)
		}
		return m, err
	}, nil)
	m.n, m.err = n, err
	return m
}

// seed makes the marker of a server that was claimed, if the claim still stands.
func (m *mark) seed(epoch string, top uint64) bool {
	return m.n.mark(func(ctx context.Context) (int, error) {
		return seedScript.Run(ctx, m.n.rdb, m.n.lk.markKeys(), m.claim, epoch, digits(top)).Int()
	})
}

// raise begins a new epoch on a server that has its marker: no number of any lock is below top in it.
func (m *mark) raise(epoch string, top uint64) bool {
	return m.n.mark(func(ctx context.Context) (int, error) {
		return raiseScript.Run(ctx, m.n.rdb, m.n.lk.markKeys()[:1], m.epoch, epoch, digits(top)).Int()
	})
}

// mark reports whether op, which answers 1 then, has made the marker.
func (n *node) mark(op func(context.Context) (int, error)) bool {
	made, err := ask(context.Background(), n, "", n.lk.opt.Timeout, op, nil)
	return err == nil && made == 1
}

// tally sums marks up.
type tally struct {
	marks  []mark
	marked int
	silent int
	top    uint64 // the highest number that any server knows of
	clock  uint64 // the one that is most ahead
	err    error  // of one that is silent
}

func count(marks []mark) tally {
	t := tally{marks: marks}
	for _, m := range marks {
		if m.err != nil {
			t.silent++
			t.err = m.err
			continue
		}
		if m.epoch != "" {
			t.marked++
		}
		t.top, t.clock = max(t.top, m.top), max(t.clock, m.clock)
	}
	return t
}

// tooFew is the error when too many are silent.
func (t *tally) tooFew() error {
	return tooFew(len(t.marks)-t.silent, len(t.marks), []error{t.err})
}

// newEpoch is random.
func newEpoch() string { return hex.EncodeToString([]byte(newToken())) }
