package runonce

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// Until is the goal of a run.
type Until string

// The goals. UntilRunning: every container is running, or has exited with code 0 and is not
// restarted. UntilReady: its probes have passed as well. UntilCompleted: Never and OnFailure
// pods have ended, Always pods are ready.
const (
	UntilRunning   Until = "running"
	UntilReady     Until = "ready"
	UntilCompleted Until = "completed"
)

// goal is what the run waits for.
type goal struct {
	until Until
	// settle is how long a container must have run to count as running, 0 if it counts at once.
	settle time.Duration
}

// condition is how far a pod is from its goal, by its status.
type condition struct {
	outcome Outcome // Running, Ready, Succeeded or Failed; empty before the goal is reached
	ended   bool    // the outcome is final
	reason  string  // of a failure, or of waiting
	message string
	recheck time.Duration // when to judge again although nothing changes; 0 for never
}

// of returns the goal of one pod: UntilCompleted waits for the end of the pods that can end,
// and for the others to be ready.
func (g goal) of(pod *v1.Pod) Until {
	endless := func(c v1.Container) bool { return isEndless(pod, &c) }
	if g.until == UntilCompleted && slices.ContainsFunc(pod.Spec.Containers, endless) {
		return UntilReady
	}
	return g.until
}

// isEndless says whether the container is restarted however it ends.
func isEndless(pod *v1.Pod, c *v1.Container) bool {
	return podspec.RestartPolicy(pod, c) == v1.RestartPolicyAlways
}

// judge returns the condition of a pod.
func (g goal) judge(pod *v1.Pod, st v1.PodStatus, h history, now time.Time) condition {
	switch st.Phase {
	case v1.PodSucceeded:
		return condition{outcome: Succeeded, ended: true, reason: st.Reason, message: st.Message}
	case v1.PodFailed:
		return failedCondition(pod, st)
	case v1.PodPending, v1.PodRunning, v1.PodUnknown:
	}
	if c, ok := failedForGood(pod, st); ok && g.of(pod) != UntilCompleted {
		return c
	}
	if c := podspec.Condition(st, v1.PodScheduled); c.Status == v1.ConditionFalse {
		return condition{reason: cmp.Or(c.Reason, v1.PodReasonUnschedulable), message: c.Message}
	}
	if c, ok := initializing(pod, st); ok {
		return c
	}
	c := g.judgeContainers(pod, st)
	if c.outcome != "" {
		if settling, ok := g.settling(pod, st, h, now); ok {
			return settling
		}
	}
	return c
}

// settling finds a container that has not run for long enough yet: for as long as the goal asks,
// unless a probe proves that it works; if it has crashed in this run, for longer than any of its
// instances has lived in it.
func (g goal) settling(pod *v1.Pod, st v1.PodStatus, h history, now time.Time) (condition, bool) {
	if g.settle == 0 {
		return condition{}, false
	}
	for _, c := range podspec.Lasting(pod) {
		cs := statusOf(podspec.Statuses(st), c.Name)
		if cs.State.Running == nil {
			continue
		}
		need, text := g.settle, "has started"
		if h.crashes(cs) > 0 {
			need, text = h[c.Name].longest+g.settle, "was restarted"
		} else if proven(c, cs) {
			continue
		}
		ran := now.Sub(cs.State.Running.StartedAt.Time)
		if i := h[c.Name]; ran < 0 && !i.seen.IsZero() {
			ran = now.Sub(i.seen) // the clock was set back
		}
		if left := need - ran; left > 0 {
			return condition{
				reason: "Settling", message: fmt.Sprintf("container %q %s, settling for %s", c.Name, text, need.Round(time.Millisecond)),
				recheck: min(left, need),
			}, true
		}
	}
	return condition{}, false
}

// proven says whether a probe has shown that the running container works.
func proven(c *v1.Container, cs v1.ContainerStatus) bool {
	return c.StartupProbe != nil && cs.Started != nil && *cs.Started || c.ReadinessProbe != nil && cs.Ready
}

