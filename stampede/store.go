package stampede

import (
	"context"
	"crypto/rand"
	"time"
)

// Store is where entries and leases live: [MemoryStore] for one pod, redisstore.Store for a fleet.
//
// It is cut at the recompute protocol, not at get and set, so that each step is atomic and one round
// trip. docs/protocol.md says what each step means; stampedetest.TestStore checks it. A Store is
// shared by all guards of a pod and is safe for concurrent use.
//
// # Time
//
// Only the store's clock decides what is fresh and when a lease ends. Every method returns by ctx's
// deadline, whatever state the store is in; until then it may ignore that ctx is cancelled.
//
// # Errors
//
// A miss is not an error. Any error means that the store could not do its part; where it cannot tell
// whether it did, that is said below. An error never carries a value.
type Store interface {
	// Encoded reports whether entries hold bytes (Entry.Data), made by a codec, or values
	// (Entry.Value) as they are. It never changes.
	Encoded() bool

	// Read returns what is stored for key, the zero Entry when nothing is. The answer was in the
	// store at some moment between the call and its return: a Read may share the answer of another
	// one only when that was sent to the store after this one was called.
	Read(ctx context.Context, key Key) (Entry, error)

	// Elect asks for the lease of key. In one atomic step the store looks at the entry again, then
	// at the lease; see [Role] for what it may answer. An elect that is executed twice with the same
	// token, for whatever reason, is answered alike while the lease lasts; one that is executed after
	// its lease has ended makes a lease with another stamp, which nobody's commit fits. It does not
	// prolong a lease.
	//
	// After an error the lease may have been taken all the same. The store then gives it back by
	// itself, as soon as it answers again; the caller must not use the token again.
	Elect(ctx context.Context, key Key, ballot Ballot) (Election, error)

	// Commit ends a load: if lease is still held, it writes e under that stamp, ends the lease and
	// wakes all who wait, in one atomic step. The zero stamp is never held. Where the store cannot
	// write, it ends the lease all the same, as Fail does, and answers NotStored. See [Verdict].
	Commit(ctx context.Context, key Key, lease Stamp, e Entry) (Verdict, error)

	// CommitMarked ends a load that began without a lease of its own, after an election was answered with
	// a marker, or with somebody else's lease, of this stamp: if it still stands, a lease perhaps as the
	// marker that its holder has left, it writes e under a stamp of its own, removes what stands and wakes
	// all who wait, in one atomic step. So the first of the loads that began under it is stored, unless
	// a Delete, Set or Expire came before. It answers as Commit does.
	CommitMarked(ctx context.Context, key Key, stands Stamp, e Entry) (Verdict, error)

	// Renew lets lease end length from now, if it is still held. It never takes a lease. A lease that
	// the caller's token got a second time, with another nonce, is Taken; a marker is Absent.
	Renew(ctx context.Context, key Key, lease Stamp, length time.Duration) (Holding, error)

	// Fail ends lease, if it is still held, after a load that failed: all who wait are told, and for
	// some time elections are answered with RoleBackOff. It returns how long that is: see [Backoff]. After
	// it Elect grants the lease again, to one; the store counts the loads under such leases that fail in a
	// row. A Commit, CommitMarked, Set, Delete or Expire ends the count, and so does Release; so may the end
	// of a lease that nobody ended. A Fail that is executed again counts nothing, and returns what is left
	// of the back-off. It returns zero if neither the lease nor the back-off that it left stands any more.
	Fail(ctx context.Context, key Key, lease Stamp, backoff Backoff) (time.Duration, error)

	// Release ends lease, if it is still held, after a load whose value is not stored: all who wait
	// are told, and for the time of pass.For elections are answered with RolePass. With pass.For zero
	// nothing is left behind and those who wait elect again.
	Release(ctx context.Context, key Key, lease Stamp, pass Pass) error

	// Set writes e under a new stamp, ends any lease or marker and wakes all who wait. It is sent
	// once; without an answer it returns ErrOutcomeUnknown and may land at any later time.
	Set(ctx context.Context, key Key, e Entry) error

	// Delete removes the entries and ends any leases and markers of keys, then wakes all who wait. Each
	// key is one atomic step, keys together are not. On an error some may be deleted; it says how many
	// were not, and names some.
	Delete(ctx context.Context, keys ...Key) error

	// Expire makes the entries of keys stale from now on, each under a new stamp, ends any leases
	// and markers and wakes all who wait. An entry without a stale window is deleted. Atomic as Delete.
	Expire(ctx context.Context, keys ...Key) error

	// Watch tells of what happens to key from now on: Commit, Fail, Release, Set, Delete, Expire.
	// It does not wait for anything; see [Watch].
	Watch(key Key) Watch

	// Drops calls fn for each key of space that Delete, Set or Expire change, on any pod, until stop
	// is called, and perhaps once more after that. fn must not block; it may be called on the goroutine
	// of whoever changes the key. It is a hint and may miss some; when that may have happened, and the store
	// notices, it calls fn with an empty key.
	Drops(space string, fn func(key string)) (stop func())

	// Health says whether the store answers, by asking it: for dashboards and alerts. It is not for
	// readiness probes: all pods would leave together, just when they could serve without the store.
	Health(ctx context.Context) error
}

