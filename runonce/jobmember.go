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

// jobMember is what a pod has to do with its Job.
type jobMember struct {
	job      *job            // nil for a pod of no Job
	turn     <-chan struct{} // closed when the Job lets the pod start; nil once it has
	due      time.Time       // when the pod, which has failed, is tried again; else zero
	tries    int             // after the first, in this run
	failures int             // in earlier runs, too
}

// toBeRetried says whether the pod has failed and is to be tried again.
func (m *jobMember) toBeRetried() bool { return !m.due.IsZero() }

// joinJobs finds the Jobs of the pods. Those of earlier runs are active already, and their
// failures count; the others take their places after them.
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
			r.o.Logger.WarnContext(ctx, "failures of earlier runs do not count", "error", err)
		}
		for _, pod := range list {
			earlier[pod.UID] = pod
		}
	}
	for _, p := range old {
		if pod := earlier[p.pod.UID]; pod != nil {
			// Absent or broken counts as none.
			p.failures, _ = strconv.Atoi(pod.Annotations[podspec.AnnotationJobFailures])
			p.job.recall(pod.Status)
		}
		p.job.resume(p.pod.UID, p.failures)
	}
	for _, p := range added {
		p.turn = p.job.enter(p.pod.UID)
		select {
		case <-p.turn:
			p.turn = nil
		default: // it queues for a slot when its turn has come
		}
	}
}

// awaitTurn waits until the pod's Job lets it start, or has failed; false means that ctx
// is done.
func (p *pod) awaitTurn(ctx context.Context) bool {
	if p.turn == nil {
		return true
	}
	select {
	case <-p.turn:
		p.turn = nil
	case <-p.job.done():
	case <-ctx.Done():
		return false
	}
	return true
}

// jobOver says whether the pod's Job has failed.
func (p *pod) jobOver() bool {
	select {
	case <-p.job.done():
		return true
	default:
		return false
	}
}

// failWithJob ends a pod whose Job has failed. One that has ended by itself stays as it is.
func (p *pod) failWithJob(ctx context.Context) {
	if p.started() {
		p.due = time.Time{}
		if err := p.look(ctx); err != nil {
			p.handle(ctx, err)
			return
		}
	}
	if !p.cond.ended {
		p.end(ctx, p.fail(ctx, p.job.why()))
	}
}

// fail makes the runtime end the pod by its Job's verdict, so that later runs know of it.
func (p *pod) fail(ctx context.Context, v verdict) condition {
	c := failed(v.reason, v.message)
	if !p.started() {
		return c
	}
	err := p.r.rt.Fail(ctx, p.pod, v.reason, v.message)
	if err == nil {
		err = p.refresh(ctx)
	}
	if err != nil {
		p.r.o.Logger.WarnContext(ctx, "pod of a failed Job goes on", "pod", p.name(), "error", err)
		return c
	}
	if own := p.r.goal.judge(p.pod, p.status, time.Now()); own.ended {
		return own
	}
	return c
}

// retryInJob returns the condition of a pod that has ended: its own, or that it is tried
// again, as the pod that its Job's controller would put in its place, or its Job's verdict.
func (p *pod) retryInJob(ctx context.Context, c condition) condition {
	if p.job == nil || p.status.Phase != v1.PodFailed || p.job.final(p.status) {
		return c
	}
	next := p.job.failed(p.pod, p.status)
	if !next.again {
		return p.fail(ctx, next.verdict)
	}
	if most := p.r.o.Retry.Retries; p.tries >= most {
		c.message += fmt.Sprintf(" (gave up after %d retries)", most)
		return c
	}
	p.failures = next.failures
	p.due = time.Now().Add(next.after)
	text := fmt.Sprintf("in %s: %s", next.after, c.message)
	p.r.progress(p.pod, "Retrying", text, 0)
	return condition{reason: c.reason, message: "to be tried again " + text}
}

// clearFailed removes a pod that is to be tried again, so that the next Sync starts it with
// volumes, namespaces and containers of its own.
func (p *pod) clearFailed(ctx context.Context) error {
	if !p.toBeRetried() {
		return nil
	}
	if err := p.r.rt.Stop(ctx, p.pod); err != nil {
		return fmt.Errorf("clearing pod %q to try it again: %w", p.pod.Name, err)
	}
	next := p.pod.DeepCopy()
	next.Annotations[podspec.AnnotationJobFailures] = strconv.Itoa(p.failures)
	p.tries++
	p.pod, p.due = next, time.Time{}
	p.restarts, p.status = map[string]int{}, v1.PodStatus{}
	return nil
}

// tooManyRestarts ends a pod whose Job allows no further restart of a container.
func (p *pod) tooManyRestarts(ctx context.Context) bool {
	n := 0
	for _, cs := range podspec.Statuses(p.status) {
		n += int(cs.RestartCount)
	}
	v, more := p.job.restarts(p.pod.UID, n)
	if !more {
		p.end(ctx, p.fail(ctx, v))
	}
	return !more
}
