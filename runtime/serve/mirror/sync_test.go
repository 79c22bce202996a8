package mirror_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runtime/serve/mirror"
)

// TestTogether: any number of calls share one look, which begins after they have come.
func TestTogether(t *testing.T) {
	t.Parallel()
	n, looking, held := newMachine(t), make(chan struct{}, 100), make(chan struct{})
	s := &spy{known: func() error { looking <- struct{}{}; <-held; return nil }}
	p, m := n.process(t), n.mirror(t, s)
	var all sync.WaitGroup
	all.Go(func() { must(t, m.Sync(t.Context())) })
	<-looking
	p.start(t, newPod("web", "sleep")) // after the first look has begun
	waitFor(&all, 50, func() {
		must(t, m.Sync(t.Context()))
		_, found := m.Store().Get(mirror.Pods, types.NamespacedName{Namespace: "default", Name: "web"})
		want(t, "found", found, true)
	})
	close(held)
	all.Wait()
	// One that comes too late to wait with the others is no mistake.
	if looks := s.looks.Load(); looks < 2 || looks > 5 {
		t.Errorf("%d looks, want 2", looks)
	}
}

// waitFor has a function called by so many, and returns when most of them wait in it.
func waitFor(all *sync.WaitGroup, n int32, f func()) {
	var begun atomic.Int32
	for range n {
		all.Go(func() {
			begun.Add(1)
			f()
		})
	}
	for begun.Load() < n {
		runtime.Gosched()
	}
	time.Sleep(10 * time.Millisecond)
}

// TestInterrupted: whoever waits is not told of the interruption of another one.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	looking := make(chan struct{}, 1)
	n, s := newMachine(t), &spy{listed: func(ctx context.Context, _ *v1.Pod) error {
		if ctx.Value(slow{}) == nil {
			return nil
		}
		looking <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}}
	held, beginning := make(chan struct{}), make(chan struct{}, 100)
	s.known = func() error { beginning <- struct{}{}; <-held; return nil }
	p, m := n.process(t), n.mirror(t, s)
	p.start(t, newPod("web", "sleep"))
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), slow{}, true))
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { must(t, m.Sync(t.Context())) })
	<-beginning
	p.start(t, newPod("job", "sleep"))
	waitFor(&all, 1, func() {
		if err := m.Sync(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	})
	f := follow(t, m, mirror.Pods)
	waitFor(&all, 5, func() { must(t, m.Sync(t.Context())) })
	m.Mark("") // else there would be nothing to observe
	close(held)
	<-looking // for the first of those that waited
	cancel()
	all.Wait()
	want(t, "seen", f.seen(), "ADDED job Running runs\nADDED web Running runs")
}

// slow is the key of contexts with which observations take until they are cancelled.
type slow struct{}
