package modeltest

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// register is a key as the store truly holds it, with its past.
type register struct {
	name string
	n    int

	cur   *version // nil: nothing
	lease lease    // or marker
	past  []*version
	loads []*load // all that began under a lease

	source  int   // what a load reads; rises with each write
	changed int   // the last step at which a Delete, Set or Expire took effect
	allows  []int // steps at which something happened that allows one more load

	softStep    int           // the last step at which a lease ended without another entry,
	softAt      time.Duration // and the time
	lost        int           // the last step at which something happened that may leave a lease without an owner
	leaseTimeUp time.Duration // when a lease last ended by itself
}

// version is what stood under a key from one step to another.
type version struct {
	entry    stampede.Entry
	value    int // 0: not found, or nothing that can be used
	from, to int // steps: after from, until to
	since    time.Duration
	fresh    time.Duration // until then
	stale    time.Duration
	end      time.Duration
	gone     time.Duration // when something else, or nothing, came in its place
	load     *load         // that brought it; nil for a Set
	src      int
}

// grant is one grant of a lease.
type grant struct {
	step     int
	key      *register
	stamp    stampede.Stamp
	needless bool // the entry was fresh, and not the one to be replaced
}

type lease struct {
	role     stampede.Role // RoleFollower: a lease; RoleBackOff, RolePass: a marker; 0: nothing
	stamp    stampede.Stamp
	unshared bool
	failures int           // loads in a row that failed before it
	memory   time.Duration // of a back-off: for how long it stands beyond it
	until    time.Duration
	grant    *grant
}

// taken says whether a lease or marker stands that keeps others from leading.
func (k *register) taken(now time.Duration) bool {
	return k.lease.role != 0 && now < k.lease.until-k.lease.memory
}

func (k *register) held(s stampede.Stamp) bool {
	return k.lease.role == stampede.RoleFollower && k.lease.stamp == s
}

// stands says whether a marker or a lease with that stamp does.
func (k *register) stands(s stampede.Stamp) bool { return k.lease.role != 0 && k.lease.stamp == s }

// at returns the entry as the store answers with it at a time.
func (k *register) at(now time.Duration) stampede.Entry {
	if k.cur == nil {
		return stampede.Entry{}
	}
	e := k.cur.entry
	e.Left = k.cur.end - now
	return e
}

// put makes v what stands under the key; nil for nothing.
func (w *world) put(k *register, v *version) {
	if k.cur != nil {
		k.cur.to, k.cur.gone = w.step, w.now()
	}
	k.cur = v
	if v != nil {
		v.from, v.to, v.since, v.gone = w.step, math.MaxInt, w.now(), math.MaxInt64
		k.past = append(k.past, v)
	}
}

func ms(d time.Duration) time.Duration { return max(0, d.Truncate(time.Millisecond)) }

// newVersion is what the store makes of an entry.
func (w *world) newVersion(e stampede.Entry, s stampede.Stamp) *version {
	e.Stamp, e.Expired, e.Left, e.Fault = s, false, 0, nil
	e.Took, e.TTL, e.StaleFor, e.StaleIfError = ms(e.Took), ms(e.TTL), ms(e.StaleFor), ms(e.StaleIfError)
	v := &version{entry: e}
	if !e.NotFound {
		v.value = w.number(&e)
	}
	v.fresh = w.now() + e.TTL
	v.stale = v.fresh + e.StaleFor
	v.end = v.fresh + e.Window()
	if v.end <= w.now() {
		return nil
	}
	return v
}

// number is the value that an entry holds.
func (w *world) number(e *stampede.Entry) int {
	if !w.cfg.encoded {
		n, _ := e.Value.(int)
		return n
	}
	var n int
	_ = stampede.Msgpack.Unmarshal(e.Data, &n)
	return n
}

// expire ends what has outlived its time.
func (w *world) expire() {
	now := w.now()
	for _, k := range w.keys {
		if k.cur != nil && k.cur.end <= now {
			w.put(k, nil)
		}
		if k.lease.role != 0 && k.lease.until <= now {
			if k.lease.role == stampede.RoleFollower {
				k.leaseTimeUp = k.lease.until
				k.allows = append(k.allows, w.step)
				w.note("store: the lease of %s ends by itself", k.name)
			}
			k.lease = lease{}
		}
	}
}

func (w *world) stamp(t stampede.Token) (s stampede.Stamp) {
	copy(s[:], t[:])
	if w.cfg.broken != noNonce {
		w.nonces++
		binary.BigEndian.PutUint64(s[24:], w.nonces)
	}
	return s
}

// ownStamp is one that was not made for a lease.
func (w *world) ownStamp() (s stampede.Stamp) {
	w.nonces++
	s[0] = 0xff
	binary.BigEndian.PutUint64(s[24:], w.nonces)
	return s
}

// restart loses all.
func (w *world) restart() {
	w.record = record{}
	for _, k := range w.keys {
		w.put(k, nil)
		k.lease = lease{}
		k.allows = append(k.allows, w.step)
	}
	for _, x := range w.watches {
		x.lose()
	}
}
