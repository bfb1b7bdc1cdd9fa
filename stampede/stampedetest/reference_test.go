package stampedetest_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// reference is the contract written down as plainly as it can be, with one mutex and three maps. It
// holds bytes, so the suite is run on a store of that kind too. With broken set, it leaves one rule
// out; or, for some, does what that says.
type reference struct {
	broken string

	mu      sync.Mutex // protects all that follows
	silent  chan struct{}
	grants  byte
	entries map[stampede.Key]refEntry
	leases  map[stampede.Key]refLease
	failed  map[stampede.Key]refFailed
	watches map[stampede.Key][]*refWatch
	drops   map[*func(string)]string

	tags     map[string]*refTags
	tagDrops map[*func(string)]string
}

type refEntry struct {
	stampede.Entry
	until   time.Time
	garbage bool
}

type refLease struct {
	stamp stampede.Stamp
	role  stampede.Role // what others get
	pass  bool          // Unshared
	until time.Time
}

// refFailed is how many loads have failed in a row.
type refFailed struct {
	loads int
	until time.Time // when that is forgotten
}

var errSilent = errors.New("reference: no answer")

func newReference(broken string) *reference {
	return &reference{
		broken:  broken,
		entries: map[stampede.Key]refEntry{},
		leases:  map[stampede.Key]refLease{},
		failed:  map[stampede.Key]refFailed{},
		watches: map[stampede.Key][]*refWatch{},
		drops:   map[*func(string)]string{},

		tags:     map[string]*refTags{},
		tagDrops: map[*func(string)]string{},
	}
}

// not reports whether rule is kept.
func (s *reference) not(rule string) bool { return s.broken != rule }

// enter waits until the store answers, and locks it.
func (s *reference) enter(ctx context.Context, keys ...*stampede.Key) error {
	for _, k := range keys {
		*k = s.mapped(*k)
	}
	s.mu.Lock()
	silent := s.silent
	s.mu.Unlock()
	if !s.not("slow") {
		time.Sleep(5 * time.Second) // real time: in a bubble it costs none; the rule that is broken is not to take long
	}
	if silent != nil {
		if !s.not("silence without an error") {
			s.mu.Lock()
			return nil
		}
		if !s.not("deaf to the deadline") {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			defer cancel()
		}
		select {
		case <-silent:
		case <-ctx.Done():
			return errSilent
		}
	}
	s.mu.Lock()
	return nil
}

// mapped is where careless stores mix up keys.
func (s *reference) mapped(k stampede.Key) stampede.Key {
	switch s.broken {
	case "braces are cut":
		k.Key = strings.Trim(k.Key, "{}")
	case "spaces are cut":
		k.Key = strings.TrimSpace(k.Key)
	case "case is lost":
		k.Key = strings.ToLower(k.Key)
	case "keys are C strings":
		k.Key, _, _ = strings.Cut(k.Key, "\x00")
	case "keys are valid UTF-8":
		k.Key = strings.ToValidUTF8(k.Key, "?")
	case "long keys are cut":
		k.Key = k.Key[:min(len(k.Key), 512)]
	case "space and key run together":
		k = stampede.Key{Key: k.Space + k.Key}
	case "space and key are joined by a colon":
		k = stampede.Key{Key: k.Space + ":" + k.Key}
	}
	return k
}

func (s *reference) Encoded() bool { return true }

func (s *reference) Read(ctx context.Context, k stampede.Key) (stampede.Entry, error) {
	if err := s.enter(ctx, &k); err != nil {
		if !s.not("errors without a value") {
			return stampede.Entry{Stamp: stampede.NewStamp()}, err
		}
		return stampede.Entry{}, err
	}
	defer s.mu.Unlock()
	return s.entry(k), nil
}

// entry returns what is stored for k as of now.
func (s *reference) entry(k stampede.Key) stampede.Entry {
	e, ok := s.entries[k]
	switch {
	case !ok || s.not("entries die") && !time.Now().Before(e.until):
		return stampede.Entry{}
	case e.garbage && s.not("garbage is a fault"):
		return stampede.Entry{Stamp: e.Stamp, Fault: errors.New("reference: garbage")}
	}
	e.Left = time.Until(e.until)
	e.Data = bytes.Clone(e.Data)
	if e.NotFound {
		e.Data = nil
	}
	return e.Entry
}

func (s *reference) Elect(ctx context.Context, k stampede.Key, b stampede.Ballot) (stampede.Election, error) {
	if err := s.enter(ctx, &k); err != nil {
		if !s.not("ghosts are given back") {
			s.mu.Lock()
			s.elect(k, b)
			s.mu.Unlock()
		}
		return stampede.Election{}, err
	}
	defer s.mu.Unlock()
	return s.elect(k, b), nil
}

