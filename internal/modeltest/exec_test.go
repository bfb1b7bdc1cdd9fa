package modeltest

import (
	"github.com/herdgate/herdgate/stampede"
)

// exec lets the store do the next step of a command, which is atomic. It returns whether the command is
// done then. What a command means is written down here once more, apart from the stores that the guard is
// used with.
func (w *world) exec(c *command) (done bool) {
	k := c.keys[0]
	c.answer.err = nil
	switch c.op {
	case opRead:
		c.answer.entry = k.at(w.now())
	case opElect:
		w.elect(k, c)
	case opCommit:
		w.commit(k, c)
	case opRenew:
		c.answer.holding = w.renew(k, c)
	case opFail:
		w.failed(k, c)
	case opRelease:
		var marker lease
		if c.pass.For > 0 {
			marker = lease{role: stampede.RolePass, stamp: c.lease, until: w.now() + c.pass.For, unshared: c.pass.Unshared}
		}
		w.end(k, c, marker)
	case opGhost:
		if k.lease.role == stampede.RoleFollower && k.lease.stamp.Token() == c.ballot.Token {
			k.lease = lease{}
			k.soften(w)
			w.publish(k, stampede.Change{})
		}
	case opSet:
		v := w.newVersion(c.entry, w.ownStamp())
		if v != nil {
			v.src = w.values[v.value].src
		}
		w.put(k, v)
		w.change(k, w.cfg.broken != setLeavesLease)
		w.publish(k, stampede.Change{})
	case opDelete, opExpire:
		return w.drop(c)
	case opTagTime:
		c.answer.tagTime = w.tagTime()
	case opTags:
		c.answer.tags = w.tagState(c.tags)
	case opExpireTag:
		w.expireTag(c.tags[0])
	}
	return true
}

// reads says whether a step changes nothing.
func (o op) reads() bool { return o == opRead || o == opTags || o == opTagTime }

// soften remembers that a lease ended and the entry stayed: who remembers the lease may go on doing so.
func (k *register) soften(w *world) { k.softStep, k.softAt = w.step, w.now() }

// change is what Delete, Set and Expire have in common.
func (w *world) change(k *register, endLease bool) {
	if endLease {
		k.lease = lease{}
	}
	k.changed = w.step
	k.allows = append(k.allows, w.step)
	for _, p := range w.alive() {
		if p.drops != nil && !w.cfg.unheard {
			w.hints = append(w.hints, hint{pod: p, key: k})
		}
	}
}

// drop does one of the steps of Delete and Expire: first the change of a key, then its publication; key by key.
func (w *world) drop(c *command) (done bool) {
	k := c.keys[c.stage/2]
	publish := c.stage%2 == 1
	switch {
	case c.op == opExpire: // one script
		w.expireEntry(k)
		w.change(k, true)
		if w.cfg.broken != expireSilent {
			w.publish(k, stampede.Change{})
		}
		c.stage++
	case publish != (w.cfg.broken == publishFirst):
		w.publish(k, stampede.Change{})
	default:
		w.put(k, nil)
		w.change(k, w.cfg.broken != deleteLeavesLease)
	}
	c.stage++
	return c.stage == 2*len(c.keys)
}

// expireEntry makes what stands under k stale, under a new stamp.
func (w *world) expireEntry(k *register) {
	old := k.cur
	if old == nil {
		return
	}
	if old.entry.Window() == 0 {
		w.put(k, nil)
		return
	}
	v := *old
	v.entry.Expired = true
	if w.cfg.broken != expireKeepsStamp {
		v.entry.Stamp = w.ownStamp()
	}
	v.fresh = min(v.fresh, w.now())
	v.end = min(v.end, w.now()+v.entry.Window())
	v.stale = v.end - v.entry.Window() + v.entry.StaleFor
	w.put(k, &v)
}

