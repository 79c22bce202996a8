package runonce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
)

const (
	// tailLines is how many of a failed container's last lines go into the result.
	tailLines = 10
	// lastStatusTimeout limits getting the status of a pod after the run was interrupted.
	lastStatusTimeout = 10 * time.Second
)

// finish fills in the results. cause is why the run was interrupted, nil if it was not; then
// the pods that have not ended are observed once more.
func (r *run) finish(ctx context.Context, cause error) {
	ctx = context.WithoutCancel(ctx)
	r.each(func(p *pod) {
		if cause != nil && !p.cond.ended && p.started() {
			limited, cancel := context.WithTimeout(ctx, lastStatusTimeout)
			defer cancel()
			if err := p.observe(limited); err != nil {
				p.warn(ctx, "unknown state of the pod", err)
			}
		}
		p.fill(cause)
		p.fillContainers(ctx)
		if rt, ok := r.rt.(Annotator); ok && p.started() {
			p.res.Annotations = rt.Annotations(ctx, p.pod)
		}
	})
}

// NotStarted returns the results of a run that ended, for the given cause, before there was
// a plan.
func NotStarted(pods []*v1.Pod, cause error, elapsed time.Duration) []Result {
	results := make([]Result, 0, len(pods))
	for _, pod := range pods {
		results = append(results, Result{
			Pod: pod, Outcome: interrupted(cause), Reason: "NotStarted", Message: cause.Error(), Elapsed: elapsed,
			Status: v1.PodStatus{Phase: v1.PodPending},
		})
	}
	return results
}

// interrupted is the outcome of a pod that was not done when the run ended for the given cause.
func interrupted(cause error) Outcome {
	if errors.Is(cause, errTimeout) || errors.Is(cause, context.DeadlineExceeded) {
		return TimedOut
	}
	return Canceled
}

func (p *pod) fill(cause error) {
	res := p.res
	res.Status = p.status
	res.Status.Phase = cmp.Or(res.Status.Phase, v1.PodPending)
	res.Outcome, res.Reason, res.Message = p.cond.outcome, p.cond.reason, p.cond.message
	res.Restarts = p.restarts()
	res.Phases = p.r.o.Trace.of(p.pod.UID, p.r.o.Start)
	if p.synced {
		res.Attempts = 1 + p.retries + p.jobRetries + res.Restarts
	}
	if p.preemptor != nil {
		p.fillPreempted()
		return
	}
	if res.Outcome != "" {
		return
	}
	res.Outcome = interrupted(cause)
	res.Elapsed = time.Since(p.r.o.Start)
	switch {
	case !p.started():
		res.Reason, res.Message = "NotStarted", "the run ended before the pod was started"
	case p.err != nil && failure.RetryAfter(p.err) == 0:
		res.Reason, res.Message = failure.Reason(p.err, reasonSyncError), p.err.Error()
	}
}

// fillPreempted fills in the result of a pod that another run has preempted.
func (p *pod) fillPreempted() {
	d := admit.PreemptedBy(p.pod, p.preemptor)
	p.res.Outcome, p.res.Reason, p.res.Message, p.res.By = Preempted, d.Reason, d.Message, d.By
	st := d.Status()
	p.res.Status.Phase, p.res.Status.Reason, p.res.Status.Message = st.Phase, st.Reason, st.Message
	p.res.Status.Conditions = append(p.res.Status.Conditions, st.Conditions...)
}

// fillContainers fills in the state of each container.
func (p *pod) fillContainers(ctx context.Context) {
	statuses := podspec.Statuses(p.status)
	for _, c := range podspec.Containers(p.pod) {
		cs := statusOf(statuses, c.Name)
		out := Container{Name: c.Name, Image: c.Image, State: "Waiting", Restarts: int(cs.RestartCount)}
		switch {
		case cs.State.Running != nil:
			out.State = "Running"
		case cs.State.Terminated != nil:
			out.State = "Terminated"
		}
		if t := podspec.LastTermination(cs); t != nil {
			out.ExitCode = &t.ExitCode
		}
		if p.r.o.Logs != nil && (cs.State.Running != nil || out.ExitCode != nil) {
			p.fillLog(ctx, &out, cs)
		}
		p.res.Containers = append(p.res.Containers, out)
	}
}

// fillLog fills in where the container's log is, and its last lines if the container has
// failed its pod.
func (p *pod) fillLog(ctx context.Context, c *Container, cs v1.ContainerStatus) {
	logs := p.r.o.Logs
	c.LogPath = logs.Path(p.pod, cs.ContainerID)
	succeeded := p.res.Outcome == Running || p.res.Outcome == Ready || p.res.Outcome == Succeeded
	if c.ExitCode == nil || *c.ExitCode == 0 || succeeded {
		return
	}
	var err error
	if c.LogTail, err = logs.Tail(logs.Path(p.pod, podspec.LastTermination(cs).ContainerID), tailLines); err != nil {
		p.warn(ctx, fmt.Sprintf("cannot read the log of container %q", c.Name), err)
	}
}
