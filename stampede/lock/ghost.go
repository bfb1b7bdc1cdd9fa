package lock

import "time"

const (
	// maxGhosts bounds how many grants are given back at once. What is beyond ends with its lease.
	maxGhosts = 256
	// ghostPause is between two attempts at first; it doubles. The first may overtake the request that it
	// follows, which waits in another connection, so there are two.
	ghostPause = 50 * time.Millisecond
)

// giveBack releases, in the background, what a server may have granted to a token without anybody knowing,
// or may still grant: one that was stopped does what it had been sent when it goes on. It bounds nothing: the
// lease does, which is over at the time given. It only makes others wait less.
func (lk *Locker) giveBack(n *node, k *keys, token any, over time.Time) {
	if lk.ghosts.Add(1) > maxGhosts || !lk.spawn(func() { defer lk.ghosts.Add(-1); lk.exorcise(n, k, token, over) }) {
		lk.ghosts.Add(-1)
	}
}

func (lk *Locker) exorcise(n *node, k *keys, token any, over time.Time) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	pause, answers := ghostPause, 0
	for answers < 2 {
		select {
		case <-timer.C:
		case <-lk.ctx.Done():
			return
		}
		if !time.Now().Before(over) {
			return
		}
		held, err := n.release(k, token, lk.opt.Timeout)
		if held {
			lk.events.emit(Event{Kind: EventLateGrant, Lock: k.name, Node: n.i})
			return
		}
		if err == nil {
			answers++
		}
		timer.Reset(pause)
		pause = min(2*pause, time.Second)
	}
}