func (w *world) elect(k *register, c *command) {
	now := w.now()
	el := stampede.Election{Entry: k.at(now)}
	c.answer.grant = nil
	fresh := el.Entry.Freshness() == stampede.Fresh
	unseen := fresh && el.Entry.Stamp != c.ballot.Seen
	switch {
	case w.cfg.broken == electBlind:
	case unseen, fresh && w.cfg.broken == electIgnoresSeen:
		el.Role = stampede.RoleFresh
		c.answer.election = el
		return
	}
	switch {
	case !k.taken(now):
		k.lease = lease{role: stampede.RoleFollower, stamp: w.stamp(c.ballot.Token), until: now + c.ballot.Length, failures: k.lease.failures}
		k.lease.grant = &grant{w.step, k, k.lease.stamp, unseen}
		w.saw(sawGrant)
		if k.lease.failures > 0 {
			w.saw(sawProbe)
		}
		if c.orphan {
			k.lost = w.step
		}
		fallthrough
	case k.lease.role == stampede.RoleFollower && k.lease.stamp.Token() == c.ballot.Token:
		el.Role, el.Lease = stampede.RoleLeader, k.lease.stamp
		c.answer.grant = k.lease.grant
	default:
		el.Role, el.Left, el.Unshared = k.lease.role, k.lease.until-k.lease.memory-now, k.lease.unshared
		el.Lease = k.lease.stamp
		if el.Role == stampede.RoleFollower {
			w.saw(sawFollower)
		} else {
			w.saw(sawMarker)
		}
	}
	c.answer.election = el
}

func (w *world) commit(k *register, c *command) {
	right, stamp := k.held(c.lease), c.lease
	if c.marked {
		right, stamp = k.stands(c.lease), c.entry.Stamp
	}
	if !right && w.cfg.broken != commitUnchecked {
		c.answer.verdict = stampede.Refused
		if k.cur != nil && k.cur.entry.Stamp == stamp {
			c.answer.verdict = stampede.Accepted
		}
		if c.answer.verdict == stampede.Refused {
			w.saw(sawRefused)
		}
		return
	}
	if w.roll(actFull) {
		c.answer.verdict, c.answer.err = stampede.NotStored, errFull
		k.lease = lease{role: stampede.RoleBackOff, stamp: c.lease, until: w.now() + passTime}
		k.soften(w)
		w.publish(k, stampede.Change{Unstored: c.lease})
		return
	}
	v := w.newVersion(c.entry, stamp)
	if c.marked {
		w.checkMarked(k, c, v)
	} else {
		w.checkCommit(k, c, v)
	}
	w.put(k, v)
	if k.lease.role == stampede.RoleFollower && c.marked { // of a load that goes on
		k.allows = append(k.allows, w.step)
	}
	k.lease = lease{}
	c.answer.verdict = stampede.Accepted
	w.saw(sawCommit)
	var told stampede.Change
	if v != nil && w.cfg.delivers {
		e := k.at(w.now())
		told.Stored = &e
	}
	w.publish(k, told)
}

func (w *world) renew(k *register, c *command) stampede.Holding {
	switch {
	case k.lease.role != stampede.RoleFollower:
		return stampede.Absent
	case k.lease.stamp != c.lease:
		w.saw(sawTaken)
		return stampede.Taken
	}
	k.lease.until = w.now() + c.length
	return stampede.Held
}

// failed ends a lease after a load that failed.
func (w *world) failed(k *register, c *command) {
	now := w.now()
	if k.lease.role == stampede.RoleBackOff && k.lease.stamp == c.lease {
		c.answer.backoff = max(0, k.lease.until-k.lease.memory-now)
		return
	}
	marker := lease{role: stampede.RoleBackOff, stamp: c.lease}
	d := c.backoff.First
	if most := c.backoff.Max; most > d {
		for range k.lease.failures {
			d = min(2*d, most)
		}
		marker.failures, marker.memory = k.lease.failures+1, most
	}
	marker.until = now + d + marker.memory
	c.answer.backoff = 0
	if k.held(c.lease) {
		c.answer.backoff = d
	}
	w.end(k, c, marker)
}

// end ends a lease after a load without a stored value.
func (w *world) end(k *register, c *command, marker lease) {
	if !k.held(c.lease) && !(w.cfg.broken == releaseUnchecked && k.lease.role == stampede.RoleFollower) {
		return
	}
	k.lease = marker
	k.soften(w)
	var told stampede.Change
	if marker.role != 0 {
		told.Unstored = c.lease
	}
	w.publish(k, told)
}