func (s *reference) elect(k stampede.Key, b stampede.Ballot) (el stampede.Election) {
	el.Entry = s.entry(k)
	lease, held := s.lease(k)
	if !s.not("elect looks at the entry first") && held && lease.stamp.Token() != b.Token {
		return stampede.Election{Role: lease.role, Entry: el.Entry, Lease: lease.stamp, Left: time.Until(lease.until)}
	}
	if !s.not("elect heeds the version seen") {
		b.Seen = stampede.Stamp{}
	}
	fresh := el.Entry.Freshness() == stampede.Fresh && s.not("elect looks at the entry again")
	if !s.not("elect heeds freshness") {
		fresh = el.Entry.Stamp != stampede.Stamp{}
	}
	if !s.not("elect looks through garbage") {
		fresh = fresh || el.Entry.Fault != nil
	}
	if fresh && el.Entry.Stamp != b.Seen {
		el.Role = stampede.RoleFresh
		if !s.not("elect returns the fresh entry") {
			el.Entry = stampede.Entry{}
		}
		return el
	}
	mine := held && lease.role == stampede.RoleFollower && lease.stamp.Token() == b.Token && s.not("elect knows its own lease")
	if !held || mine && !s.not("own lease keeps its nonce") || !s.not("elect grants once") {
		copy(lease.stamp[:], b.Token[:])
		if s.not("grants have a nonce") {
			s.grants++
		}
		lease.stamp[31] = s.grants
		if !s.not("stamps begin with the token") {
			lease.stamp = stampede.NewStamp()
		}
		if failed := s.failed[k]; time.Now().After(failed.until) && s.not("failures are forgotten") {
			delete(s.failed, k)
		}
		lease.role, lease.until = stampede.RoleFollower, time.Now().Add(b.Length)
		s.leases[k], mine = lease, true
	}
	if mine {
		if !s.not("own lease is not prolonged") {
			lease.until = time.Now().Add(b.Length)
			s.leases[k] = lease
		}
		el.Role, el.Lease = stampede.RoleLeader, lease.stamp
		return el
	}
	el.Role, el.Left, el.Unshared = lease.role, time.Until(lease.until), lease.pass
	if lease.role != stampede.RoleFollower || s.not("followers are told the lease") {
		el.Lease = lease.stamp
	}
	if !s.not("followers are told the time") {
		el.Left = 0
	}
	if !s.not("followers get the entry") {
		el.Entry = stampede.Entry{}
	}
	return el
}

func (s *reference) lease(k stampede.Key) (refLease, bool) {
	l, ok := s.leases[k]
	if ok && !time.Now().Before(l.until) && s.not("leases end") {
		delete(s.leases, k)
		return refLease{}, false
	}
	return l, ok
}

// held reports whether lease may still be used; rule is the check of it.
func (s *reference) held(k stampede.Key, lease stampede.Stamp, rule string) bool {
	l, ok := s.lease(k)
	switch {
	case !s.not(rule):
		return true
	case !s.not(rule + ", with its nonce"):
		return ok && l.role == stampede.RoleFollower && l.stamp.Token() == lease.Token()
	}
	return ok && l.role == stampede.RoleFollower && l.stamp == lease
}

func (s *reference) Commit(ctx context.Context, k stampede.Key, lease stampede.Stamp, e stampede.Entry) (stampede.Verdict, error) {
	if err := s.enter(ctx, &k); err != nil {
		return stampede.Unknown, err
	}
	defer s.mu.Unlock()
	now := s.entries[k]
	mine := now.Stamp == lease && lease != stampede.Stamp{} && time.Now().Before(now.until)
	if !s.held(k, lease, "commit checks the lease") {
		if mine && s.not("commit knows its own entry") {
			return stampede.Accepted, nil
		}
		return stampede.Refused, nil
	}
	s.put(k, lease, e)
	if s.not("commit ends the failures") {
		delete(s.failed, k)
	}
	if s.not("commit ends the lease") {
		delete(s.leases, k)
	}
	if s.not("commit tells") {
		s.tell(k, stampede.Stamp{})
	}
	return stampede.Accepted, nil
}

func (s *reference) CommitMarked(ctx context.Context, k stampede.Key, stands stampede.Stamp, e stampede.Entry) (stampede.Verdict, error) {
	if err := s.enter(ctx, &k); err != nil {
		return stampede.Unknown, err
	}
	defer s.mu.Unlock()
	l, ok := s.lease(k)
	if s.not("a marked commit checks what stands") && (!ok || l.stamp != stands) || !s.not("a lease stands, too") && l.role == stampede.RoleFollower {
		return stampede.Refused, nil
	}
	stamp := stampede.NewStamp()
	if !s.not("a marked commit has its own stamp") {
		stamp = stands
	}
	s.put(k, stamp, e)
	if s.not("a marked commit ends the failures") {
		delete(s.failed, k)
	}
	if s.not("a marked commit ends the marker") {
		delete(s.leases, k)
	}
	if s.not("a marked commit tells") {
		s.tell(k, stampede.Stamp{})
	}
	return stampede.Accepted, nil
}

