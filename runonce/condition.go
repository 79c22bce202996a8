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

// condition is how far a pod is from its goal, by its status.
type condition struct {
	outcome Outcome // Running, Ready, Succeeded or Failed; empty before the goal is reached
	ended   bool    // the outcome is final
	reason  string  // of a failure, or of waiting
	message string
	lacks   string        // what a queued pod waits for, in a few words
	recheck time.Duration // when to judge again although nothing changes; 0 for never
}

// failed is the condition of a pod that has failed for a reason of ours.
func failed(reason, message string) condition {
	return condition{outcome: Failed, ended: true, reason: reason, message: message}
}

// judge returns the condition of a pod. At its goal, that names a container which was OOM-killed.
func (g goal) judge(pod *v1.Pod, st v1.PodStatus, h history, now time.Time) condition {
	c := g.judgeUntil(pod, st, h, now)
	if c.outcome != "" && !podspec.Ended(st.Phase) {
		if left := g.awaited(pod, st); len(left) > 0 {
			return stillRunning(left)
		}
	}
	if c.outcome.AtGoal() && c.reason == "" {
		c.reason, c.message = outOfMemory(st)
	}
	return c
}

// outOfMemory describes a container that was OOM-killed and does not run again, "" for none. Its exit
// code counts nevertheless.
func outOfMemory(st v1.PodStatus) (reason, message string) {
	for _, cs := range st.ContainerStatuses {
		if t := cs.State.Terminated; t != nil && t.Reason == podspec.ReasonOOMKilled {
			return t.Reason, fmt.Sprintf("container %q %s", cs.Name, ending(t))
		}
	}
	return "", ""
}

// awaited returns the containers whose end is awaited and has not come, quoted. In a pod that is
// initialized, init containers have ended; a sidecar ends with its pod.
func (g goal) awaited(pod *v1.Pod, st v1.PodStatus) (left []string) {
	for _, c := range podspec.LongRunning(pod) {
		if slices.Contains(g.await, c.Name) && finalEnd(pod, c, st) == nil {
			left = append(left, strconv.Quote(c.Name))
		}
	}
	return left
}

// finalEnd returns how the container has ended if it is not restarted, nil otherwise.
func finalEnd(pod *v1.Pod, c *v1.Container, st v1.PodStatus) *v1.ContainerStateTerminated {
	t := statusOf(podspec.Statuses(st), c.Name).State.Terminated
	if t == nil || podspec.Restarts(pod, c, t) {
		return nil
	}
	return t
}

// stillRunning is the condition of a pod whose end is waited for.
func stillRunning(containers []string) condition {
	return condition{reason: "PodNotCompleted", message: "still running: " + strings.Join(containers, ", ")}
}

// judgeUntil returns the condition of a pod, whatever is awaited.
func (g goal) judgeUntil(pod *v1.Pod, st v1.PodStatus, h history, now time.Time) condition {
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
	for _, c := range podspec.LongRunning(pod) {
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
	if c, ok := stopping(pod, st); ok {
		return c
	}
	until := g.of(pod)
	done := 0
	var left []string // those that run and can end
	for _, c := range podspec.LongRunning(pod) {
		cs := statusOf(podspec.Statuses(st), c.Name)
		if t := finalEnd(pod, c, st); t != nil && t.ExitCode == 0 {
			done++
			continue
		}
		if waiting, ok := waitsFor(st, cs, until); ok {
			return waiting
		}
		if !podspec.IsEndless(pod, c) {
			left = append(left, strconv.Quote(c.Name))
		}
	}
	switch {
	case g.until == UntilCompleted && len(left) > 0:
		return stillRunning(left)
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

// stopping says which sidecars still run although the containers of the pod have ended for good: they
// are told to stop, and may use up their grace period.
func stopping(pod *v1.Pod, st v1.PodStatus) (condition, bool) {
	if slices.ContainsFunc(pod.Spec.Containers, func(c v1.Container) bool { return finalEnd(pod, &c, st) == nil }) {
		return condition{}, false
	}
	var left []string
	for _, cs := range st.InitContainerStatuses {
		if cs.State.Running != nil {
			left = append(left, fmt.Sprintf("sidecar %q", cs.Name))
		}
	}
	c := condition{reason: "PodNotCompleted", message: "every container has exited with code 0"}
	if kind, cs := firstFailed(pod, st); cs != nil {
		t := cs.State.Terminated
		c.reason, c.message = cmp.Or(t.Reason, "Error"), fmt.Sprintf("%s %q %s", kind, cs.Name, ending(t))
	}
	c.message += "; waiting for " + strings.Join(left, ", ") + " to stop"
	return c, len(left) > 0
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
		case !sidecar && cs.State.Terminated != nil && !podspec.Failed(pod, c, cs.State.Terminated):
			continue
		case !sidecar && laterStarted(pod, st, i):
			continue // its record may have been removed after the next one started
		case !sidecar && finalEnd(pod, c, st) != nil:
			// The phase that a kubelet reports does not tell if it was OOM-killed and has exited with 0.
			return failedCondition(pod, st), true
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
		if !podspec.IsSidecar(c) && s.State.Terminated != nil && podspec.Failed(pod, c, s.State.Terminated) {
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
	goesOn := func(cs v1.ContainerStatus) bool { return cs.State.Terminated == nil }
	hasFailed := func(c v1.Container) bool {
		t := finalEnd(pod, &c, st)
		return t != nil && t.ExitCode != 0
	}
	if !slices.ContainsFunc(st.ContainerStatuses, goesOn) || !slices.ContainsFunc(pod.Spec.Containers, hasFailed) {
		return condition{}, false
	}
	return failedCondition(pod, st), true
}

// ending describes how a container ended.
func ending(t *v1.ContainerStateTerminated) string {
	if t.Reason == "StartError" {
		return "could not be started: " + strings.TrimSpace(t.Message)
	}
	text := fmt.Sprintf("exited with code %d", t.ExitCode)
	if t.ExitCode == 0 && t.Reason == podspec.ReasonOOMKilled {
		text += ", but one of its processes was OOM-killed"
	} else if t.Reason != "" && t.Reason != "Error" && t.Reason != "Completed" {
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

// hasUnready says whether a running container is not ready. Its liveness or startup probe may
// ask for a restart, which Sync carries out, also when the run only waits for running.
func hasUnready(st v1.PodStatus) bool {
	return slices.ContainsFunc(podspec.Statuses(st), func(cs v1.ContainerStatus) bool {
		return cs.State.Running != nil && !cs.Ready
	})
}
