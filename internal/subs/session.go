package subs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// idleFor is how long the subscription's connection may be silent before it is asked for a sign of
	// life; after as long again it is given up.
	idleFor = time.Second
	// perCommand is how many channels a SUBSCRIBE names at most.
	perCommand = 256

	firstPause  = 20 * time.Millisecond
	longestWait = 250 * time.Millisecond
	// refusedWait is the pause after Redis answered with an error: no right to subscribe, most likely.
	refusedWait = 5 * time.Second
)

// run keeps a connection for subscriptions, from the first join until Config.Ctx ends.
func (h *Hub) run() {
	defer h.unlinger()
	ctx := h.cfg.Ctx
	pause := firstPause
	for ctx.Err() == nil {
		began := time.Now()
		err := h.session(ctx)
		if ctx.Err() != nil {
			return
		}
		h.lost()
		h.cfg.Lost(err)
		if time.Since(began) > idleFor {
			pause = firstPause
		}
		wait := pause
		if answered(err) {
			wait = refusedWait
		}
		select {
		case <-ctx.Done():
			return
		case <-h.again:
		case <-time.After(wait/2 + rand.N(wait)):
		}
		pause = min(2*pause, longestWait)
	}
}

// session subscribes on one connection and receives until that is lost. go-redis would replace a lost
// connection without a word; what was published meanwhile would be missed unseen. So the first error ends
// the session, and the next one begins with a new PubSub.
func (h *Hub) session(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	ps := h.cfg.Redis.Subscribe(ctx)
	fail := func(err error) {
		cancel(err)
		_ = ps.Close() // wakes the receiver
	}
	pings := make(chan struct{}, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		fail(h.receive(ctx, ps, pings))
	}()
	fail(h.control(ctx, ps, pings))
	<-done
	return context.Cause(ctx)
}

// control brings the subscriptions in line with what is wanted.
func (h *Hub) control(ctx context.Context, ps *redis.PubSub, pings <-chan struct{}) error {
	for {
		subscribe, unsubscribe := h.changes()
		for some := range chunks(unsubscribe) {
			if err := ps.Unsubscribe(ctx, some...); err != nil {
				return err
			}
		}
		for some := range chunks(subscribe) {
			if err := ps.Subscribe(ctx, some...); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-h.wake:
		case <-pings:
			if err := ps.Ping(ctx); err != nil {
				return err
			}
		}
	}
}

// chunks cuts channels into pieces for one command each.
func chunks(channels []string) func(yield func([]string) bool) {
	return func(yield func([]string) bool) {
		for len(channels) > 0 {
			n := min(len(channels), perCommand)
			if !yield(channels[:n]) {
				return
			}
			channels = channels[n:]
		}
	}
}

var errSilent = errors.New("subs: the subscription's connection is dead")

// receive passes on what comes, and asks for a ping when nothing does.
func (h *Hub) receive(ctx context.Context, ps *redis.PubSub, pings chan<- struct{}) error {
	asked := false
	for {
		got, err := next(ctx, ps)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			var timeout net.Error
			if !errors.As(err, &timeout) || !timeout.Timeout() || unsent(err) {
				return err
			}
			if asked {
				return errSilent
			}
			asked = true
			select {
			case pings <- struct{}{}:
			default:
			}
			continue
		}
		asked = false
		switch m := got.(type) {
		case *redis.Subscription:
			h.confirmed(m.Channel)
		case *redis.Message:
			h.published(m.Channel, m.Payload)
		}
	}
}

// next returns what comes next. go-redis panics on some answers that are no messages, which must not end the process.
func next(ctx context.Context, ps *redis.PubSub) (got any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("subs: not a message: %v", p)
		}
	}()
	return ps.ReceiveTimeout(ctx, idleFor)
}

// answered says whether err is an answer of Redis.
func answered(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

// unsent says whether the connection could not be opened.
func unsent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