// judgeContainers judges an initialized pod by its sidecars and containers.
func (g goal) judgeContainers(pod *v1.Pod, st v1.PodStatus) condition {
	until := g.of(pod)
	done := 0
	var left []string // those that run and can end
	for _, c := range podspec.Lasting(pod) {
		cs := statusOf(podspec.Statuses(st), c.Name)
		if finished(pod, c, cs) {
			done++
			continue
		}
		if waiting, ok := waitsFor(st, cs, until); ok {
			return waiting
		}
		if !isEndless(pod, c) {
			left = append(left, strconv.Quote(c.Name))
		}
	}
	switch {
	case g.until == UntilCompleted && len(left) > 0:
		return condition{reason: "PodNotCompleted", message: "still running: " + strings.Join(left, ", ")}
	case done == len(pod.Spec.Containers):
		return condition{reason: "PodNotCompleted", message: "every container has exited with code 0; the pod has not ended yet"}
	case until == UntilRunning:
		return condition{outcome: Running}
	}
	// A pod may be not ready although all its containers are.
	if ready := podspec.Condition(st, v1.PodReady); done == 0 && ready.Status != v1.ConditionTrue {
		return condition{reason: cmp.Or(ready.Reason, "PodNotReady"), message: cmp.Or(ready.Message, "the pod is not ready")}
	}
	return condition{outcome: Ready}
}

// initializing finds the first init container that is not done.
func initializing(pod *v1.Pod, st v1.PodStatus) (condition, bool) {
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		cs := statusOf(st.InitContainerStatuses, c.Name)
		sidecar := podspec.IsSidecar(c)
		switch {
		case sidecar && cs.State.Running != nil && (cs.Started == nil || *cs.Started):
			continue
		case !sidecar && cs.State.Terminated != nil && cs.State.Terminated.ExitCode == 0:
			continue
		case !sidecar && laterStarted(pod, st, i):
			continue // its record may have been removed after the next one started
		}
		state := "has not ended yet"
		if sidecar {
			state = "has not started up"
		}
		return waitingFor("init container", cs, state, probeMessage(st)), true
	}
	return condition{}, false
}

// laterStarted says whether a container that comes after the i-th init container was started.
func laterStarted(pod *v1.Pod, st v1.PodStatus, i int) bool {
	started := func(cs v1.ContainerStatus) bool { return cs.State.Running != nil || cs.State.Terminated != nil }
	return slices.ContainsFunc(st.ContainerStatuses, started) ||
		slices.ContainsFunc(pod.Spec.InitContainers[i+1:], func(c v1.Container) bool {
			return started(statusOf(st.InitContainerStatuses, c.Name))
		})
}

// waitsFor says whether the container keeps its pod from the goal.
func waitsFor(st v1.PodStatus, cs v1.ContainerStatus, until Until) (condition, bool) {
	if cs.State.Running == nil {
		return waitingFor("container", cs, "", probeMessage(st)), true
	}
	if until == UntilReady && !cs.Ready {
		return waitingFor("container", cs, "is running but not ready", probeMessage(st)), true
	}
	return condition{}, false
}

// probeMessage returns the last message of the probes, after ": ", or "". In the condition it
// follows the kubelet's message, if there is one.
func probeMessage(st v1.PodStatus) string {
	c := podspec.Condition(st, v1.ContainersReady)
	message := c.Message
	if c.Reason != "PodFailed" {
		_, message, _ = strings.Cut(c.Message, "; ")
	}
	if message != "" {
		message = ": " + message
	}
	return message
}

// waitingFor describes a container that the pod waits for. state is what to say of one that is
// running, and probe is the message of its probes.
func waitingFor(kind string, cs v1.ContainerStatus, state, probe string) condition {
	reason := "ContainersNotReady"
	if kind == "init container" {
		reason = "PodInitializing"
	}
	name := fmt.Sprintf("%s %q", kind, cs.Name)
	switch {
	case cs.State.Running != nil && state != "":
		return condition{reason: reason, message: name + " " + state + probe}
	case cs.State.Terminated != nil:
		t := cs.State.Terminated
		return condition{reason: cmp.Or(t.Reason, "Error"), message: name + " " + ending(t) + probe}
	case cs.State.Waiting != nil && cs.State.Waiting.Reason != "":
		w := cs.State.Waiting
		text := fmt.Sprintf("%s is waiting: %s", name, w.Reason)
		if w.Message != "" {
			text += ": " + w.Message
		}
		if last := cs.LastTerminationState.Terminated; last != nil {
			text += "; before that it " + ending(last) + probe
		}
		return condition{reason: w.Reason, message: text}
	}
	return condition{reason: "ContainerCreating", message: name + " has not been started"}
}

