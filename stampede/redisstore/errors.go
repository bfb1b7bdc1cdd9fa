package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/stampede"
)

// ErrClosed is returned after Close by all methods of a Store that return an error, but for Close itself.
var ErrClosed = errors.New("redisstore: store is closed")

// errTimeout: Redis did not answer within Options.Timeout.
var errTimeout = fmt.Errorf("redisstore: no answer from Redis in time: %w", context.DeadlineExceeded)

// unavailableError is what calls get while the breaker is open. It is made once per outage.
type unavailableError struct{ cause error }

func (e *unavailableError) Error() string {
	return "redisstore: Redis does not answer and was not asked: " + e.cause.Error()
}

func (e *unavailableError) Unwrap() []error { return []error{stampede.ErrUnavailable, e.cause} }

// answered says whether err is an answer of Redis, so that what was asked for was not done.
func answered(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

// unsent says whether err came before anything was sent: the connection could not be opened.
func unsent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" ||
		errors.Is(err, stampede.ErrUnavailable) || errors.Is(err, ErrClosed) || errors.Is(err, redis.ErrClosed) ||
		errors.Is(err, errBusy)
}

// serverDown are answers of a server that cannot serve anything for now. Others (OOM, READONLY, MISCONF,
// NOPERM) concern some commands only and say nothing against reads; they do not open the breaker.
var serverDown = []string{"LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOAUTH", "WRONGPASS", "ERR max number of clients"}

// down says whether err shows that Redis does not serve.
func down(err error) bool {
	if err == nil || errors.Is(err, errBusy) || errors.Is(err, redis.ErrClosed) {
		return false
	}
	if !answered(err) {
		return true
	}
	msg := err.Error()
	for _, prefix := range serverDown {
		if strings.HasPrefix(msg, prefix) {
			return true
		}
	}
	return false
}
