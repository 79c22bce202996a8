package runonce

import (
	"context"
	"fmt"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runonce/goal"
	"github.com/runonce/runonce/runonce/job"
)

// part is the part of a pod in its Job.
type part struct {
	job      *job.Job        // nil for a pod of no Job
	turn     <-chan struct{} // closed when the Job lets the pod start; nil once it has
	again    bool            // it has failed, and is tried again when due
	due      time.Time
	tries    int  // after the first, in this run
	failures int  // in earlier runs, too
	decided  bool // its Job's verdict on it has been passed
}

// enlist finds the Jobs of the pods. Those of earlier runs are active already, and their
// failures count; the others take their places after them.
func (r *run) enlist(ctx context.Context, pods []*pod) {
	var old, added []*pod
	for _, p := range pods {
		switch p.job = r.jobs.Of(p.pod); {
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
			p.job.Recall(pod.Status)
		}
		p.job.Resume(p.pod.UID, p.failures)
	}
	for _, p := range added {
		p.turn = p.job.Enter(p.pod.UID)
		select {
		case <-p.turn:
			p.turn = nil
		default: // it takes its place at the gate when its turn has come
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
	case <-p.job.Over():
	case <-ctx.Done():
		return false
	}
	return true
}

// jobOver says whether the pod's Job has failed.
func (p *pod) jobOver() bool {
	select {
	case <-p.job.Over():
		return true
	default:
		return false
	}
}

// failWithJob ends a pod whose Job has failed. One that has ended by itself stays as it is.
func (p *pod) failWithJob(ctx context.Context) {
	if p.begun || p.kept {
		p.again = false
		if err := p.look(ctx); err != nil {
			p.fault(ctx, err)
			return
		}
	}
	if !p.over {
		p.conclude(ctx, p.job.Verdict())
	}
}

// conclude ends the pod as failed by its Job, so that later runs know of it.
func (p *pod) conclude(ctx context.Context, v job.Verdict) {
	if !p.begun && !p.kept {
		p.giveUp(ctx, v.Reason, v.Message)
		return
	}
	p.decided = true
	err := p.r.rt.Fail(ctx, p.pod, v.Reason, v.Message)
	if err == nil {
		err = p.look(ctx)
	}
	if err != nil {
		p.r.o.Logger.WarnContext(ctx, "pod of a failed Job goes on", "pod", p.name(), "error", err)
	}
	if !p.over {
		p.giveUp(ctx, v.Reason, v.Message)
	}
}

// tryAgain says whether a pod that has ended is tried again, as the pod that its Job's
// controller would put in its place. If its Job does not allow that, it ends the pod.
func (p *pod) tryAgain(ctx context.Context) bool {
	if p.job == nil || p.decided || p.status.Phase != v1.PodFailed || p.job.Final(p.status) {
		return false
	}
	next := p.job.Failed(p.pod, p.status)
	if !next.Again {
		p.conclude(ctx, next.Verdict)
		return true
	}
	if most := p.r.o.Retry.Retries; p.tries >= most {
		p.view.Message += fmt.Sprintf(" (gave up after %d retries)", most)
		return false
	}
	p.failures = next.Failures
	p.again, p.due = true, time.Now().Add(next.After)
	text := fmt.Sprintf("in %s: %s", next.After, p.view.Message)
	p.view = goal.View{Reason: p.view.Reason, Message: "to be tried again " + text}
	p.r.progress(p.pod, "Retrying", text, 0)
	return true
}

// anew clears a pod that is to be tried again out of the way, so that the next Sync starts
// it with volumes, namespaces and containers of its own.
func (p *pod) anew(ctx context.Context) error {
	if !p.again {
		return nil
	}
	if err := p.r.rt.Stop(ctx, p.pod); err != nil {
		return fmt.Errorf("clearing pod %q to try it again: %w", p.pod.Name, err)
	}
	next := p.pod.DeepCopy()
	next.Annotations[podspec.AnnotationJobFailures] = strconv.Itoa(p.failures)
	p.tries++
	p.pod, p.again, p.due = next, false, time.Time{}
	p.restarts, p.status = map[string]int{}, v1.PodStatus{}
	return nil
}

// tooManyRestarts ends a pod whose Job allows no further restart of a container.
func (p *pod) tooManyRestarts(ctx context.Context) bool {
	n := 0
	for _, cs := range podspec.Statuses(p.status) {
		n += int(cs.RestartCount)
	}
	v, more := p.job.Restarts(p.pod.UID, n)
	if !more {
		p.conclude(ctx, v)
	}
	return !more
}
