package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runonce"
)

// What the table calls a pod of which nothing runs, although its phase is Running or Pending: by those,
// the Kubernetes API promises that its containers will be started, and nobody does that.
const (
	phaseExited     = "Exited"
	phaseNotStarted = "NotStarted"
)

// reasonBackOff is the reason of a container that waits to be restarted.
const reasonBackOff = "CrashLoopBackOff"

// abandoned says that nobody restarts the containers of the pod: its run has ended, or has given it up.
func (p *Pod) abandoned() bool { return !p.Watched || p.Outcome == runonce.Failed }

// phase is the phase as a person understands it.
func (p *Pod) phase() string {
	switch {
	case p.NeverStarted:
		return phaseNotStarted
	case podspec.Runs(p.Status) || !p.abandoned():
	case p.Phase == v1.PodRunning:
		return phaseExited
	case p.Phase == v1.PodPending:
		return phaseNotStarted
	}
	return string(p.Phase)
}

// outcome is what the last run has decided, unless the pod was running then and has ended since.
func (p *Pod) outcome() string {
	if podspec.Ended(p.Phase) && (p.Outcome == runonce.Running || p.Outcome == runonce.Ready) {
		return ""
	}
	return string(p.Outcome)
}

// containerState returns a container's state, and why it waits or how it ended. Nobody restarts a
// container of an abandoned pod, whatever its back-off was.
func (p *Pod) containerState(c *PodContainer) (state, reason string) {
	if c.Reason == reasonBackOff && c.ExitCode != nil && (p.abandoned() || podspec.Ended(p.Phase)) {
		return "Terminated", c.ExitReason
	}
	return c.State, c.Reason
}

// exitText is the exit code of the container, and that it was OOM-killed unless the reason beside it
// says so; empty if it never ended.
func (c *PodContainer) exitText(reason string) string {
	switch {
	case c.ExitCode == nil:
		return ""
	case reason == c.ExitReason:
		return exitText(*c.ExitCode, "")
	}
	return exitText(*c.ExitCode, c.ExitReason)
}

// exitCodes are those of the containers, except of init containers that have completed, and of the
// sidecars of a pod that has succeeded.
func (p *Pod) exitCodes(reason string) string {
	var codes []string
	for i := range p.Containers {
		c := &p.Containers[i]
		switch {
		case c.ExitCode == nil:
		case c.Sidecar && p.Phase == v1.PodSucceeded:
		case c.Init && *c.ExitCode == 0 && c.ExitReason != podspec.ReasonOOMKilled:
		default:
			codes = append(codes, c.Name+"="+c.exitText(reason))
		}
	}
	return strings.Join(codes, ",")
}

// why returns why the pod is not where it should be, or what else there is to say of it: as its status
// says, or the last run if that has given it up, or its containers.
func (p *Pod) why() (reason, message string) {
	reason = p.containerReason()
	switch {
	case p.NeverStarted:
		return p.OutcomeReason, p.state.Message
	case p.Reason != "":
		return p.Reason, p.Status.Message
	case p.gaveUp(), reason == "" && !p.Outcome.AtGoal() && !p.well():
		return p.OutcomeReason, p.state.Message
	case reason != "" && reason == p.OutcomeReason:
		message = p.state.Message
	}
	return reason, message
}

// gaveUp says that the last run has found that the pod has failed, for a reason that its status does not
// have.
func (p *Pod) gaveUp() bool {
	return p.Outcome == runonce.Failed && p.Phase != v1.PodSucceeded && p.Reason == ""
}

// containerReason is why the first container does not run. Init containers that have completed do
// not count, nor the end of sidecars of a pod that has ended.
func (p *Pod) containerReason() string {
	for i := range p.Containers {
		c := &p.Containers[i]
		state, reason := p.containerState(c)
		switch {
		case state == "Running", reason == "Completed":
		case c.Sidecar && podspec.Ended(p.Phase):
		case c.Init && reason == "PodInitializing":
		default:
			return reason
		}
	}
	return ""
}

// well says whether the pod has succeeded, or all of it runs that should.
func (p *Pod) well() bool {
	if p.Phase != v1.PodRunning {
		return p.Phase == v1.PodSucceeded
	}
	return !slices.ContainsFunc(p.Status.ContainerStatuses, func(cs v1.ContainerStatus) bool {
		t, def := cs.State.Terminated, podspec.Container(p.state.Pod, cs.Name)
		done := t != nil && t.ExitCode == 0 && def != nil && !podspec.Restarts(p.state.Pod, def, t)
		return !cs.Ready && !done
	})
}

// decision is what the last run has decided, and when, or else the message of the status.
func (p *Pod) decision(now time.Time) string {
	if p.Outcome == "" {
		return p.Status.Message
	}
	text := string(p.Outcome) + " " + ago(now, p.DecidedAt.Time)
	return join(": ", text, p.OutcomeReason, messageOf(p.OutcomeReason, p.state.Message, ""))
}

// details returns what else there is to say of a pod after its message.
func (p *Pod) details() []string {
	var lines []string
	if m := strings.TrimSpace(p.Status.Message); m != "" && p.Outcome != "" && !strings.Contains(p.state.Message, m) {
		lines = append(lines, m)
	}
	for i, cs := range podspec.Statuses(p.Status) {
		w := cs.State.Waiting
		_, reason := p.containerState(&p.Containers[i])
		if w != nil && w.Message != "" && reason == w.Reason && !strings.Contains(p.state.Message, w.Message) {
			lines = append(lines, fmt.Sprintf("container %q is waiting: %s: %s", cs.Name, w.Reason, w.Message))
		}
	}
	if text := p.hook(); text != "" {
		lines = append(lines, text)
	}
	return append(lines, logLines(p.state.Containers, func(*runonce.Container) bool { return true })...)
}

// hook says of a pod which waits for a postStart hook that it runs nevertheless, "" of others.
func (p *Pod) hook() string {
	if !slices.ContainsFunc(podspec.Statuses(p.Status), podspec.AwaitsPostStart) {
		return ""
	}
	all, running := p.Status.ContainerStatuses, 0
	for _, cs := range all {
		if podspec.IsRunning(cs) {
			running++
		}
	}
	return fmt.Sprintf("%d/%d containers run; the next run runs the postStart hook again", running, len(all))
}
