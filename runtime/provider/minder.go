package provider

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
)

// When a pod is worked on again: after an error later each time, and without a reason now
// and then, should an event have been lost.
const (
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
	resync     = time.Minute
)

// minder keeps one pod at what it is asked to be.
type minder struct {
	wake   chan struct{} // the pod was replaced, or somebody wants to be told
	cancel context.CancelFunc
	done   chan struct{} // closed when nobody minds the pod any more
	told   *v1.PodStatus // the status that was told last

	mu  sync.Mutex
	pod *v1.Pod // never changed, only replaced

	deletion sync.Mutex
	deleted  bool
}

func (m *minder) current() *v1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pod
}

func (m *minder) replace(pod *v1.Pod) {
	m.mu.Lock()
	m.pod = pod
	m.mu.Unlock()
	m.rouse()
}

func (m *minder) rouse() {
	select {
	case m.wake <- struct{}{}:
	default: // it is to wake up already
	}
}

// mind works on the pod whenever something happens, until ctx is done.
func (p *Provider) mind(ctx context.Context, m *minder) {
	defer close(m.done)
	changes, err := p.runtime.Changes(ctx, m.current())
	if err != nil && ctx.Err() == nil {
		p.log.WarnContext(ctx, "no events of the pod", "pod", m.current().Name, "error", err)
	}
	retry := firstRetry
	for ctx.Err() == nil {
		err := p.runtime.Sync(ctx, m.current())
		if ctx.Err() != nil {
			return
		}
		p.tell(ctx, m)
		after := failure.RetryAfter(err)
		switch {
		case err == nil:
			retry = firstRetry
			m.await(ctx, changes, resync)
		case after > 0:
			m.await(ctx, changes, after)
		default:
			p.log.WarnContext(ctx, "working on the pod", "pod", m.current().Name, "error", err, "retry", retry)
			m.await(ctx, nil, retry)
			retry = min(2*retry, lastRetry)
		}
	}
}

// await returns when the pod changes or was replaced, or after the time given.
func (m *minder) await(ctx context.Context, changes <-chan struct{}, most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-changes:
	case <-m.wake:
	case <-timer.C:
	case <-ctx.Done():
	}
}
