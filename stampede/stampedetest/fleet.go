package stampedetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// Fleet is a number of guards of one name, each as in a pod of its own, over one store.
type Fleet[T any] struct {
	Pods   []*stampede.Guard[T]
	Faulty []*Faulty // between each pod and the store
}

// NewFleet makes n pods with the same opts over store, and closes them at the end of the test.
func NewFleet[T any](t testing.TB, n int, store stampede.Store, opts *stampede.Options) *Fleet[T] {
	t.Helper()
	fl := new(Fleet[T])
	for range n {
		faulty := NewFaulty(store)
		pod, err := stampede.New[T](faulty, opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), grace)
			defer cancel()
			if err := pod.Close(ctx); err != nil {
				t.Errorf("closing a pod: %v", err)
			}
		})
		fl.Pods, fl.Faulty = append(fl.Pods, pod), append(fl.Faulty, faulty)
	}
	return fl
}

// Answer is what one caller of a Fleet got.
type Answer[T any] struct {
	Pod   int
	Value T
	Err   error
	Took  time.Duration
}

// GetAll lets callers of every pod call Get at once, and waits for all of their answers.
func (fl *Fleet[T]) GetAll(ctx context.Context, callers int, key string, load func(context.Context) (T, error)) []Answer[T] {
	answers := make([]Answer[T], len(fl.Pods)*callers)
	var ready, done sync.WaitGroup
	ready.Add(len(answers))
	start := make(chan struct{})
	for i := range answers {
		done.Go(func() {
			a := &answers[i]
			a.Pod = i % len(fl.Pods)
			ready.Done()
			<-start
			began := time.Now()
			a.Value, a.Err = fl.Pods[a.Pod].Get(ctx, key, load)
			a.Took = time.Since(began)
		})
	}
	ready.Wait()
	close(start)
	done.Wait()
	return answers
}
