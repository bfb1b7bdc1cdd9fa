package middleware

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

// exchange is one run of the handler for a load. The handler runs on a goroutine of its own and writes into
// a buffer; it never touches the ResponseWriter of the request that the load is for, the leader's. What has to
// go to the leader before the response is complete, the leader's own goroutine does, in follow.
//
// So there are up to three goroutines: the handler's, the guard's, which waits in result for what the handler
// brings, and the leader's, which is in Guard.Fetch or in follow.
type exchange struct {
	q      *request
	name   string // whose load it is for
	p      *policy
	prev   *stored // what is to be replaced; nil: nothing
	fwd    string  // why the handler runs, in the words of Cache-Status
	leased bool    // the load was elected
	asked  bool    // the handler was given prev's validators
	begun  time.Time
	ctx    context.Context
	cancel context.CancelCauseFunc
	detach func() bool // takes ctx off the load's

	capture capture // the handler's until done

	ops      chan func(http.ResponseWriter) // for the leader's goroutine
	gone     chan struct{}                  // closed when the leader has left
	released chan struct{}                  // closed when the response will not be stored: the load is over
	flushed  chan struct{}                  // closed when the leader has been sent a part of what rests on the policy
	late     chan struct{}                  // closed when the time for the load has passed and nothing of the answer was sent
	done     chan struct{}                  // closed when the handler has returned; what follows is written before
	fields   []field                        // what it has set
	value    *stored                        // what is stored, or could be
	judged   judgement
	err      error // why there is no response that could be used

	answer *stored // what the load returned; the request's mutex protects it
	why    string  // and why that is not stored though it could be; the same

	// The leader's client left while it was sent an informational response. Of the leader's goroutine.
	abandoned bool

	awake chan struct{} // there is something in the queue, or more of the body

	mu        sync.Mutex // protects what follows, and what is appended to capture.body
	left      bool       // gone is closed
	claimed   bool       // the leader will follow, or does
	over      bool       // the load has ended without what the handler is still to bring
	capturing bool       // the response is to be stored
	headed    bool       // the leader is to send the header, or has
	queue     []op
	flushing  bool // the handler wants sent what there is
	shown     bool // the leader has sent the header
	bodyless  bool // and that was all
	sent      int  // of the body
}

// errAborted: the handler did not complete its response.
var errAborted = errors.New("middleware: the handler's response is not complete")

// panicked is what the handler panicked with.
type panicked struct{ value any }

// Error does not tell the value: the leader panics with that.
func (p *panicked) Error() string { return "middleware: the handler panicked" }

// Unwrap returns the value if it is an error, so that errors.Is sees http.ErrAbortHandler.
func (p *panicked) Unwrap() error {
	err, _ := p.value.(error)
	return err
}

// logPanic keeps the stack, which is lost when the panic goes on on the leader's goroutine, or does not go on
// because something stale is served.
func (c *Cache) logPanic(p *panicked, stack []byte) {
	if errors.Is(p, http.ErrAbortHandler) {
		return
	}
	cmp.Or(c.opts.Guard.Logger, slog.Default()).Error("middleware: the handler panicked", "panic", p.value, "stack", string(stack))
}

// failure is why the response of a run that has ended is of no use; nil: it is.
func (ex *exchange) failure() error {
	if ex.err == nil && failed(ex.capture.status) {
		return &failedError{ex.capture.status}
	}
	return ex.err
}

// failedError is a response that says so. While there is an older one, it is not used.
type failedError struct{ status int }

// Error names the status.
func (e *failedError) Error() string { return "middleware: status " + http.StatusText(e.status) }

// ready makes what a run needs.
func (ex *exchange) ready(ctx context.Context, outer http.Header) {
	ex.p, ex.begun, ex.capturing = &ex.q.h.cache.policy, time.Now(), true
	ex.ops, ex.gone = make(chan func(http.ResponseWriter)), make(chan struct{})
	ex.awake = make(chan struct{}, 1)
	ex.released, ex.flushed, ex.done = make(chan struct{}), make(chan struct{}), make(chan struct{})
	ex.late = make(chan struct{})
	ex.ctx, ex.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	ex.detach = context.AfterFunc(ctx, func() { ex.cancel(context.Cause(ctx)) })
	header := outer.Clone()
	if header == nil {
		header = make(http.Header)
	}
	ex.capture = capture{ex: ex, outer: outer, given: maps.Clone(header), header: header, declared: -1}
}

