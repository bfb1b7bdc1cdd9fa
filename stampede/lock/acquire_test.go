package lock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/internal/faultproxy"
	"github.com/herdgate/herdgate/internal/redistest"
	"github.com/herdgate/herdgate/stampede/lock"
)

func TestLockExcludesOthersUntilItIsReleased(t *testing.T) {
	t.Parallel()
	lk, rdb, o := single(t)
	other := newLocker(t, o, rdb)
	ctx := t.Context()
	l, err := lk.TryAcquire(ctx, "job", time.Minute)
	must(t, err)
	if v := l.Validity(); v <= 50*time.Second || v >= time.Minute {
		t.Errorf("validity %v", v)
	}
	for _, x := range []*lock.Locker{lk, other} {
		_, err = x.TryAcquire(ctx, "job", time.Minute)
		only(t, err, lock.ErrNotAcquired)
	}
	free, err := other.TryAcquire(ctx, "another job", time.Minute)
	must(t, err)
	must(t, free.Release(ctx))
	must(t, l.Release(ctx))
	must(t, l.Release(ctx)) // does nothing
	next, err := other.TryAcquire(ctx, "job", time.Minute)
	must(t, err)
	must(t, l.Release(ctx))
	if next.Token() == l.Token() || next.Fence() <= l.Fence() {
		t.Errorf("token %s after %s, fence %d after %d", next.Token(), l.Token(), next.Fence(), l.Fence())
	}
	if _, err := lk.TryAcquire(ctx, "job", time.Minute); !errors.Is(err, lock.ErrNotAcquired) {
		t.Errorf("the first holder released what the second holds: %v", err)
	}
	must(t, next.Release(ctx))
	if s := lk.Stats(); s.Acquired != 1 || s.Held != 2 || s.Released != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestLockAndItsReleaseMayBeOnDifferentGoroutines(t *testing.T) { // dogpile #171
	t.Parallel()
	lk, _, _ := single(t)
	locks := make(chan *lock.Lock)
	go func() {
		l, err := lk.Acquire(t.Context(), "job", time.Minute)
		if err != nil {
			t.Error(err)
		}
		locks <- l
	}()
	must(t, (<-locks).Release(t.Context()))
}

// laravel #60626: names are scoped.
func TestLockersOfDifferentNamesDoNotInterfere(t *testing.T) {
	t.Parallel()
	lk, rdb, _ := single(t)
	other := newLocker(t, slowMachine(), rdb)
	for _, x := range []*lock.Locker{lk, other} {
		l, err := x.TryAcquire(t.Context(), "job", time.Minute)
		must(t, err)
		t.Cleanup(func() { must(t, l.Release(context.Background())) })
	}
}

// sebleier/django-redis-cache#128, redis/redis-py#554, dogpile #261: a lock without an end.
func TestEachLockEndsByItself(t *testing.T) {
	t.Parallel()
	lk, rdb, o := single(t)
	ctx := t.Context()
	l, err := lk.TryAcquire(ctx, "job", time.Minute)
	must(t, err)
	key := keyOf(t, rdb, o, "k")
	if left := rdb.PTTL(ctx, key).Val(); left <= 0 || left > time.Minute {
		t.Errorf("ends in %v", left)
	}
	// What was made endless by hand is no lock.
	must(t, rdb.Persist(ctx, key).Err())
	next, err := lk.TryAcquire(ctx, "job", time.Minute)
	must(t, err)
	wantErr(t, l.Release(ctx), lock.ErrLost)
	must(t, next.Release(ctx))
	// And what is no lock at all is left alone.
	must(t, rdb.Set(ctx, key, "mine", 0).Err())
	_, err = lk.TryAcquire(ctx, "job", time.Minute)
	only(t, err, lock.ErrNotAcquired)
	must(t, rdb.Del(ctx, key).Err())
	must(t, rdb.LPush(ctx, key, "mine").Err())
	_, err = lk.TryAcquire(ctx, "job", time.Minute)
	only(t, err, lock.ErrNotAcquired)
}

// redis/go-redis#2985: the client sends SET NX again after a cut and finds the lock held, by itself. The
// retransmission may come before the reply is lost or after.
func TestRetransmittedAcquireRecognisesItself(t *testing.T) {
	t.Parallel()
	srv := shared.Server(t)
	p := redistest.Proxy(t, srv.Addr())
	rdb := newClient(t, srv.Addr())
	o := slowMachine()
	lk := newLocker(t, o, newClient(t, p.Addr()))
	warm(t, lk)
	p.DropReplies(faultproxy.Drop{N: 1, Match: faultproxy.Containing(o.Name), Close: true})
	l, err := lk.TryAcquire(t.Context(), "job", time.Minute)
	must(t, err)
	if n := p.Stats().DroppedReplies; n != 1 {
		t.Fatalf("%d replies were lost", n)
	}
	// The number that the server knows is that of the lock.
	if got := rdb.Get(t.Context(), fenceKey(t, rdb, o, "job")).Val(); got != digits(l.Fence()) {
		t.Errorf("fence %d, the server knows %s", l.Fence(), got)
	}
	must(t, l.Extend(t.Context(), time.Minute))
	p.DropReplies(faultproxy.Drop{N: 1, Match: faultproxy.Containing(o.Name), Close: true})
	must(t, l.Extend(t.Context(), 2*time.Minute))
	must(t, l.Release(t.Context()))
}

// A copy of acquire that arrives after the release grants a lock to nobody, under another nonce: nothing that
// the old holder still sends fits it. It ends with its lease.
func TestLateDuplicateCannotReviveAReleasedLock(t *testing.T) {
	t.Parallel()
	srv := shared.Server(t)
	p := redistest.Proxy(t, srv.Addr())
	rdb := newClient(t, srv.Addr())
	o := slowMachine()
	lk := newLocker(t, o, newClient(t, p.Addr()))
	warm(t, lk)
	ctx := t.Context()
	acquire := p.Capture(faultproxy.Containing(o.Name))
	l, err := lk.TryAcquire(ctx, "job", time.Minute)
	must(t, err)
	renew := p.Capture(faultproxy.Containing(o.Name))
	must(t, l.Extend(ctx, time.Minute))
	release := p.Capture(faultproxy.Containing(o.Name))
	must(t, l.Release(ctx))

	replay := func(c *faultproxy.Capture) string {
		t.Helper()
		reply, err := c.Replay(ctx)
		must(t, err)
		return string(reply)
	}
	if r := replay(renew); r != ":2\r\n" {
		t.Errorf("late renewal: %q", r)
	}
	ghost := replay(acquire)
	if !strings.HasPrefix(ghost, "$") {
		t.Fatalf("late acquire: %q", ghost)
	}
	held := rdb.Get(ctx, keyOf(t, rdb, o, "k")).Val()
	if r := replay(renew); r != ":3\r\n" {
		t.Errorf("late renewal revives the lock: %q", r)
	}
	if r := replay(release); r != ":0\r\n" {
		t.Errorf("late release: %q", r)
	}
	if now := rdb.Get(ctx, keyOf(t, rdb, o, "k")).Val(); now != held {
		t.Error("the late release ended it")
	}
	if left := rdb.PTTL(ctx, keyOf(t, rdb, o, "k")).Val(); left <= 0 {
		t.Errorf("the ghost ends in %v", left)
	}
}

// An acquire that was sent, but not answered in time, may be run later: its lock belongs to nobody and is given
// back as soon as Redis answers.
func TestGrantThatNobodyWaitedForIsGivenBack(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t)
	rdb := newClient(t, srv.Addr())
	o := slowMachine()
	o.Timeout = 200 * time.Millisecond
	lk := newLocker(t, o, rdb)
	warm(t, lk)
	must(t, srv.Stop())
	begun := time.Now()
	_, err := lk.TryAcquire(t.Context(), "job", time.Minute)
	only(t, err, lock.ErrUnavailable)
	_, err = lk.TryAcquire(context.Background(), "job", time.Minute)
	only(t, err, lock.ErrUnavailable)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = lk.TryAcquire(ctx, "job", time.Minute)
	wantErr(t, err, context.DeadlineExceeded)
	if took := time.Since(begun); took > 3*time.Second {
		t.Errorf("three calls took %v", took)
	}
	must(t, srv.Cont())
	redistest.Eventually(t, patient, func() bool {
		l, err := lk.TryAcquire(t.Context(), "job", time.Minute)
		if err != nil {
			return false
		}
		must(t, l.Release(t.Context()))
		return true
	})
	if s := lk.Stats(); s.Trouble == 0 {
		t.Errorf("stats %+v", s)
	}
}

