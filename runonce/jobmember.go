package runonce

import (
	"context"
	"fmt"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
)

// jobMember is the part of a pod that belongs to its Job.
type jobMember struct {
	job         *job      // nil for a pod of no Job
	jobSlot     *waiter   // held by an active pod; nil for one of an earlier run
	jobRetryAt  time.Time // when the failed pod is retried, zero if it is not
	jobRetries  int       // in this run
	jobFailures int       // in earlier runs as well
}

// willRetry says whether the pod has failed and its Job retries it.
func (m *jobMember) willRetry() bool { return !m.jobRetryAt.IsZero() }

// joinJobs finds the Jobs of the pods. Those of earlier runs are active already, with their
// failures; the others come after them.
func (r *run) joinJobs(ctx context.Context, pods []*pod) {
	var old, added []*pod
	for _, p := range pods {
		switch p.job = r.jobs.of(p.pod); {
		case p.job == nil:
		case p.kept:
			old = append(old, p)
		default:
			added = append(added, p)
		}
	}
	earlier := map[types.UID]*v1.Pod{}
	if len(old) > 0 {
		list, err := r.rt.List(ctx)
		if err != nil {
			r.o.Logger.WarnContext(ctx, "failures of Jobs in earlier runs are not counted", "error", err)
		}
		for _, pod := range list {
			earlier[pod.UID] = pod
		}
	}
	for _, p := range old {
		if pod := earlier[p.pod.UID]; pod != nil {
			// A missing or invalid number counts as 0.
			p.jobFailures, _ = strconv.Atoi(pod.Annotations[podspec.AnnotationJobFailures])
		}
		p.job.resume(p.pod.UID, p.jobFailures)
	}
	for i, p := range added {
		p.jobSlot = p.job.active.reserve(i)
	}
}

// rejoin has a pod that is tried again wait for its turn in the Job that it has left.
func (p *pod) rejoin() {
	if p.job != nil {
		p.jobSlot = p.job.active.reserve(p.rank)
	}
}

// active says whether the pod's Job, if it has one, lets it start.
func (p *pod) active() bool { return p.jobSlot == nil || p.jobSlot.holds() }

// awaitJob waits until the pod's Job lets it start, or has failed. It returns false when ctx
// is done.
func (p *pod) awaitJob(ctx context.Context) bool {
	if p.active() {
		return true
	}
	select {
	case <-p.jobSlot.ready:
	case <-p.job.done():
	case <-ctx.Done():
		return false
	}
	return true
}

// jobFailed says whether the pod's Job has failed.
func (p *pod) jobFailed() bool { return p.job != nil && p.job.why() != (jobFailure{}) }

// failWithJob ends a pod whose Job has failed, unless it has ended by itself.
func (p *pod) failWithJob(ctx context.Context) {
	if p.started() {
		p.jobRetryAt = time.Time{}
		if err := p.observe(ctx); err != nil {
			p.handle(ctx, err)
			return
		}
	}
	if !p.cond.ended {
		p.end(ctx, p.fail(ctx, p.job.why()))
	}
}

// fail makes the runtime fail the pod because of its Job, so that later runs know of it.
func (p *pod) fail(ctx context.Context, f jobFailure) condition {
	c := failed(f.reason, f.message)
	if !p.started() {
		return c
	}
	err := p.r.rt.Fail(ctx, p.pod, f.reason, f.message)
	if err == nil {
		err = p.refresh(ctx)
	}
	if err != nil {
		p.warn(ctx, "cannot end a pod of a failed Job", err)
		return c
	}
	if own := p.judge(); own.ended {
		return own
	}
	return c
}

// retryInJob returns the condition of a pod that has ended: its own, or that its Job retries
// it (a controller would create another pod), or that its Job has failed.
func (p *pod) retryInJob(ctx context.Context, c condition) condition {
	if p.job == nil || p.status.Phase != v1.PodFailed || failedWithJob(p.status) {
		return c
	}
	decision := p.job.podFailed(p.pod, p.status)
	if decision.failure != (jobFailure{}) {
		return p.fail(ctx, decision.failure)
	}
	if limit := p.r.o.Retry.Retries; p.jobRetries >= limit {
		c.message += fmt.Sprintf(" (gave up after %d retries)", limit)
		return c
	}
	p.jobFailures = decision.failures
	p.jobRetryAt = time.Now().Add(decision.after)
	p.r.progress(Progress{Pod: p.pod, State: "Retrying", Message: c.message, RetryAt: p.jobRetryAt}, 0)
	return condition{reason: c.reason, message: fmt.Sprintf("retrying in %s: %s", decision.after, c.message)}
}

// succeededMeanwhile is closed when the failed pod need not be retried, because another worker
// has succeeded.
func (m *jobMember) succeededMeanwhile() <-chan struct{} {
	if !m.willRetry() {
		return nil
	}
	return m.job.succeeded
}

// dropRetry ends a failed pod that need not be retried.
func (p *pod) dropRetry(ctx context.Context) bool {
	if !p.willRetry() || !p.job.complete() {
		return false
	}
	p.jobRetryAt = time.Time{}
	p.end(ctx, p.fail(ctx, failureIgnored))
	return true
}

// removeForRetry removes a failed pod that its Job retries, so that the next Sync starts it
// with new volumes, namespaces and containers.
func (p *pod) removeForRetry(ctx context.Context) error {
	if !p.willRetry() {
		return nil
	}
	if err := p.r.rt.Stop(ctx, p.pod); err != nil {
		return fmt.Errorf("removing pod %q for a retry: %w", p.pod.Name, err)
	}
	p.pod = p.pod.DeepCopy()
	p.pod.Annotations[podspec.AnnotationJobFailures] = strconv.Itoa(p.jobFailures)
	p.jobRetries++
	p.jobRetryAt = time.Time{}
	p.history, p.status = history{}, v1.PodStatus{}
	return nil
}

// tooManyRestarts ends a pod whose Job allows no more restarts of a container.
func (p *pod) tooManyRestarts(ctx context.Context) bool {
	n := 0
	for _, cs := range podspec.Statuses(p.status) {
		n += int(cs.RestartCount)
	}
	failure, ok := p.job.mayRestart(p.pod.UID, n)
	if !ok {
		p.end(ctx, p.fail(ctx, failure))
	}
	return !ok
}
