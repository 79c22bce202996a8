package runonce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
)

const (
	// tailLines is how many of a failed container's last lines go into the result.
	tailLines = 10
	// lastStatusTimeout limits what is asked about a pod after the run.
	lastStatusTimeout = 5 * time.Second
)

// finish fills in the results. cause is why the run was interrupted, nil if it was not; then
// the pods that have not ended are observed once more.
func (r *run) finish(ctx context.Context, cause error) {
	ctx = context.WithoutCancel(ctx)
	r.each(func(p *pod) {
		ctx, cancel := context.WithTimeout(ctx, lastStatusTimeout)
		defer cancel()
		if cause != nil && !p.cond.ended && p.started() {
			if err := p.observe(ctx); err != nil {
				p.warn(ctx, "unknown state of the pod", err)
			}
		}
		p.fill(cause)
		p.fillContainers(ctx)
		if rt, ok := r.rt.(Annotator); ok && p.started() {
			p.res.Annotations = rt.Annotations(ctx, p.pod)
		}
		p.fillEvents(ctx)
	})
}

// fillEvents fills in what has happened to a pod that is not where it should be.
func (p *pod) fillEvents(ctx context.Context) {
	rt, ok := p.r.rt.(Eventer)
	if !ok || !p.started() || p.res.Outcome.AtGoal() || p.res.Outcome == Canceled {
		return
	}
	var err error
	if p.res.Events, err = rt.Events(ctx, p.pod); err != nil {
		p.warn(ctx, "the events of the pod are unknown", err)
	}
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
	res.Status, res.Existed = p.status, p.kept
	res.Status.Phase = cmp.Or(res.Status.Phase, v1.PodPending)
	res.Outcome, res.Reason, res.Message = p.cond.outcome, p.cond.reason, p.cond.message
	res.Restarts = p.history.restarts(p.status)
	res.Phases = p.r.o.Trace.of(p.pod.UID, p.r.o.Start)
	if p.synced {
		res.Attempts = p.attempts()
	}
	switch {
	case p.preemptor != nil:
		p.fillPreempted()
	case res.Outcome == "":
		p.fillInterrupted(cause)
	}
	if p.ofEarlierRun() {
		p.fillEarlier(time.Now())
	}
}

// attempts is how often this run has tried to start the pod, or to start it again.
func (p *pod) attempts() int {
	n := p.retries + p.jobRetries + p.res.Restarts
	switch {
	case !p.kept:
		return n + 1
	case p.err == nil && p.history.unchanged(p.status):
		return n
	}
	return max(n, 1)
}

// fillInterrupted fills in the result of a pod that had not reached its goal when the run was
// interrupted.
func (p *pod) fillInterrupted(cause error) {
	res := p.res
	res.Outcome = interrupted(cause)
	res.Elapsed = time.Since(p.r.o.Start)
	switch {
	case isFailFast(cause):
		res.Reason, res.Message = ReasonFailFast, cause.Error()
	case !p.started():
		res.Reason, res.Message = "NotStarted", "the run ended before the pod was started"
	case p.pulling:
		res.Reason, res.Message = "Pulling", "the run ended while the images of the pod were being pulled"
	case p.cut != nil:
		res.Message += "; interrupted: " + p.cut.Error()
	case p.err != nil && failure.RetryAfter(p.err) == 0:
		res.Reason, res.Message = failure.Reason(p.err, reasonSyncError), p.err.Error()
	}
}

// ofEarlierRun says whether an earlier run has started all of the pod, and this one nothing.
func (p *pod) ofEarlierRun() bool {
	return p.kept && p.history != nil && p.attempts() == 0 && p.preemptor == nil
}

// fillEarlier says so.
func (p *pod) fillEarlier(now time.Time) {
	res := p.res
	res.EarlierRun = true
	if p.found {
		res.Elapsed = 0
	}
	text := "from an earlier run"
	switch {
	case p.cond.ended:
		if res.Finished = lastEnd(p.status); !res.Finished.IsZero() {
			text += ", finished " + duration.HumanDuration(now.Sub(res.Finished)) + " ago"
		}
		if res.Outcome == Succeeded {
			text += "; --rerun runs it again"
		}
	case p.status.StartTime != nil:
		text += ", started " + duration.HumanDuration(now.Sub(p.status.StartTime.Time)) + " ago"
	}
	if res.Message != "" {
		text = res.Message + "; " + text
	}
	res.Message = text
}

// lastEnd is when the last container of the pod ended.
func lastEnd(st v1.PodStatus) time.Time {
	var last time.Time
	for _, cs := range podspec.Statuses(st) {
		if t := podspec.LastTermination(cs); t != nil && t.FinishedAt.After(last) {
			last = t.FinishedAt.Time
		}
	}
	return last
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
	p.res.Containers = nil
	statuses := podspec.Statuses(p.status)
	var digests map[string]string
	if rt, ok := p.r.rt.(Digester); ok && len(statuses) > 0 {
		digests = rt.Digests(ctx, p.pod)
	}
	for _, c := range podspec.Containers(p.pod) {
		cs := statusOf(statuses, c.Name)
		out := Container{Name: c.Name, Image: c.Image, Restarts: int(cs.RestartCount), ImageID: cs.ImageID, Digest: digests[c.Name]}
		if _, digest, ok := strings.Cut(cs.ImageID, "@"); ok && out.Digest == "" {
			out.Digest = digest // of a cluster
		}
		out.State, out.ExitCode = podspec.ContainerState(cs)
		if p.r.o.Logs != nil && (cs.State.Running != nil || out.ExitCode != nil) {
			p.fillLog(ctx, &out, cs)
		}
		p.res.Containers = append(p.res.Containers, out)
	}
}

// fillLog fills in where the container's log is, and its last lines if the container has
// failed its pod or the run wants those of all.
func (p *pod) fillLog(ctx context.Context, c *Container, cs v1.ContainerStatus) {
	logs := p.r.o.Logs
	c.LogPath = logs.Path(p.pod, c.Name, cs.ContainerID)
	var err error
	if c.ExitCode != nil && *c.ExitCode != 0 && !p.res.Outcome.AtGoal() {
		c.LogTail, err = logs.Tail(logs.Path(p.pod, c.Name, podspec.LastTermination(cs).ContainerID), tailLines)
	}
	if len(c.LogTail) == 0 && p.r.o.Outputs && err == nil {
		c.Output, err = logs.Tail(c.LogPath, tailLines)
	}
	if err != nil {
		p.warn(ctx, fmt.Sprintf("cannot read the log of container %q", c.Name), err)
	}
}
