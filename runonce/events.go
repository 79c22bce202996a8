package runonce

import (
	"cmp"
	"context"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/podevent"
	"github.com/runonce/runonce/internal/podspec"
)

const (
	// maxEventLines is how many of a pod's events are told to people.
	maxEventLines = 5
	// maxRefused bounds for how many pods that do not start a run records why, since no more is kept of them.
	maxRefused = 100
)

// record has the runtime keep an event of the pod, if it keeps events.
func (r *run) record(pod *v1.Pod, eventType, reason, message string) {
	if rt, ok := r.rt.(Recorder); ok {
		rt.Record(pod, podevent.New(eventType, reason, "", message))
	}
}

// recordRefused records why the plan does not start pods. Those of earlier runs that it stops say so when they are
// stopped.
func (r *run) recordRefused(plan admit.Plan) {
	left := maxRefused
	for _, d := range plan.Decisions {
		refused := d.Verdict == admit.Rejected || d.Verdict == admit.Preempted && !d.Running
		if refused && left > 0 {
			left--
			r.recordDecision(d)
		}
	}
}

// recordDecision records that the pod does not run, in the kubelet's words.
func (r *run) recordDecision(d admit.Decision) {
	message := d.Message
	if by := podspec.FullName(d.By); by != "" { // whom the kubelet does not name
		message += " " + by
	}
	r.record(d.Pod, v1.EventTypeWarning, d.Reason, message)
}

// recordScheduled records, in the scheduler's words, that the run begins to start the pod.
func (p *pod) recordScheduled() {
	if p.scheduled {
		return
	}
	p.scheduled = true
	p.r.record(p.pod, v1.EventTypeNormal, podevent.ReasonScheduled, strings.TrimSuffix("Successfully assigned "+podspec.FullName(p.pod)+" to "+p.r.node, " to "))
}

// recordChange records what others mean for a pod that has not started.
func (p *pod) recordChange(old, c condition) {
	if old.reason == c.reason && old.outcome == c.outcome {
		return
	}
	switch {
	case c.outcome == "" && (c.reason == ReasonQueued || c.reason == reasonWaiting):
		p.r.record(p.pod, v1.EventTypeNormal, c.reason, c.message)
	case c.outcome == Rejected || c.outcome == Canceled && c.reason == ReasonDependencyFailed:
		p.r.record(p.pod, v1.EventTypeWarning, cmp.Or(c.reason, string(c.outcome)), c.message)
	}
}

// fillEvents fills in what has happened to the pod: for programs that want it, and for people if it is not where it
// should be.
func (p *pod) fillEvents(ctx context.Context) {
	rt, ok := p.r.rt.(Eventer)
	problem := p.started() && !p.res.Outcome.AtGoal() && p.res.Outcome != Canceled
	if !ok || !problem && !p.r.o.Events {
		return
	}
	all, err := rt.Events(ctx, p.pod)
	if err != nil {
		p.warn(ctx, "could not list the events of the pod", err)
		return
	}
	if p.res.Events = all; !problem {
		return
	}
	if _, own := rt.(Recorder); own {
		all = telling(all, p.res)
	}
	for _, e := range all[max(0, len(all)-maxEventLines):] {
		p.res.EventLines = append(p.res.EventLines, e.String())
	}
}

// fillRefused fills in the events of the pods that the plan does not start.
func (r *run) fillRefused(ctx context.Context, results []Result) {
	rt, ok := r.rt.(Eventer)
	if !ok || !r.o.Events {
		return
	}
	for i := range results {
		res := &results[i]
		if res.Events != nil || res.Outcome != Rejected && res.Outcome != Preempted {
			continue
		}
		var err error
		if res.Events, err = rt.Events(ctx, res.Pod); err != nil {
			r.o.Logger.WarnContext(ctx, "could not list the events of the pod", "pod", podspec.FullName(res.Pod), "error", err)
		}
	}
}

// repeating are the reasons of warnings that results say in other words: how containers have ended, that they are
// restarted, and what has become of the pod because of others.
var repeating = []string{"BackOff", "OOMKilling", podevent.ReasonPreempting, batchv1.JobReasonBackoffLimitExceeded}

// telling returns the warnings that say more about the pod than its result.
func telling(events []podevent.Event, res *Result) (all []podevent.Event) {
	said := res.Message + "\n" + res.Status.Message
	for _, e := range podevent.Warnings(events) {
		// The result of a probe, for example, is what comes after the first colon.
		_, detail, _ := strings.Cut(e.Message, ": ")
		switch {
		case e.Reason == res.Reason, slices.Contains(repeating, e.Reason):
		case strings.HasPrefix(e.Message, "Error: "): // after the event that says which
		case strings.Contains(said, e.Message), detail != "" && strings.Contains(said, detail):
		default:
			all = append(all, e)
		}
	}
	return all
}