// erpc/erpc#1113, redis/go-redis#2145: go-redis does not see that a ctx is cancelled while it waits.
func TestCtxIsHonouredPromptly(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t)
	lk := newLocker(t, slowMachine(), newClient(t, srv.Addr()))
	warm(t, lk)
	held, err := lk.Acquire(t.Context(), "held", time.Minute)
	must(t, err)
	cause := errors.New("enough")
	cancelled := func() (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancelCause(t.Context())
		timer := time.AfterFunc(50*time.Millisecond, func() { cancel(cause) })
		return ctx, func() { timer.Stop(); cancel(nil) }
	}
	check := func(what string, f func(ctx context.Context) error, errs ...error) {
		t.Helper()
		ctx, cancel := cancelled()
		defer cancel()
		within(t, 2*time.Second, what, func() {
			err := f(ctx)
			for _, want := range append(errs, context.Canceled, cause) {
				wantErr(t, err, want)
			}
		})
	}
	check("waiting for a holder", func(ctx context.Context) error {
		_, err := lk.Acquire(ctx, "held", time.Minute)
		return err
	}, lock.ErrNotAcquired)
	must(t, srv.Stop())
	defer func() { must(t, srv.Cont()) }()
	check("waiting for Redis", func(ctx context.Context) error {
		_, err := lk.TryAcquire(ctx, "free", time.Minute)
		return err
	})
	check("extending", func(ctx context.Context) error { return held.Extend(ctx, time.Minute) })
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for what, err := range map[string]error{
		"TryAcquire": second(lk.TryAcquire(ended, "free", time.Minute)),
		"Acquire":    second(lk.Acquire(ended, "free", time.Minute)),
		"Extend":     held.Extend(ended, time.Minute),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s with an ended ctx: %v", what, err)
		}
	}
}