func (s *reference) put(k stampede.Key, stamp stampede.Stamp, e stampede.Entry) {
	if s.not("the store makes the stamp") || e.Stamp == (stampede.Stamp{}) {
		e.Stamp = stamp
	}
	if s.not("writers cannot expire") {
		e.Expired = false
	}
	e.Fault = nil
	if s.not("durations are whole milliseconds") {
		for _, d := range []*time.Duration{&e.TTL, &e.StaleFor, &e.StaleIfError, &e.Took} {
			*d = d.Truncate(time.Millisecond)
		}
	}
	life := e.TTL + e.Window()
	if !s.not("life counts the longer window") {
		life = e.TTL + e.StaleFor
	}
	if !s.not("type is kept") {
		e.Type = 0
	}
	if !s.not("duration is kept") {
		e.Took = 0
	}
	if !s.not("not found is kept") {
		e.NotFound = false
	}
	if !s.not("tags are kept") {
		e.Tags = nil
	}
	if !s.not("tags of absences are kept") && e.NotFound {
		e.Tags = nil
	}
	if !s.not("data is kept whole") {
		e.Data = e.Data[:min(len(e.Data), 1<<16)]
	}
	s.entries[k] = refEntry{Entry: e, until: time.Now().Add(life)}
}

func (s *reference) Renew(ctx context.Context, k stampede.Key, lease stampede.Stamp, length time.Duration) (stampede.Holding, error) {
	if err := s.enter(ctx, &k); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	l, ok := s.lease(k)
	switch {
	case !ok && !s.not("renew never takes a lease"):
		s.leases[k] = refLease{stamp: lease, role: stampede.RoleFollower, until: time.Now().Add(length)}
		return stampede.Held, nil
	case !ok, l.role != stampede.RoleFollower && s.not("renew knows markers"):
		return stampede.Absent, nil
	case !s.held(k, lease, "renew checks the lease"):
		return stampede.Taken, nil
	}
	if s.not("renew prolongs") {
		l.until = time.Now().Add(length)
	}
	if !s.not("renew counts from now") {
		l.until = s.leases[k].until.Add(length)
	}
	s.leases[k] = l
	return stampede.Held, nil
}

func (s *reference) Fail(ctx context.Context, k stampede.Key, lease stampede.Stamp, backoff stampede.Backoff) (time.Duration, error) {
	if err := s.enter(ctx, &k); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	if l, ok := s.lease(k); ok && l.role == stampede.RoleBackOff && l.stamp == lease {
		if !s.not("fail counts once") {
			s.failed[k] = refFailed{s.failed[k].loads + 1, s.failed[k].until}
		}
		return time.Until(l.until), nil
	}
	if !s.held(k, lease, "fail checks the lease") {
		return 0, nil
	}
	d, failed := backoff.First, s.failed[k]
	for range failed.loads {
		d = min(2*d, max(backoff.First, backoff.Max))
	}
	if failed.loads++; s.not("fail counts") {
		failed.until = time.Now().Add(d + backoff.Max)
		if !s.not("failures are remembered beyond the back-off") {
			failed.until = time.Now().Add(d)
		}
		s.failed[k] = failed
	}
	delete(s.leases, k)
	if s.not("fail leaves a marker") {
		s.leases[k] = refLease{stamp: lease, role: stampede.RoleBackOff, until: time.Now().Add(d)}
	}
	if !s.not("fail says for how long") {
		d = backoff.First
	}
	if !s.not("fail says which lease") {
		lease = stampede.Stamp{}
	}
	if s.not("fail tells") {
		s.tell(k, lease)
	}
	return d, nil
}

func (s *reference) Release(ctx context.Context, k stampede.Key, lease stampede.Stamp, pass stampede.Pass) error {
	if err := s.enter(ctx, &k); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if !s.held(k, lease, "release checks the lease") {
		return nil
	}
	if s.not("release ends the failures") {
		delete(s.failed, k)
	}
	if s.not("release ends the lease") {
		delete(s.leases, k)
	}
	if pass.For > 0 && s.not("release leaves a pass") {
		s.leases[k] = refLease{stamp: lease, role: stampede.RolePass, pass: pass.Unshared && s.not("passes may be unshared"), until: time.Now().Add(pass.For)}
	}
	if pass.For <= 0 && s.not("release without a pass says no lease") {
		lease = stampede.Stamp{}
	}
	if pass.For > 0 && !s.not("release with a pass says which lease") {
		lease = stampede.Stamp{}
	}
	if s.not("release tells") {
		s.tell(k, lease)
	}
	return nil
}

