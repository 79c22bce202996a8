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

// jobMember is the gate of a pod that belongs to a Job.
type jobMember struct {
	job      *job
	p        *pod
	turn     *waiter // to be active; nil if the pod has not asked for it
	failures int     // of the pod, in earlier runs as well
	retries  int     // in this run
}

// joinJobs finds the Jobs of the pods. Those of earlier runs are active already, with their
// failures; the others come after them.
func (r *run) joinJobs(ctx context.Context, pods []*pod) {
	var old []*jobMember
	for _, p := range pods {
		j := r.jobs.of(p.pod)
		if j == nil {
			continue
		}
		p.member = &jobMember{job: j, p: p}
		p.gates = append(p.gates, p.member)
		j.wake = append(j.wake, p.wake)
		if p.stage == adopted {
			old = append(old, p.member)
		}
	}
	if len(old) == 0 {
		return
	}
	list, err := r.rt.List(ctx)
	if err != nil {
		r.o.Logger.WarnContext(ctx, "could not find the failures of Jobs in earlier runs; they are not counted", "error", err)
	}
	earlier := map[types.UID]*v1.Pod{}
	for _, pod := range list {
		earlier[pod.UID] = pod
	}
	for _, m := range old {
		if was := earlier[m.p.pod.UID]; was != nil {
			// A missing or invalid number counts as 0.
			m.failures, _ = strconv.Atoi(was.Annotations[podspec.AnnotationJobFailures])
		}
		m.turn = m.job.resume(m.p.pod.UID, m.failures)
	}
}

func (m *jobMember) open() bool {
	if m.turn == nil {
		m.turn = m.job.active.reserve(m.p.rank, m.p.wake)
	}
	return m.turn.holds()
}

func (m *jobMember) verdict() condition { return m.job.verdict(m.p.stage == replacing) }

func (m *jobMember) changed(c condition) {
	if m.p.begun() {
		m.job.startDeadline()
	}
	if c.ended && m.turn != nil {
		m.job.leave(m.p.pod.UID, m.turn, c.outcome == Succeeded)
		m.turn = nil
	}
}

// retryInJob returns the condition of a pod that has ended: its own, or that its Job retries
// it (a controller would create another pod), or that its Job has failed.
func (p *pod) retryInJob(ctx context.Context, c condition) condition {
	m := p.member
	if m == nil || p.status.Phase != v1.PodFailed || podspec.FailedWithJob(p.status) || p.status.Reason == reasonStopped {
		return c
	}
	decision := m.job.podFailed(p.pod, p.status)
	if decision.failure.ended {
		return p.fail(ctx, decision.failure)
	}
	if limit := p.r.o.Retry.Retries; m.retries >= limit {
		c.message += fmt.Sprintf(" (gave up after %d retries)", limit)
		return c
	}
	m.failures = decision.failures
	p.enter(replacing)
	p.retryAt(time.Now().Add(decision.after), c.message)
	return condition{reason: c.reason, message: fmt.Sprintf("retrying in %s: %s", decision.after, c.message)}
}

// replace removes a failed pod that its Job retries, so that the next Sync starts it with new
// volumes, namespaces and containers.
func (p *pod) replace(ctx context.Context) error {
	if p.stage != replacing {
		return nil
	}
	if err := p.r.reset(ctx, p.pod); err != nil {
		return fmt.Errorf("removing pod %q for a retry: %w", p.pod.Name, err)
	}
	p.pod = p.pod.DeepCopy()
	p.pod.Annotations[podspec.AnnotationJobFailures] = strconv.Itoa(p.member.failures)
	p.retries++
	p.member.retries++
	p.due, p.history, p.status = time.Time{}, history{}, v1.PodStatus{}
	p.enter(synced)
	return nil
}