// leandromoreira/redlock-rb#36, go-redsync/redsync#107: extending what is gone or taken.
func TestExtendDoesNotTakeALockThatIsGone(t *testing.T) {
	t.Parallel()
	lk, rdb, o := single(t)
	ctx := t.Context()
	l, err := lk.TryAcquire(ctx, "job", time.Minute)
	must(t, err)
	must(t, l.Extend(ctx, time.Hour))
	if v := l.Validity(); v < 50*time.Minute {
		t.Errorf("validity %v", v)
	}
	must(t, l.Extend(ctx, time.Second)) // never shorter
	if v := l.Validity(); v < 50*time.Minute {
		t.Errorf("validity %v after a short Extend", v)
	}
	key := keyOf(t, rdb, o, "k")
	if left := rdb.PTTL(ctx, key).Val(); left < 50*time.Minute {
		t.Errorf("Redis ends it in %v", left)
	}
	must(t, rdb.Del(ctx, key).Err())
	lost := &lock.LostError{}
	err = l.Extend(ctx, time.Minute)
	only(t, err, lock.ErrLost)
	if !errors.As(err, &lost) || lost.Reason != lock.Gone || lost.Name != "job" || lost.Held.After(lost.Found) {
		t.Errorf("%+v", lost)
	}
	if n := rdb.Exists(ctx, key).Val(); n != 0 {
		t.Error("it was taken again")
	}
	next, err := lk.TryAcquire(ctx, "job", time.Minute)
	must(t, err)
	wantErr(t, l.Extend(ctx, time.Minute), lock.ErrLost)
	wantErr(t, l.Release(ctx), lock.ErrLost)
	if l.Validity() > 0 || next.Validity() <= 0 {
		t.Errorf("validity %v of the lost, %v of the new", l.Validity(), next.Validity())
	}
	must(t, next.Release(ctx))
	only(t, next.Extend(ctx, time.Minute), lock.ErrReleased)

	third, err := lk.TryAcquire(ctx, "job", time.Minute)
	must(t, err)
	must(t, rdb.Set(ctx, key, "L"+strings.Repeat("x", 32), time.Minute).Err())
	err = third.Extend(ctx, time.Minute)
	if !errors.As(err, &lost) || lost.Reason != lock.Taken {
		t.Errorf("taken: %v", err)
	}
}

