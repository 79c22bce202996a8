package provider

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
)

// When a pod is synced again: after errors with growing delays, and otherwise now and then, in
// case an event was lost.
const (
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
	resync     = time.Minute
)

// podWorker keeps one pod in the state that its spec wants.
type podWorker struct {
	wakeup   chan struct{} // the pod was replaced, or its status has to be reported
	cancel   context.CancelFunc
	done     chan struct{} // closed when the worker has ended
	reported *v1.PodStatus // the last one

	mu  sync.Mutex
	pod *v1.Pod // never changed, only replaced

	deletion sync.Mutex
	deleted  bool
}

func (w *podWorker) current() *v1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pod
}

func (w *podWorker) replace(pod *v1.Pod) {
	w.mu.Lock()
	w.pod = pod
	w.mu.Unlock()
	w.wake()
}

func (w *podWorker) wake() {
	select {
	case w.wakeup <- struct{}{}:
	default: // a wake-up is pending already
	}
}

// work syncs the pod whenever something happens, until ctx is done.
func (p *Provider) work(ctx context.Context, w *podWorker) {
	defer close(w.done)
	changes, err := p.runtime.Changes(ctx, w.current())
	if err != nil && ctx.Err() == nil {
		p.log.WarnContext(ctx, "no events of the pod", "pod", w.current().Name, "error", err)
	}
	retry := firstRetry
	for ctx.Err() == nil {
		err := p.runtime.Sync(ctx, w.current())
		if ctx.Err() != nil {
			return
		}
		p.report(ctx, w)
		after := failure.RetryAfter(err)
		switch {
		case err == nil:
			retry = firstRetry
			w.wait(ctx, changes, resync)
		case after > 0:
			w.wait(ctx, changes, after)
		default:
			p.log.WarnContext(ctx, "syncing the pod", "pod", w.current().Name, "error", err, "retry", retry)
			w.wait(ctx, nil, retry)
			retry = min(2*retry, lastRetry)
		}
	}
}

// wait returns when the pod changes or was replaced, or after the given time.
func (w *podWorker) wait(ctx context.Context, changes <-chan struct{}, most time.Duration) {
	select {
	case <-changes:
	case <-w.wakeup:
	case <-time.After(most):
	case <-ctx.Done():
	}
}
