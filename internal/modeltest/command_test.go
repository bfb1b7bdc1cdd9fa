package modeltest

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// op is a step of the store.
type op uint8

const (
	opRead op = iota
	opElect
	opCommit
	opRenew
	opFail
	opRelease
	opSet
	opDelete
	opExpire
	opTagTime
	opTags
	opExpireTag
	opGhost // the store's own release of an elect that was not answered
)

var opNames = [...]string{"read", "elect", "commit", "renew", "fail", "release", "set", "delete", "expire", "tag time", "tags", "expire tag", "release by token"}

func (o op) String() string { return opNames[o] }

// command is a step that a pod wants of the store.
type command struct {
	op      op
	pod     *pod
	call    *call // on whose ctx it was sent, if that is known
	keys    []*register
	ballot  stampede.Ballot
	lease   stampede.Stamp
	marked  bool // Commit: lease is that of a marker, or of another load
	entry   stampede.Entry
	length  time.Duration
	backoff stampede.Backoff
	pass    stampede.Pass
	tags    []string
	began   time.Time
	took    time.Duration
	orphan  bool // nobody waits for the answer any more
	aside   bool // nobody waits for it
	counted bool // its time is on the budget of call
	unread  bool // nobody had read before: the first step of its call
	muted   bool // the pod gets no answer, or has got that there is none
	told    bool // when it was sent, the pod knew that a load that it followed has brought nothing
	twice   bool // it has run as a duplicate, too

	err    error // that the pod got
	stage  int   // how much of it the store has done: Delete takes several steps
	answer answer
	said   chan answer // the answer, once
}

type answer struct {
	entry    stampede.Entry
	election stampede.Election
	grant    *grant
	verdict  stampede.Verdict
	holding  stampede.Holding
	backoff  time.Duration
	tagTime  stampede.TagTime
	tags     stampede.TagState
	err      error
}

func (c *command) compare(d *command) int {
	id := func(c *command) int {
		if c.call == nil {
			return -1
		}
		return c.call.id
	}
	return cmp.Or(c.pod.n-d.pod.n, id(c)-id(d), int(c.op)-int(d.op), c.keys[0].n-d.keys[0].n)
}

var (
	errLost = errors.New("connection lost")
	errGone = errors.New("this pod has crashed")
	errFull = errors.New("the store is full")
)

// do sends a command and waits for its answer until ctx ends.
func (p *pod) do(ctx context.Context, c *command) answer {
	w := p.w
	c.pod, c.said, c.began = p, make(chan answer, 1), time.Now()
	c.call, _ = ctx.Value(callKey{}).(*call)
	select {
	case <-p.crash:
		<-p.gone
		return answer{err: errGone}
	default:
	}
	if err := ctx.Err(); err != nil { // a client does not send what nobody waits for
		return answer{err: err}
	}
	w.mu.Lock()
	w.inbox.commands = append(w.inbox.commands, c)
	w.mu.Unlock()
	done, over := ctx.Done(), (<-chan time.Time)(nil)
	if w.cfg.deaf { // a store need not notice more than the deadline
		at, _ := ctx.Deadline()
		timer := time.NewTimer(time.Until(at))
		defer timer.Stop()
		done, over = nil, timer.C
	}
	var a answer
	select {
	case a = <-c.said:
	case <-done:
		a.err = ctx.Err()
	case <-over:
		a.err = context.DeadlineExceeded
	case <-p.crash:
		<-p.gone
		return answer{err: errGone}
	}
	if a.err == nil {
		return a
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c.took, c.orphan, c.err = time.Since(c.began), true, a.err
	w.inbox.failed = append(w.inbox.failed, c)
	if c.op == opElect {
		w.inbox.commands = append(w.inbox.commands, &command{op: opGhost, pod: p, keys: c.keys, ballot: c.ballot, orphan: true})
	}
	return a
}

func (p *pod) key(k stampede.Key) []*register { return []*register{p.w.keys[k.Key[0]-'a']} }

func (p *pod) all(keys []stampede.Key) (list []*register) {
	for _, k := range keys {
		list = append(list, p.w.keys[k.Key[0]-'a'])
	}
	return list
}

// The methods of stampede.Store.

func (p *pod) Encoded() bool { return p.w.cfg.encoded }

func (p *pod) Read(ctx context.Context, k stampede.Key) (stampede.Entry, error) {
	if isWarm(k) {
		return stampede.Entry{}, nil
	}
	a := p.do(ctx, &command{op: opRead, keys: p.key(k)})
	return a.entry, a.err
}

func (p *pod) Elect(ctx context.Context, k stampede.Key, b stampede.Ballot) (stampede.Election, error) {
	if isClaim(k) || isWarm(k) {
		return p.claim(ctx, k, b)
	}
	a := p.do(ctx, &command{op: opElect, keys: p.key(k), ballot: b})
	return a.election, a.err
}

func (p *pod) Commit(ctx context.Context, k stampede.Key, lease stampede.Stamp, e stampede.Entry) (stampede.Verdict, error) {
	if isWarm(k) {
		return p.w.claims.Commit(ctx, k, lease, e)
	}
	a := p.do(ctx, &command{op: opCommit, keys: p.key(k), lease: lease, entry: e})
	return a.verdict, a.err
}

func (p *pod) CommitMarked(ctx context.Context, k stampede.Key, stands stampede.Stamp, e stampede.Entry) (stampede.Verdict, error) {
	e.Stamp = stampede.NewStamp() // so that a copy is known
	a := p.do(ctx, &command{op: opCommit, keys: p.key(k), lease: stands, marked: true, entry: e})
	return a.verdict, a.err
}

func (p *pod) Renew(ctx context.Context, k stampede.Key, lease stampede.Stamp, length time.Duration) (stampede.Holding, error) {
	if isClaim(k) {
		return p.w.claims.Renew(ctx, k, lease, length)
	}
	a := p.do(ctx, &command{op: opRenew, keys: p.key(k), lease: lease, length: length})
	return a.holding, a.err
}

func (p *pod) Fail(ctx context.Context, k stampede.Key, lease stampede.Stamp, backoff stampede.Backoff) (time.Duration, error) {
	a := p.do(ctx, &command{op: opFail, keys: p.key(k), lease: lease, backoff: backoff})
	return a.backoff, a.err
}

func (p *pod) Release(ctx context.Context, k stampede.Key, lease stampede.Stamp, pass stampede.Pass) error {
	if isClaim(k) {
		return p.w.claims.Release(ctx, k, lease, pass)
	}
	return p.do(ctx, &command{op: opRelease, keys: p.key(k), lease: lease, pass: pass}).err
}

func (p *pod) Set(ctx context.Context, k stampede.Key, e stampede.Entry) error {
	a := p.do(ctx, &command{op: opSet, keys: p.key(k), entry: e})
	if a.err != nil {
		return errors.Join(stampede.ErrOutcomeUnknown, a.err)
	}
	return nil
}

func (p *pod) Delete(ctx context.Context, keys ...stampede.Key) error {
	return p.do(ctx, &command{op: opDelete, keys: p.all(keys)}).err
}

func (p *pod) Expire(ctx context.Context, keys ...stampede.Key) error {
	return p.do(ctx, &command{op: opExpire, keys: p.all(keys)}).err
}

func (p *pod) Drops(_ string, fn func(string)) (stop func()) {
	p.drops = fn
	return func() {}
}

func (p *pod) Health(context.Context) error { return nil }