func TestErrorsTellConditionsApart(t *testing.T) {
	t.Parallel()
	lk, rdb, o := single(t)
	ctx := t.Context()
	_, err := lk.TryAcquire(ctx, "", time.Minute)
	only(t, err, lock.ErrMisuse)
	_, err = lk.Acquire(ctx, "job", 0)
	only(t, err, lock.ErrMisuse)
	only(t, lk.Do(ctx, "job", time.Minute, nil), lock.ErrMisuse)
	_, err = new(lock.Locker).TryAcquire(ctx, "job", time.Minute)
	only(t, err, lock.ErrMisuse)

	gone := newLocker(t, slowMachine(), newClient(t, "127.0.0.1:1"))
	_, err = gone.TryAcquire(ctx, "job", time.Minute)
	only(t, err, lock.ErrUnavailable)

	closed := newLocker(t, o, rdb)
	must(t, closed.Close())
	_, err = closed.TryAcquire(ctx, "job", time.Minute)
	only(t, err, lock.ErrClosed)
	_, err = closed.Acquire(context.Background(), "job", time.Minute)
	only(t, err, lock.ErrClosed)
}

// errorception/redis-lock#11 and its kind: an answer "no" of Redis is not "held by another".
func TestRedisThatRefusesIsUnavailable(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t)
	rdb := newClient(t, srv.Addr())
	lk := newLocker(t, slowMachine(), rdb)
	ctx := t.Context()
	l, err := lk.TryAcquire(ctx, "job", time.Minute)
	must(t, err)
	// Full: nothing is granted, but what is held can be released.
	must(t, rdb.ConfigSet(ctx, "maxmemory", "1").Err())
	_, err = lk.TryAcquire(ctx, "another", time.Minute)
	only(t, err, lock.ErrUnavailable)
	must(t, l.Release(ctx))
	must(t, rdb.ConfigSet(ctx, "maxmemory", "0").Err())
	// A replica.
	must(t, rdb.Do(ctx, "REPLICAOF", "127.0.0.1", "1").Err())
	_, err = lk.TryAcquire(ctx, "another", time.Minute)
	only(t, err, lock.ErrUnavailable)
	must(t, rdb.Do(ctx, "REPLICAOF", "NO", "ONE").Err())
	redistest.Eventually(t, patient, func() bool {
		l, err := lk.TryAcquire(ctx, "another", time.Minute)
		if err != nil {
			return false
		}
		must(t, l.Release(ctx))
		return true
	})
}

func TestScriptFlushIsNotNoticed(t *testing.T) { // redis/go-redis#3228
	t.Parallel()
	srv := redistest.Server(t)
	rdb := newClient(t, srv.Addr())
	lk := newLocker(t, slowMachine(), rdb)
	for range 20 {
		must(t, rdb.ScriptFlush(t.Context()).Err())
		l, err := lk.TryAcquire(t.Context(), "job", time.Minute)
		must(t, err)
		must(t, rdb.ScriptFlush(t.Context()).Err())
		must(t, l.Extend(t.Context(), time.Minute))
		must(t, rdb.ScriptFlush(t.Context()).Err())
		must(t, l.Release(t.Context()))
	}
}