// Key names an entry.
type Key struct {
	Space string // what the keys of one kind of entry have in common: Options.Name and Version
	Key   string // the caller's key; any bytes, not empty
}

// Token is what an attempt to become leader is known by: random, never used twice.
type Token [16]byte

// NewToken returns a new random token.
func NewToken() (t Token) {
	_, _ = rand.Read(t[:]) // never fails
	return t
}

// Stamp identifies one grant of a lease, and the entry that was committed under it: the token of the
// attempt followed by a nonce that the store made at the grant. Set and Expire make stamps of their
// own. The zero Stamp stands for "none".
type Stamp [32]byte

// NewStamp returns a random stamp, for an entry that was not written under a lease.
func NewStamp() (s Stamp) {
	_, _ = rand.Read(s[:])
	return s
}

// Token returns the token of the attempt that was granted.
func (s Stamp) Token() (t Token) { copy(t[:], s[:]); return t }

// Entry is what is stored for a key. Durations are whole milliseconds; a store rounds down. An entry
// whose TTL and windows come to less than a millisecond lives for no longer than one.
type Entry struct {
	Stamp Stamp // zero: nothing is stored, or nothing that can be read; set by the store

	Data  []byte // encoded stores; read-only
	Value any    // other stores; read-only

	Tags     *Tags         // nil: none; kept as it is where the store is a TagStore
	NotFound bool          // the loader said that there is no such thing; there is neither Data nor Value
	Expired  bool          // by Expire; set by the store
	Type     uint64        // check of the Go type and codec
	Took     time.Duration // of loads, smoothed over those of earlier versions

	TTL          time.Duration // fresh for so long after it was written
	StaleFor     time.Duration // served stale for so long after TTL
	StaleIfError time.Duration // kept for so long after TTL, for when a load fails

	Left time.Duration // until the store drops it, when it answered; set by the store

	// Fault says why what is stored could not be used. Such an entry is a miss; Stamp is set if at
	// least that could be read.
	Fault error

	onlyKept bool // for the load that replaces it: as the guard has found by its value
}

// Window is the longest of the stale windows: the time that an entry is kept beyond its TTL.
func (e *Entry) Window() time.Duration { return max(e.StaleFor, e.StaleIfError, 0) }

// FreshFor is the time for which the entry was still fresh when the store answered; not above zero
// if it was not.
func (e *Entry) FreshFor() time.Duration {
	if e.Expired {
		return min(0, e.Left-e.Window())
	}
	return e.Left - e.Window()
}

// Freshness says what an entry may be used for.
type Freshness uint8

// What an entry may be used for.
const (
	Dead        Freshness = iota // nothing: there is none, or its windows have passed
	OnlyIfError                  // past TTL and StaleFor: served if the load fails
	Stale                        // past TTL: served at once while one caller loads
	Fresh                        // within TTL
)

