package runonce

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
)

// tailLines is how many of a failed container's last lines go into the result.
const tailLines = 10

// finish fills in the results. A pod that was still on its way when the run was cut off
// is looked at once more, so that what is known is told.
func (r *run) finish(ctx, work context.Context) {
	cause := context.Cause(work)
	var wg sync.WaitGroup
	for _, p := range r.pods {
		wg.Go(func() {
			if cause != nil && !p.cond.ended && p.started() {
				look, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastLook)
				defer cancel()
				if err := p.look(look); err != nil {
					r.o.Logger.WarnContext(ctx, "state of the pod unknown", "pod", p.name(), "error", err)
				}
			}
			p.fill(cause)
			p.containers(ctx)
			if rt, ok := r.rt.(Annotator); ok && p.started() {
				p.res.Annotations = rt.Annotations(context.WithoutCancel(ctx), p.pod)
			}
		})
	}
	wg.Wait()
}

// Unplanned are the results of a run that ended before it was decided which of the pods may
// run: nothing was started.
func Unplanned(pods []*v1.Pod, outcome Outcome, why string, elapsed time.Duration) []Result {
	results := make([]Result, 0, len(pods))
	for _, pod := range pods {
		results = append(results, Result{
			Pod: pod, Outcome: outcome, Reason: "NotStarted", Message: why, Elapsed: elapsed,
			Status: v1.PodStatus{Phase: v1.PodPending},
		})
	}
	return results
}

// cutOff is the outcome of what was not finished when the run ended for the given cause.
func cutOff(cause error) Outcome {
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
	res.Restarts = p.restarted()
	res.Phases = p.r.o.Trace.of(p.pod.UID, p.r.o.Start)
	if p.begun {
		res.Attempts = 1 + p.retries + p.tries + res.Restarts
	}
	if p.by != nil {
		p.fillPreempted()
		return
	}
	if res.Outcome != "" {
		return
	}
	res.Outcome = cutOff(cause)
	res.Elapsed = p.r.since()
	switch {
	case !p.started():
		res.Reason, res.Message = "NotStarted", "the run ended before the pod was started"
	case p.err != nil && failure.RetryAfter(p.err) == 0:
		res.Reason, res.Message = reasonOf(p.err), p.err.Error()
	}
}

// fillPreempted tells of a pod that another run has preempted, however it ended.
func (p *pod) fillPreempted() {
	d := admit.PreemptedBy(p.pod, p.by)
	p.res.Outcome, p.res.Reason, p.res.Message, p.res.By = Preempted, d.Reason, d.Message, d.By
	st := d.Status()
	p.res.Status.Phase, p.res.Status.Reason, p.res.Status.Message = st.Phase, st.Reason, st.Message
	p.res.Status.Conditions = append(p.res.Status.Conditions, st.Conditions...)
}

// containers fills in the state of each container, and the last lines of those that
// failed.
func (p *pod) containers(ctx context.Context) {
	seen := map[string]v1.ContainerStatus{}
	for _, cs := range podspec.Statuses(p.status) {
		seen[cs.Name] = cs
	}
	for _, c := range podspec.Containers(p.pod) {
		cs := seen[c.Name]
		out := Container{Name: c.Name, Image: c.Image, State: "Waiting", Restarts: int(cs.RestartCount)}
		switch {
		case cs.State.Running != nil:
			out.State = "Running"
		case cs.State.Terminated != nil:
			out.State = "Terminated"
		}
		t := podspec.LastTermination(cs)
		if t != nil {
			out.ExitCode = &t.ExitCode
		}
		begun := cs.State.Running != nil || t != nil
		if p.r.o.Logs != nil && begun {
			instance := int(cs.RestartCount)
			out.LogPath = p.r.o.Logs.Path(p.pod, c.Name, instance)
			if t != nil && t.ExitCode != 0 && !p.success() {
				if cs.State.Running != nil {
					instance--
				}
				out.LogTail = p.tail(ctx, c.Name, instance)
			}
		}
		p.res.Containers = append(p.res.Containers, out)
	}
}

func (p *pod) success() bool {
	return p.res.Outcome == Running || p.res.Outcome == Ready || p.res.Outcome == Succeeded
}

func (p *pod) tail(ctx context.Context, container string, instance int) []string {
	lines, err := p.r.o.Logs.Tail(p.pod, container, max(0, instance), tailLines)
	if err != nil {
		p.r.o.Logger.WarnContext(ctx, "no log of the container", "pod", p.name(), "container", container, "error", err)
		return nil
	}
	return lines
}