func (s *reference) Set(ctx context.Context, k stampede.Key, e stampede.Entry) error {
	if err := s.enter(ctx, &k); err != nil {
		if !s.not("set says that its outcome is unknown") {
			return err
		}
		return stampede.ErrOutcomeUnknown
	}
	defer s.mu.Unlock()
	stamp := stampede.NewStamp()
	if !s.not("set makes a new stamp") {
		stamp = stampede.Stamp{1}
	}
	s.put(k, stamp, e)
	s.changed("set", k)
	return nil
}

// changed ends leases and tells of a change by what, except for the rule that is broken.
func (s *reference) changed(what string, k stampede.Key) {
	if s.not(what + " ends the failures") {
		delete(s.failed, k)
	}
	l, ok := s.lease(k)
	marker := ok && l.role != stampede.RoleFollower
	if marker && s.not(what+" clears markers") || ok && !marker && s.not(what+" ends the lease") {
		delete(s.leases, k)
	}
	if s.not(what + " tells") {
		s.tell(k, stampede.Stamp{})
	}
	if s.not(what + " drops") {
		for fn, space := range s.drops {
			if space == k.Space || !s.not("drops are of a space") {
				(*fn)(k.Key)
			}
		}
	}
}

func (s *reference) Delete(ctx context.Context, keys ...stampede.Key) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for i, k := range keys {
		if k = s.mapped(k); i > 0 && !s.not("delete takes many keys") {
			break
		}
		if s.not("delete removes the entry") {
			delete(s.entries, k)
		}
		s.changed("delete", k)
	}
	return nil
}

func (s *reference) Expire(ctx context.Context, keys ...stampede.Key) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for i, k := range keys {
		if k = s.mapped(k); i > 0 && !s.not("expire takes many keys") {
			break
		}
		s.expire(k)
		s.changed("expire", k)
	}
	return nil
}

func (s *reference) expire(k stampede.Key) {
	e, ok := s.entries[k]
	switch {
	case !ok || !time.Now().Before(e.until):
		return
	case e.Window() == 0 || !s.not("expire keeps the entry"):
		if s.not("expire deletes what has no window") {
			delete(s.entries, k)
		}
		return
	}
	if s.not("expire makes a new stamp") && (!e.Expired || s.not("expire makes a new stamp each time")) {
		e.Stamp = stampede.NewStamp()
	}
	if s.not("expire marks the entry") {
		e.Expired = true
	}
	end := time.Now().Add(e.Window())
	if s.not("expire cuts the life") && (end.Before(e.until) || !s.not("expire only shortens")) {
		e.until = end
	}
	s.entries[k] = e
}

func (s *reference) Health(ctx context.Context) error {
	if err := s.enter(ctx); err != nil {
		if !s.not("health asks") {
			return nil
		}
		return err
	}
	s.mu.Unlock()
	return nil
}

type refWatch struct {
	s     *reference
	key   stampede.Key
	ready chan struct{}
	c     chan stampede.Change
}

func (w *refWatch) Ready() <-chan struct{}    { return w.ready }
func (w *refWatch) C() <-chan stampede.Change { return w.c }

func (w *refWatch) Close() {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if w.s.not("close ends a watch") {
		w.s.remove(w)
	}
}

func (s *reference) remove(w *refWatch) {
	for i, other := range s.watches[w.key] {
		if other == w {
			s.watches[w.key] = append(s.watches[w.key][:i:i], s.watches[w.key][i+1:]...)
			return
		}
	}
}

func (s *reference) Watch(k stampede.Key) stampede.Watch {
	k = s.mapped(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &refWatch{s: s, key: k, ready: make(chan struct{}), c: make(chan stampede.Change, 1000)}
	if s.not("watches become ready") {
		close(w.ready)
	}
	s.watches[k] = append(s.watches[k], w)
	return w
}

func (s *reference) tell(k stampede.Key, unstored stampede.Stamp) {
	for other, watches := range s.watches {
		if other != k && s.not("watches are of a key") {
			continue
		}
		for i, w := range watches {
			if i == 0 || s.not("all watches are told") {
				w.c <- stampede.Change{Unstored: unstored}
			}
		}
	}
}

func (s *reference) Drops(space string, fn func(key string)) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drops[&fn] = space
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.not("stop ends drops") {
			delete(s.drops, &fn)
		}
	}
}

// garble is the suite's Garbage.
func garble(_ testing.TB, store stampede.Store, k stampede.Key) {
	s := store.(*reference)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[s.mapped(k)]
	e.garbage = true
	s.entries[s.mapped(k)] = e
}

// hush is the suite's Silence.
func hush(_ testing.TB, store stampede.Store) (restore func()) {
	s := store.(*reference)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = make(chan struct{})
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		close(s.silent)
		s.silent = nil
	})
}
