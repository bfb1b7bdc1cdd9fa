package e2e_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/herdgate/herdgate/internal/redistest"
	"github.com/herdgate/herdgate/stampede"
)

// A loader that hangs costs its callers no more than their own time, and the key no more than LoadTimeout.
func TestLoaderThatHangsIsGivenUpAndTheKeyWorksAgain(t *testing.T) {
	t.Parallel()
	const loadTimeout = 500 * time.Millisecond
	s := redistest.Server(t)
	pods := newPods(t, 2, s.Addr(), stampede.Options{LoadTimeout: loadTimeout, WaitTimeout: 5 * time.Second})
	release := make(chan struct{})
	began := make(chan struct{})
	var wg sync.WaitGroup
	begun := time.Now()
	wg.Go(func() {
		_, err := pods[0].guard.Get(t.Context(), "k", func(context.Context) (string, error) {
			close(began)
			<-release // whatever becomes of its ctx
			return "hung", nil
		})
		if !errors.Is(err, stampede.ErrLoadTimeout) {
			t.Errorf("the caller whose loader hangs got %v", err)
		}
		if tooLong(begun, loadTimeout) {
			t.Errorf("the caller whose loader hangs waited %v", time.Since(begun))
		}
	})
	<-began
	for range 20 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			begun := time.Now()
			_, err := pods[0].guard.Get(ctx, "k", nothingLoaded)
			if took := time.Since(begun); took > 200*time.Millisecond+3*machine.late(begun, time.Now()) {
				t.Errorf("a caller with a ctx of 100 ms waited %v", took)
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a caller with a ctx of 100 ms got %v", err)
			}
		})
	}
	wg.Go(func() { // in another pod
		v, err := pods[1].guard.Get(t.Context(), "k", func(context.Context) (string, error) { return "loaded", nil })
		if v != "loaded" || err != nil {
			t.Errorf("the other pod got %q, %v", v, err)
		}
		if tooLong(begun, loadTimeout+100*time.Millisecond) {
			t.Errorf("the other pod was served after %v", time.Since(begun))
		}
		t.Logf("the other pod was served after %v, LoadTimeout is %v", time.Since(begun), loadTimeout)
	})
	wg.Wait()
	v, err := pods[0].guard.Get(t.Context(), "k", func(context.Context) (string, error) { return "again", nil })
	if v != "loaded" && v != "again" || err != nil {
		t.Errorf("afterwards: %q, %v", v, err)
	}
	if n := pods[0].guard.Stats().Abandoned; n != 1 {
		t.Errorf("%d loaders are given up and still run, want 1", n)
	}
	close(release)
	redistest.Eventually(t, 5*time.Second, func() bool { return pods[0].guard.Stats().Abandoned == 0 })
	if r, ok, err := pods[0].guard.Peek(t.Context(), "k"); ok && r.Value == "hung" || err != nil {
		t.Errorf("the store holds %q, %v", r.Value, err)
	}
}