// failedCondition describes a failed pod by the container that failed first.
func failedCondition(pod *v1.Pod, st v1.PodStatus) condition {
	reason, message := st.Reason, st.Message
	if kind, cs := firstFailed(pod, st); cs != nil {
		t := cs.State.Terminated
		reason = cmp.Or(reason, t.Reason)
		if message != "" {
			message += "; "
		}
		message += fmt.Sprintf("%s %q %s%s", kind, cs.Name, ending(t), probeMessage(st))
	}
	c := failed(cmp.Or(reason, "Error"), message)
	switch d := podspec.Condition(st, v1.DisruptionTarget); {
	case st.Reason == podspec.ReasonFailureIgnored:
		c.outcome = Succeeded
	case d.Status == v1.ConditionTrue && d.Reason == v1.PodReasonPreemptionByScheduler:
		c.outcome, c.reason, c.message = Preempted, d.Reason, d.Message
	case strings.HasPrefix(st.Message, rejectedByKubelet):
		c.outcome, c.message = Rejected, strings.TrimPrefix(st.Message, rejectedByKubelet)
	}
	return c
}

// rejectedByKubelet begins the message of a pod that a kubelet has not admitted
// (pkg/kubelet.rejectPod).
const rejectedByKubelet = "Pod was rejected: "

// firstFailed returns the failed container that ended first, init containers before others.
func firstFailed(pod *v1.Pod, st v1.PodStatus) (kind string, cs *v1.ContainerStatus) {
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		s := statusOf(st.InitContainerStatuses, c.Name)
		if s.State.Terminated != nil && s.State.Terminated.ExitCode != 0 && !podspec.IsSidecar(c) {
			return "init container", &s
		}
	}
	for i := range st.ContainerStatuses {
		t := st.ContainerStatuses[i].State.Terminated
		if t == nil || t.ExitCode == 0 {
			continue
		}
		if cs == nil || t.FinishedAt.Time.Before(cs.State.Terminated.FinishedAt.Time) {
			cs = &st.ContainerStatuses[i]
		}
	}
	return "container", cs
}

// failedForGood finds a container that has failed and is not restarted while others of its pod
// still run. A pod of which only sidecars run is about to end by itself.
func failedForGood(pod *v1.Pod, st v1.PodStatus) (condition, bool) {
	if !slices.ContainsFunc(st.ContainerStatuses, func(cs v1.ContainerStatus) bool { return cs.State.Terminated == nil }) {
		return condition{}, false
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		t := statusOf(st.ContainerStatuses, c.Name).State.Terminated
		if t != nil && t.ExitCode != 0 && !podspec.Restarts(pod, c, t.ExitCode) {
			return failedCondition(pod, st), true
		}
	}
	return condition{}, false
}

// finished says whether the container has exited with code 0 and is not restarted.
func finished(pod *v1.Pod, c *v1.Container, cs v1.ContainerStatus) bool {
	t := cs.State.Terminated
	return t != nil && t.ExitCode == 0 && !podspec.Restarts(pod, c, 0)
}

// ending describes how a container ended.
func ending(t *v1.ContainerStateTerminated) string {
	if t.Reason == "StartError" {
		return "could not be started: " + strings.TrimSpace(t.Message)
	}
	text := fmt.Sprintf("exited with code %d", t.ExitCode)
	if t.Reason != "" && t.Reason != "Error" && t.Reason != "Completed" {
		text += " (" + t.Reason + ")"
	}
	if message := strings.TrimSpace(t.Message); message != "" {
		text += ": " + message
	}
	return text
}

// statusOf returns the status of a container, with only its name if it has none.
func statusOf(all []v1.ContainerStatus, name string) v1.ContainerStatus {
	for _, cs := range all {
		if cs.Name == name {
			return cs
		}
	}
	return v1.ContainerStatus{Name: name}
}
