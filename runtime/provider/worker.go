package provider

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
)

// When a pod is synced again: after errors with growing delays, and otherwise now and then, in
// case an event was lost. As often the files of its volumes are renewed.
const (
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
	resync     = time.Minute
)

// podWorker keeps one pod in the state that its spec wants, and deletes it in the end.
type podWorker struct {
	wakeup   chan struct{} // the pod was replaced, or its status has to be reported
	done     chan struct{} // closed when the worker has ended
	reported *v1.PodStatus // the last one

	mu        sync.Mutex
	pod       *v1.Pod // never changed, only replaced
	deleted   bool
	grace     time.Duration      // of the deletion
	interrupt context.CancelFunc // ends what the worker does now
}

func newWorker(pod *v1.Pod) *podWorker {
	return &podWorker{pod: pod, wakeup: make(chan struct{}, 1), done: make(chan struct{}), interrupt: func() {}}
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

// end has the pod deleted within the grace period. Only a shorter one changes a deletion. What is
// interrupted begins again, as in the kubelet, hooks as well.
func (w *podWorker) end(grace time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.deleted || grace < w.grace {
		w.deleted, w.grace = true, grace
		w.interrupt()
	}
}

// turn returns a context that ends when there is something else to do, and whether the pod has to
// be deleted.
func (w *podWorker) turn(ctx context.Context) (turn context.Context, deleted bool, grace time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.interrupt()
	turn, w.interrupt = context.WithCancel(ctx)
	return turn, w.deleted, w.grace
}

// work works on the pod until it is deleted or ctx is done. It does not start the pod before
// the one before it is deleted.
func (p *Provider) work(ctx context.Context, w, before *podWorker) {
	defer close(w.done)
	retry := firstRetry
	for ctx.Err() == nil {
		turn, deleted, grace := w.turn(ctx)
		if !deleted {
			p.keep(turn, w, before)
			continue
		}
		if p.remove(turn, w, grace) {
			awaitEnd(ctx, before) // whoever waits for this pod waits for that one, too
			return
		}
		w.wait(turn, nil, retry)
		retry = min(2*retry, lastRetry)
	}
}

// awaitEnd waits until a worker, if there is one, has ended.
func awaitEnd(ctx context.Context, w *podWorker) {
	if w == nil {
		return
	}
	select {
	case <-w.done:
	case <-ctx.Done():
	}
}

// keep syncs the pod whenever something happens, until ctx is done.
func (p *Provider) keep(ctx context.Context, w, before *podWorker) {
	awaitEnd(ctx, before)
	if ctx.Err() != nil {
		return
	}
	changes, err := p.runtime.Changes(ctx, w.current())
	if err != nil && ctx.Err() == nil {
		p.log.WarnContext(ctx, "could not watch the events of the pod", "pod", podspec.FullName(w.current()), "error", err)
	}
	retry, refreshed := firstRetry, time.Now()
	for ctx.Err() == nil {
		err := p.runtime.Sync(ctx, w.current())
		if time.Since(refreshed) >= resync {
			p.refresh(ctx, w.current())
			refreshed = time.Now()
		}
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
			w.wait(ctx, changes, min(after, resync))
		default:
			p.log.WarnContext(ctx, "could not sync the pod", "pod", podspec.FullName(w.current()), "error", err, "retry", retry)
			w.wait(ctx, nil, retry)
			retry = min(2*retry, lastRetry)
		}
	}
}

// refresh renews the files of the pod's volumes.
func (p *Provider) refresh(ctx context.Context, pod *v1.Pod) {
	if err := p.runtime.Refresh(ctx, pod); err != nil && ctx.Err() == nil {
		p.log.WarnContext(ctx, "could not renew the volumes of the pod", "pod", podspec.FullName(pod), "error", err)
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