// start runs the handler.
func (ex *exchange) start(next http.Handler, r *http.Request) {
	r = r.WithContext(ex.q.h.detached(ex.ctx, ex.q.saved))
	if ex.prev != nil {
		ex.asked = validate(r.Header, ex.prev)
	}
	go ex.run(next, r)
}

func (ex *exchange) run(next http.Handler, r *http.Request) {
	returned := false
	defer func() {
		switch {
		case returned:
		default: // it panicked, or ended its goroutine
			ex.err = errAborted
			if p := recover(); p != nil {
				err := &panicked{p}
				ex.err = err
				ex.q.h.cache.logPanic(err, debug.Stack())
			}
		}
		ex.detach()
		close(ex.done)
		ex.cancel(nil)
	}()
	next.ServeHTTP(&ex.capture, r)
	ex.finish()
	returned = true
}

// finish makes a response of what the handler has written.
func (ex *exchange) finish() {
	c := &ex.capture
	c.writeHeader(http.StatusOK)
	ex.fields = c.fields
	switch {
	case ex.ctx.Err() != nil && ex.isCapturing(): // who knows what it left out
		ex.err = context.Cause(ex.ctx)
		return
	case c.declared >= 0 && c.declared != c.written && bodyAllowed(c.status):
		ex.err = errAborted
		return
	case c.status == http.StatusNotModified && ex.asked: // whatever trailers it has
		ex.freshen()
		return
	case lateTrailers(c.header):
		ex.judged = judgement{why: "trailers", remember: true}
		return
	}
	ex.judged = c.judged
	if !ex.judged.store {
		return
	}
	if now := time.Now(); c.ownDate && !c.passing {
		c.setDate(now) // it is made only now
	} else {
		ex.judged.aged(now.Sub(c.headerAt))
	}
	if !ex.judged.store {
		return
	}
	if empty := len(c.body) == 0; empty && c.judged.impliedBody(ex.p, c.status) {
		ex.judged.store, ex.judged.why = false, "empty"
		return
	}
	ex.value = ex.p.response(&ex.judged, c.status, c.fields, c.body)
}

// freshen makes the response that the handler says still holds, with the fields of its 304.
func (ex *exchange) freshen() {
	c, prev := &ex.capture, ex.prev
	fields := freshened(prev.fields, c.fields)
	h := make(http.Header, len(fields))
	for _, f := range fields {
		h[f.name] = f.values
	}
	ex.fields = fields
	ex.judged = ex.p.judge(ex.q.auth, prev.status, h, c.final, c.date, time.Now(), time.Since(ex.begun))
	ex.value = ex.p.response(&ex.judged, prev.status, fields, prev.body)
}

// lateTrailers says whether the handler has set trailers that it had not announced.
func lateTrailers(h http.Header) bool {
	for name := range h {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			return true
		}
	}
	return false
}

// streamPatience is how long others wait for a response that the handler has begun to send in parts, without
// having said that it may be stored.
const streamPatience = time.Second

// result waits for what the handler brings to the load. ok is false when it will not be stored, and goes
// to the leader as it comes; j says why.
func (ex *exchange) result(ctx context.Context) (j judgement, ok bool) {
	flushed := ex.flushed
	var patience <-chan time.Time
	for {
		select {
		case <-ex.done:
			return ex.judged, ex.isCapturing() || ex.err != nil
		case <-ex.released:
			return ex.capture.judged, false
		case <-flushed:
			flushed, patience = nil, time.After(streamPatience)
			continue
		case <-patience:
			j = judgement{why: "stream", remember: true}
		case <-ctx.Done():
			j = judgement{why: "timeout"}
		}
		if ex.stopCapturing(context.Cause(ctx)) {
			return j, false // from now on it is the leader's alone
		}
		ex.cancel(cmp.Or(context.Cause(ctx), errAborted))
		select {
		case <-ex.done:
			return ex.judged, ex.isCapturing() || ex.err != nil
		case <-ex.released: // the handler waits for its leader now, and the leader for the load
		}
		if ex.hasLeader() {
			return ex.capture.judged, false
		}
		<-ex.done // so that a handler that ignores its ctx counts as abandoned
		return ex.judged, true
	}
}
