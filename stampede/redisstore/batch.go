package redisstore

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxBatch is how many keys are asked for at once at most, and batchBytes about how many bytes
	// their entries have together: beyond, batches get no cheaper but slower.
	maxBatch   = 128
	batchBytes = 256 << 10
	// maxFlying is how many batches may be under way when answers fail to come.
	maxFlying = 4
)

// batcher collects reads while another batch is under way and sends them together: group commit. One
// batch is under way at a time, so the busier Redis is, the larger they get. Only when an answer is
// overdue the next one goes without waiting, on another connection.
type batcher struct {
	send     func(*batch) (answered bool) // fills in out, and ends the batch
	timeout  time.Duration                // of a batch, from its first caller
	patience time.Duration                // how long a batch waits for the one before it

	mu      sync.Mutex // protects what follows
	queue   []*batch   // not yet sent, oldest first
	flying  int        // goroutines that send
	perSend int        // keys in a batch at most
	size    float64    // of an entry, smoothed

	busy atomic.Bool // flying > 0
}

// idle says whether no batch is under way.
func (b *batcher) idle() bool { return !b.busy.Load() }

// batch is a number of keys that are asked for together, and those who wait for them. A caller joins it
// only before it is sent, so that what it answers was in Redis during the call.
type batch struct {
	// These are protected by batcher.mu until it is sent.
	keys    []request
	index   map[request]int // each is asked for once
	sent    bool
	hurried bool
	timer   *time.Timer

	out  []result // of each key; written by the sender before done
	err  error    // of the whole; written before done
	over atomic.Bool
	done chan struct{}
}

// request is what is asked for: the entry of that name, or, with members, their scores in the sorted set.
type request struct{ name, members string }

type result struct {
	stored
	scores []float64
	err    error
}

func newBatcher(timeout time.Duration, send func(*batch) bool) *batcher {
	return &batcher{send: send, timeout: timeout, patience: timeout / 8, perSend: maxBatch}
}

// place is where the result of a key will be.
type place struct {
	*batch
	i int
}

// join adds keys to the batches that are sent next and returns the places of their results.
func (b *batcher) join(spawn func(func()) bool, places []place, keys ...request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, key := range keys {
		places[i] = b.add(key, spawn)
	}
	if b.flying == 0 {
		b.fly(spawn)
	}
}

// add adds a key to the last batch of the queue, or a new one. The caller holds mu.
func (b *batcher) add(key request, spawn func(func()) bool) place {
	var x *batch
	if n := len(b.queue); n > 0 && len(b.queue[n-1].keys) < b.perSend {
		x = b.queue[n-1]
	} else {
		x = &batch{done: make(chan struct{}), index: make(map[request]int)}
		x.timer = time.AfterFunc(b.patience, func() { b.overdue(x, spawn) })
		b.queue = append(b.queue, x)
	}
	i, ok := x.index[key]
	if !ok {
		i = len(x.keys)
		x.keys = append(x.keys, key)
		x.index[key] = i
	}
	return place{x, i}
}

// overdue is called twice for a batch that has not ended: so that it goes without waiting any longer, if it
// still waits, and to end it.
func (b *batcher) overdue(x *batch, spawn func(func()) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if x.hurried {
		x.end(errTimeout)
		return
	}
	x.hurried = true
	x.timer.Reset(b.timeout - b.patience)
	if !x.sent && b.flying < maxFlying {
		b.fly(spawn)
	}
}

// fly starts a sender. The caller holds mu.
func (b *batcher) fly(spawn func(func()) bool) {
	b.flying++
	b.busy.Store(true)
	if spawn(b.run) {
		return
	}
	b.flying-- // closed
	for _, x := range b.queue {
		x.end(ErrClosed)
	}
	b.queue = nil
}

// run sends what is queued until nothing is.
func (b *batcher) run() {
	for {
		b.mu.Lock()
		if len(b.queue) == 0 {
			b.flying--
			b.busy.Store(b.flying > 0)
			b.mu.Unlock()
			return
		}
		x := b.queue[0]
		b.queue = b.queue[1:]
		x.sent = true
		b.mu.Unlock()

		if b.send(x) {
			b.learn(x)
		}
		if len(x.keys) > 1 {
			// Those who were just woken are about to read again: let them join the next batch.
			runtime.Gosched()
		}
	}
}

// learn adapts the size of batches to the size of entries.
func (b *batcher) learn(x *batch) {
	total := 0
	for i := range x.out {
		total += len(x.out[i].data)
	}
	mean := float64(total) / float64(len(x.keys))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.size += (mean - b.size) / 8
	b.perSend = min(max(int(batchBytes/(b.size+1)), 1), maxBatch)
}

// end ends the batch, with what is in out if err is nil, unless it has ended before.
func (x *batch) end(err error) {
	if !x.over.CompareAndSwap(false, true) {
		return
	}
	x.err = err
	x.timer.Stop()
	close(x.done)
}