// String returns a word for logs and headers.
func (f Freshness) String() string {
	return word(f, "dead", "only if error", "stale", "fresh")
}

// word returns the n-th word.
func word[N ~uint8](n N, words ...string) string {
	if int(n) >= len(words) {
		return "unknown"
	}
	return words[n]
}

// Freshness returns what the entry could be used for when the store answered.
func (e *Entry) Freshness() Freshness {
	fresh := e.FreshFor()
	switch {
	case e.Stamp == Stamp{} || e.Fault != nil || e.Left <= 0:
		return Dead
	case fresh > 0:
		return Fresh
	case fresh > -e.StaleFor:
		return Stale
	default:
		return OnlyIfError
	}
}

// Ballot is what a caller of Elect stands for election with.
type Ballot struct {
	Token  Token         // new for each call of Elect
	Length time.Duration // of the lease
	Seen   Stamp         // of the entry that the caller has seen and wants replaced; zero: none
}

// Role is the outcome of an election.
type Role uint8

// The outcomes of an election, in the order in which they are tried.
const (
	// RoleFresh: the entry is fresh and not the one that the caller has seen: there is nothing to load.
	RoleFresh Role = iota + 1
	// RoleLeader: the lease is the caller's. It was free, or it already held the caller's token.
	RoleLeader
	// RoleBackOff: the last load failed a short while ago: who has something to serve should not load now.
	RoleBackOff
	// RolePass: the last load's value was not stored: load, do not follow.
	RolePass
	// RoleFollower: the lease is somebody else's.
	RoleFollower
)

// Election is the answer of Elect.
type Election struct {
	Role     Role
	Entry    Entry         // what is stored, whatever the role
	Lease    Stamp         // leader: the lease; follower: the lease that it follows; else: of the marker
	Left     time.Duration // follower: of the lease; back-off, pass: of the marker
	Unshared bool          // pass: the value may not even be shared among callers of a pod
}

// Verdict says what became of a commit. Only Accepted vouches for the value.
type Verdict uint8

// What became of a commit.
const (
	Unknown   Verdict = iota // no answer; comes with an error
	Accepted                 // written now, or by an earlier copy of the same commit
	Refused                  // the lease was not held any more; nothing was written
	NotStored                // the store could not write (full, say); the lease is given back; comes with an error
)

// Holding says how a lease stands.
type Holding uint8

// How a lease stands.
const (
	Held   Holding = iota + 1 // it is held
	Absent                    // nobody holds a lease
	Taken                     // somebody else holds a lease
)

// Pass is what a load leaves in the place of its lease when its value is not stored.
type Pass struct {
	For      time.Duration
	Unshared bool
}

// Backoff says for how long elections are answered with RoleBackOff after a load that failed: for First,
// and twice as long with each further load that fails in a row, but not for longer than Max. They count as
// in a row if each is elected within Max of the end of the back-off before. With a Max that is not above
// First it is First each time. First is positive; both are whole milliseconds, a store rounds down.
type Backoff struct {
	First, Max time.Duration
}

// Watch is a subscription to what happens to one key.
//
// The order is: Watch, wait for Ready (or not longer than a poll interval), look at the store again,
// then wait for C. Whatever happens after Ready's channel was closed is told; something from before
// may be, too. C is never closed.
type Watch interface {
	// Ready returns a channel that is closed while the subscription stands. After it was lost, it
	// returns another one; that it was lost is told like a change.
	Ready() <-chan struct{}
	// C tells of changes. Several may be told as one.
	C() <-chan Change
	// Close ends the subscription. It may be called again.
	Close()
}

// Change is what a Watch tells.
type Change struct {
	// Unstored is the lease of a load that ended without a stored value (Fail, Release with a pass),
	// zero for any other change.
	Unstored Stamp
	// Stored is what a Commit has stored, as of then: its Stamp is the lease. It is read-only: others may
	// have been told the same. Nil for any other change, and where the store does not tell.
	Stored *Entry
}
