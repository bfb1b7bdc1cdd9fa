// Package lock is for application code that must not run in two places at once: distributed locks on one
// Redis (a server, the master behind Sentinel, or a Cluster) or on several independent ones (Redlock), with
// fencing numbers on either.
//
//	lk, err := lock.New(nil, rdb)
//	...
//	err = lk.Do(ctx, "invoices", 10*time.Second, func(ctx context.Context) error {
//		return send(ctx, lock.FromContext(ctx).Fence())
//	})
//
// # What is promised
//
// A lock is a lease: it ends after ttl unless it is renewed, so that a holder that dies does not lock out all
// others for ever. From that follows all that a lock cannot do. A holder that is paused for longer than its lease
// (by its machine, its garbage collector, its scheduler) goes on beside the next holder, and no check that it makes
// first can help: it may be paused after the check. So there are two kinds of use. For efficiency, to save doing the
// same work twice, a lock is enough. For correctness, the resource that is protected has to take part: it must
// refuse a fencing number that is lower than one that it has seen. See docs/locks.md for which is which.
//
// With one server, as long as it neither loses writes (in a failover, or restarting without persistence) nor lets its
// clock jump forward:
//
//   - The intervals from each grant to its release, or to the end of its validity by its own clock, do not
//     overlap. The holder's ctx ends with its validity, see [Lock.Keep].
//   - Fencing numbers strictly increase in the order of the grants. That holds also when the server forgets
//     everything in a restart, if its clock is not set back while it forgets; and when its clock jumps, as long as it
//     remembers. In a failover, the promoted replica must have the number or a clock that is not behind.
//
// # Why a late duplicate is harmless
//
// Clients and networks send things twice, and late. A lock in Redis is a string with an end: a token and a nonce.
// The token is random and new for each attempt: an acquire that comes twice while the first one's lock stands
// recognises itself, and answers as the first one did. The nonce is made by the server when it grants: an acquire that
// comes again later, after the lock was released, is granted another lock, with another nonce, that belongs to
// nobody. Renewal and release act only on the exact value, token and nonce, in one atomic script. So nothing
// that the old holder sent, or still sends, acts on the new lock; it only ends by itself, one lease later. And a
// late renewal never shortens a lease: the server's end of it is never before the holder's.
//
// The holder counts its validity from before it sent the request that was granted; the server, from when it ran
// it, which is later. Each uses its own clock, for a duration only. What they may run apart, and that Redis counts in
// whole milliseconds, is taken off: 1 % and 2 ms.
//
// # How waiters are woken
//
// Those of a process who wait for the same lock stand in line, and only the first of them asks Redis. On one
// server or Cluster, each process in which somebody waits enters a queue beside the lock. The script that releases publishes
// which process has waited longest, and which is next to it; the first asks at once, the second a little later, in
// case the first is gone, and the others sleep on. None of that is needed for exclusion, or for progress: a
// lost message, or a lost queue, costs a poll interval. Redlock polls.
//
// # Why fencing numbers increase on one server
//
// The script that grants takes one more than the last number, or the server's clock in microseconds, whichever is
// higher, and notes it beside the lock, under a key that outlives the lock. While the note is there, each grant
// is above the one before. The note ends only when the clock is 30 days past it: from then on the clock alone is
// higher. The same holds after a restart that forgot it, as long as the clock is past the last number. (A number is ahead
// of the clock only if the clock was set back, or more than one grant came in a microsecond.)
//
// # Redlock
//
// With N servers, odd and three or more, a lock is asked of all of them at the same time, and held when a
// majority of N, not of those that answer, has granted it within a part of the lease; its validity is what is left
// of ttl, less drift. Two holders at the same time would need a server that granted both. Acquiring that fails, and
// each release, releases on all servers, whatever they answered; what a server grants late, because it was stopped,
// say, is given back when it answers. Servers beyond the majority are asked all the same, and a renewal joins those that
// have lost their share, so that one restart does not lose the lock. Two clients that reach the same server are told
// by its run id and refused: what one server grants twice is no majority.
//
// What Redlock does not promise: anything when a server that is part of a majority forgets its share while the lock
// is held (by a restart without persistence, a failover, an eviction, or a clock that jumps forward by more than the lease) and
// another one completes a majority with it; and, as with one server, anything about a holder that is paused. It buys
// availability while a minority of servers is down. It does not make a lock safe enough to do without fencing.
//
// # Fencing numbers on several servers
//
// With Options.Fences each acquisition has a number, higher than that of any acquisition of the same lock that had
// returned before this one began, also where holders overlap. No clock takes part in that, and it does not matter how many
// servers forget over time; only that forgetting is noticed, and that a majority never forgets at once without
// [Locker.SeedFences] being told where to go on. The numbers are initialised once, by [Locker.InitFences].
//
// A server gives out numbers only while it has its marker, which names an epoch (random) and the server's run id. A server
// that was restarted has lost the marker, or has a snapshot of it with another run id: it counts as down for numbers.
// Acquiring then goes through these steps, each on a majority of marked servers:
//
//  1. join: take the lock, learn the epoch and the last number of each server.
//  2. accept: a number above all of these. A server notes it only if it is strictly above its own, and the epoch is
//     the same; if one server of the majority knows a higher one, again with one above that.
//  3. confirm: all of them are still in the epoch in which they accepted.
//
// A server without a marker gets one so: it is claimed, with a random name; then a majority of marked servers is asked
// for the highest numbers that they have accepted; then the marker is made, with the highest of these and a new
// epoch, if the claim is still there. What forgets again forgets the claim.
//
// Why the numbers grow. Say that A was given f, and call a server ignorant if it is marked and knows, for this lock,
// less than f. When A began step 3, all servers of its majority knew f at the same moment: each had accepted before, and was in
// the same epoch after. So then fewer than a majority were ignorant. From then on no further server becomes ignorant:
// a marked one never lowers its number, and one that forgets is marked again only with the highest number of a majority
// which was asked after it forgot, hence after A began step 3; not all of these were ignorant, as the ignorant ones are
// fewer. So every later majority has a server that knows at least f, which accepts only what is above it.
//
// SeedFences begins a new epoch on each server, in which no lock's number is below the given one, and returns once a
// majority is in these epochs at the same moment, after the last of them began. From then on fewer than a majority are
// ignorant of that number, by the same argument. While a majority is marked, the number may be any; otherwise it
// replaces what was forgotten, and is only as good as the knowledge of who gives it.
//
// Without step 3 it fails: a server accepts f, forgets it before the others of the majority have it, and is given its numbers by
// those others. Without the claim it fails: an old answer is written to a server that has accepted and forgotten f in
// between. A test runs this protocol in random orders, and each of these mutants breaks it.
//
// Redlock's servers are best run without persistence, or with appendfsync always. In either case a restart costs a server
// its marker, and it is given a new one when it is met next.
package lock
