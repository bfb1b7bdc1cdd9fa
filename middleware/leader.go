package middleware

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/herdgate/herdgate/stampede"
)

// This file is how the handler of a run and the leader's goroutine work together.
//
// As long as the response may be stored, the handler never waits for the leader: others wait for the handler,
// and the leader's client may read as slowly as it likes. What the leader is to do is put into a queue, and the
// body it sends from what is kept anyway. Once the response is for the leader alone, the handler does wait,
// as it would for its own connection.

// claim makes the leader leave the guard and follow, while the load goes on. If that is over, the run is the
// leader's alone from now on. It does nothing if nobody has waited for this run.
func (ex *exchange) claim() {
	ex.mu.Lock()
	if ex.left || ex.claimed {
		ex.mu.Unlock()
		return
	}
	ex.claimed = true
	ex.capturing = !ex.over
	ex.detach()
	ex.mu.Unlock()
	ex.q.wait.detach()
}

// release says that the response will not be stored, so that the load can end while the handler goes on.
func (ex *exchange) release() {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if !ex.capturing {
		return
	}
	ex.capturing, ex.claimed = false, true
	ex.detach()
	close(ex.released)
	if ex.left {
		ex.cancel(context.Canceled)
	}
}

// stopCapturing ends the load: it hands the run over to the leader. False: there is none that follows, yet; or the
// handler has used up the load's time without an answer, and the leader gets another one.
func (ex *exchange) stopCapturing(cause error) bool {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.over = true
	switch {
	case !ex.claimed || ex.left:
		return false
	case errors.Is(cause, stampede.ErrLoadTimeout) && !ex.headed:
		close(ex.late)
		return false
	}
	ex.capturing = false
	return true
}

// giveUp leaves a run whose time has passed, unless the handler has answered at the last moment.
func (ex *exchange) giveUp() bool {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if ex.headed || isClosed(ex.done) {
		return false
	}
	ex.leaveLocked()
	return true
}

func (ex *exchange) isCapturing() bool {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	return ex.capturing
}

func (ex *exchange) isReleased() bool { return isClosed(ex.released) }

func (ex *exchange) isDone() bool { return isClosed(ex.done) }

func (ex *exchange) hasLeader() bool { return !isClosed(ex.gone) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// op is what the leader's goroutine is to do.
type op struct {
	kind opKind
	do   func(http.ResponseWriter)
}

type opKind uint8

const (
	sendHeader opKind = iota
	sendHints
	setReadDeadline
	setWriteDeadline
	setFullDuplex
)

// post has the leader do something: soon while the response may be stored, at once when it is the leader's
// alone. It returns false if there is no leader.
func (ex *exchange) post(kind opKind, do func(http.ResponseWriter)) bool {
	ex.mu.Lock()
	if kind == sendHeader {
		ex.headed = true
	}
	if !ex.capturing {
		ex.mu.Unlock()
		return ex.do(do)
	}
	defer ex.mu.Unlock()
	if ex.left {
		return false
	}
	switch kind {
	case sendHeader: // comes once, and is never refused
	case sendHints:
		if len(ex.queue) >= maxQueue {
			return true // it is no harm to lose some
		}
	default: // the last one counts
		ex.queue = slices.DeleteFunc(ex.queue, func(o op) bool { return o.kind == kind })
	}
	ex.queue = append(ex.queue, op{kind, do})
	ex.wake()
	return true
}

// maxQueue bounds what waits for a leader whose client does not read.
const maxQueue = 256

// wake makes the leader look at what there is to do. It is called with ex.mu held.
func (ex *exchange) wake() {
	select {
	case ex.awake <- struct{}{}:
	default:
	}
}

// do lets the leader's goroutine do something, after all that came before, and waits for it. It returns
// false if there is no leader any more.
func (ex *exchange) do(do func(http.ResponseWriter)) (done bool) {
	finished := make(chan struct{})
	select {
	case ex.ops <- func(w http.ResponseWriter) {
		defer close(finished)
		ex.drain(w)
		if done = !ex.abandoned; done {
			do(w)
		}
	}:
		<-finished
		return done
	case <-ex.gone:
		return false
	}
}

// follow does what the handler wants done, on the leader's goroutine, until the handler has returned. Else the
// leader has left: its ctx has ended, or, with late, the time for the load has, before anything of an answer was sent.
func (ex *exchange) follow(ctx context.Context, w http.ResponseWriter) (returned, late bool) {
	tooLate := ex.late
	for !ex.abandoned {
		select {
		case <-ex.awake:
			ex.drain(w)
		case do := <-ex.ops:
			do(w)
		case <-tooLate:
			if ex.giveUp() {
				return false, true
			}
			tooLate = nil
		case <-ex.done:
			ex.drain(w)
			return !ex.abandoned, false
		case <-ctx.Done():
			ex.leave()
			return false, false
		}
	}
	ex.leave()
	return false, false
}

// drain does what is in the queue, and sends of the body what has not been sent.
func (ex *exchange) drain(w http.ResponseWriter) {
	for {
		ex.mu.Lock()
		queue, flush := ex.queue, ex.flushing
		ex.queue, ex.flushing = nil, false
		var part []byte
		if ex.shown && !ex.bodyless {
			part = ex.capture.body[ex.sent:]
			ex.sent += len(part)
		}
		ex.mu.Unlock()
		if len(queue) == 0 && len(part) == 0 && !flush {
			return
		}
		for _, op := range queue {
			if op.do(w); ex.abandoned {
				return
			}
		}
		if len(part) > 0 {
			_, _ = w.Write(part) // that this client has gone is its own business
		}
		if flush {
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// isShown says whether the header has been sent.
func (ex *exchange) isShown() bool {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	return ex.shown
}

// show says that the header has been sent.
func (ex *exchange) show(bodyless bool) {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.shown, ex.bodyless = true, bodyless
}

// leave says that there is no leader, or none any more. A run that nobody else has use for is cancelled.
func (ex *exchange) leave() {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.leaveLocked()
}

// leaveLocked is called with ex.mu held.
func (ex *exchange) leaveLocked() {
	if ex.left {
		return
	}
	ex.left, ex.queue = true, nil
	close(ex.gone)
	if !ex.capturing {
		ex.cancel(context.Canceled)
	}
}

// giveWay leaves the run, unless the leader's client may have been sent something of it.
func (ex *exchange) giveWay() bool {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if ex.claimed && !ex.left {
		return false
	}
	ex.leaveLocked()
	return true
}
