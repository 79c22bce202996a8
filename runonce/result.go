package runonce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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
	since, unknown := r.refresh(ctx)
	r.each(func(p *pod) {
		ctx, cancel := context.WithTimeout(ctx, lastStatusTimeout)
		defer cancel()
		if cause != nil && !p.cond.ended && p.started() {
			if err := p.observe(ctx); err != nil {
				p.warn(ctx, "could not read the state of the pod", err)
			}
		}
		p.fill(cause)
		if unknown != nil && !p.cond.ended && p.started() {
			p.fillUnknown(since, unknown)
		}
		if cause != nil || !r.isOver() {
			p.conclude(ctx, p.res.Outcome, p.res.Reason, p.res.Message)
		} // else another plan has replaced this one, and decides
		if p.ofEarlierRun() {
			p.fillEarlier(time.Now())
		}
		p.fillContainers(ctx)
		if rt, ok := r.rt.(Annotator); ok && p.started() {
			p.res.Annotations = rt.Annotations(ctx, p.pod)
		}
		if unknown == nil {
			p.fillEvents(ctx)
		}
	})
	r.fillCauses()
}

// refresh has a runtime that knows its pods from elsewhere ask for their last status, if it is of use. Its error says
// why they are not known, and since when.
func (r *run) refresh(ctx context.Context) (since time.Time, err error) {
	rt, ok := r.rt.(Refresher)
	if !ok || !slices.ContainsFunc(r.pods, func(p *pod) bool { return !p.cond.ended && p.started() }) {
		return time.Time{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lastStatusTimeout)
	defer cancel()
	return rt.Refresh(ctx)
}

// fillUnknown fills in the result of a pod whose state is not known any more.
func (p *pod) fillUnknown(since time.Time, err error) {
	res := p.res
	last := cmp.Or(res.Message, "the pod was "+string(res.Outcome))
	if res.Outcome.AtGoal() {
		res.Outcome, last = Failed, "the pod was "+string(res.Outcome)
	}
	res.Status.Phase = v1.PodUnknown
	res.Reason, res.Message = reasonUnknown, fmt.Sprintf("the state of the pod is unknown since %s: %v; last seen: %s", since.Format(time.TimeOnly), err, last)
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

func (p *pod) fill(cause error) {
	res := p.res
	res.Status = p.status
	res.Status.Phase = cmp.Or(res.Status.Phase, v1.PodPending)
	res.Outcome, res.Reason, res.Message = p.cond.outcome, p.cond.reason, p.cond.message
	res.Restarts = p.history.restarts(p.status)
	res.Phases = p.r.o.Trace.of(p.pod.UID, p.r.o.Start)
	if p.begun() {
		res.Attempts = p.attempts()
	}
	switch {
	case p.preemptor != nil:
		p.fillPreempted()
	case res.Outcome == Rejected && p.admission != nil && p.admission.rejected != nil:
		res.Status = p.admission.rejected.Status()
	case res.Outcome == "":
		p.fillInterrupted(cause)
	}
}

// conclude has the runtime keep the outcome for later commands, unless it has it already.
func (p *pod) conclude(ctx context.Context, outcome Outcome, reason, message string) {
	rt, ok := p.r.rt.(Concluder)
	var now condition
	if outcome != "" {
		now = condition{outcome: outcome, reason: reason, message: message}
	}
	if !ok || !p.started() || p.recorded == now {
		return
	}
	p.recorded = now
	if err := rt.Conclude(ctx, p.pod, string(now.outcome), now.reason, now.message); err != nil {
		p.warn(ctx, "could not record the outcome of the pod", err)
	}
}

// attempts is how often this run has tried to start the pod, or to start it again.
func (p *pod) attempts() int {
	n := p.retries + p.res.Restarts
	switch {
	case !p.res.Existed:
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
		if c := p.gates.verdict(); c.message != "" {
			res.Message += ": " + c.message
		}
	case p.stage == pulling:
		res.Reason, res.Message = "Pulling", "the run ended while the images of the pod were being pulled"
	case p.cut != nil:
		res.Message += "; interrupted: " + p.cut.Error()
	case p.err != nil && failure.RetryAfter(p.err) == 0:
		res.Reason, res.Message = failure.Reason(p.err, reasonSyncError), p.err.Error()
	}
}

// ofEarlierRun says whether an earlier run has started all of the pod, and this one nothing.
func (p *pod) ofEarlierRun() bool {
	return p.res.Existed && p.history != nil && p.attempts() == 0 && p.preemptor == nil
}

// fillEarlier says so.
func (p *pod) fillEarlier(now time.Time) {
	res := p.res
	res.EarlierRun = true
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
		out := newContainer(c, cs)
		out.Digest = digests[c.Name]
		if _, digest, ok := strings.Cut(cs.ImageID, "@"); ok && out.Digest == "" {
			out.Digest = digest // of a cluster
		}
		if logs := p.r.o.Logs; logs != nil {
			err := out.findLog(logs, p.pod, cs, !p.res.Outcome.AtGoal())
			if p.r.o.Outputs && err == nil {
				err = out.ReadOutput(logs)
			}
			if err != nil {
				p.warn(ctx, fmt.Sprintf("could not read the log of container %q", c.Name), err)
			}
		}
		p.res.Containers = append(p.res.Containers, out)
		// The OCI runtime has said in the log, and nowhere else, that the program cannot be run.
		if len(out.LogTail) == 1 {
			if advice := failure.ExecAdvice(out.LogTail[0]); advice != "" {
				p.res.Message += fmt.Sprintf("; container %q: %s", c.Name, advice)
			}
		}
	}
	if len(statuses) > 0 {
		AddUsage(ctx, p.r.rt, p.pod, p.res.Containers)
	}
}

// AddUsage fills in what the containers of the pod have used, if from, a Runtime or an Observer, is a Totaler.
func AddUsage(ctx context.Context, from any, pod *v1.Pod, containers []Container) {
	rt, ok := from.(Totaler)
	if !ok {
		return
	}
	totals := rt.Totals(ctx, pod)
	for i := range containers {
		containers[i].Usage = totals[containers[i].Name]
	}
}

// ReadOutput reads the end of the log, if it has one that was not read yet.
func (c *Container) ReadOutput(logs Logs) (err error) {
	if len(c.LogTail) == 0 && c.LogPath != "" {
		c.Output, err = logs.Tail(c.LogPath, tailLines)
	}
	return err
}

// Containers returns the state of each container of a pod with its status, and where the logs are.
// With tails they have the last lines of the logs of those that have ended badly; an error says which
// of them cannot be read.
func Containers(pod *v1.Pod, logs Logs, tails bool) ([]Container, error) {
	defs := podspec.Containers(pod)
	all := make([]Container, 0, len(defs))
	var errs []error
	for _, c := range defs {
		cs := statusOf(podspec.Statuses(pod.Status), c.Name)
		one := newContainer(c, cs)
		if err := one.findLog(logs, pod, cs, tails); err != nil {
			errs = append(errs, fmt.Errorf("reading the log of container %q of pod %q: %w", c.Name, pod.Name, err))
		}
		all = append(all, one)
	}
	return all, errors.Join(errs...)
}

func newContainer(c *v1.Container, cs v1.ContainerStatus) Container {
	out := Container{Name: c.Name, Image: c.Image, ImageID: cs.ImageID, Restarts: int(cs.RestartCount)}
	out.State, out.ExitCode = podspec.ContainerState(cs)
	if end := podspec.LastTermination(cs); end != nil {
		out.ExitReason = end.Reason
	}
	return out
}

// findLog fills in where the container's log is, if it has run, and with tail its last lines if it has
// ended badly. Path, lines and exit code are those of one instance.
func (c *Container) findLog(logs Logs, pod *v1.Pod, cs v1.ContainerStatus, tail bool) (err error) {
	if cs.ContainerID == "" {
		return nil
	}
	if tail = tail && c.EndedBadly(); !tail {
		c.LogPath = logs.Path(pod, c.Name, cs.ContainerID)
		return nil
	}
	c.LogPath = logs.Path(pod, c.Name, podspec.LastTermination(cs).ContainerID)
	c.LogTail, err = logs.Tail(c.LogPath, tailLines)
	return err
}