// redisson #7272, #1626: a renewal that outlives the unlock; swarthy/redis-semaphore#206: a false loss.
func TestRenewalsRacingReleasesRaiseNoFalseLossAndLeaveNothing(t *testing.T) {
	t.Parallel()
	lk, rdb, o := single(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 150 {
				l, err := lk.Acquire(context.Background(), "job", time.Minute)
				if err != nil {
					t.Error(err)
					return
				}
				extended := make(chan error, 1)
				go func() { extended <- l.Extend(t.Context(), time.Minute) }()
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
				if err := <-extended; err != nil && !errors.Is(err, lock.ErrReleased) {
					t.Errorf("extending: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if s := lk.Stats(); s.Lost != 0 || s.Released != 1200 {
		t.Errorf("stats %+v", s)
	}
	if key := keyOf(t, rdb, o, "k"); key != "" {
		t.Errorf("%s is left", key)
	}
}

// warm opens a connection and lets Redis know the scripts.
func warm(t testing.TB, lk *lock.Locker) {
	t.Helper()
	l, err := lk.TryAcquire(context.Background(), "warm", time.Minute)
	must(t, err)
	must(t, l.Extend(context.Background(), time.Minute))
	must(t, l.Release(context.Background()))
}

func second[T any](_ T, err error) error { return err }

func fenceKey(t testing.TB, rdb *redis.Client, o *lock.Options, name string) string {
	t.Helper()
	keys := rdb.Keys(context.Background(), o.Name+":{*}:f:"+name).Val()
	if len(keys) != 1 {
		t.Fatalf("keys %q", keys)
	}
	return keys[0]
}

// A lock whose number cannot be noted is not granted, and does not stay behind.
func TestLockWithoutItsNumberIsNotGranted(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t)
	admin := newClient(t, srv.Addr())
	ctx := t.Context()
	must(t, admin.Do(ctx, "ACL", "SETUSER", "app", "on", ">secret", "~*:k:*", "~*:u:*", "allchannels", "+@all").Err())
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), Username: "app", Password: "secret"})
	t.Cleanup(func() { _ = rdb.Close() })
	o := slowMachine()
	lk := newLocker(t, o, rdb)
	_, err := lk.TryAcquire(ctx, "job", time.Minute)
	only(t, err, lock.ErrUnavailable)
	if key := keyOf(t, admin, o, "k"); key != "" {
		t.Errorf("%s is left", key)
	}
	must(t, admin.Do(ctx, "ACL", "SETUSER", "app", "allkeys").Err())
	l, err := lk.TryAcquire(ctx, "job", time.Minute)
	must(t, err)
	must(t, l.Release(ctx))
	key := fenceKey(t, admin, o, "job")
	for _, garbage := range []string{"9e99", "9007199254740991"} {
		must(t, admin.Set(ctx, key, garbage, 0).Err())
		_, err = lk.TryAcquire(ctx, "job", time.Minute)
		only(t, err, lock.ErrUnavailable)
	}
	for _, garbage := range []string{"", "x", "-5"} {
		must(t, admin.Set(ctx, key, garbage, 0).Err())
		next, err := lk.TryAcquire(ctx, "job", time.Minute)
		must(t, err)
		must(t, next.Release(ctx))
		if next.Fence() <= l.Fence() {
			t.Errorf("fence %d after %q", next.Fence(), garbage)
		}
	}
	must(t, admin.Del(ctx, key).Err())
	must(t, admin.LPush(ctx, key, "x").Err())
	next, err := lk.TryAcquire(ctx, "job", time.Minute)
	must(t, err)
	must(t, next.Release(ctx))
}
