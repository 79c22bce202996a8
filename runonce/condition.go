package runonce

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// Until says what counts as done.
type Until string

// The goals. UntilRunning: every container runs, or has exited 0 where its policy lets
// it. UntilReady: its probes have passed, too. UntilCompleted: Never and OnFailure pods
// have ended, Always pods are ready.
const (
	UntilRunning   Until = "running"
	UntilReady     Until = "ready"
	UntilCompleted Until = "completed"
)

// valid says whether the goal is one of the three.
func (u Until) valid() bool {
	return u == UntilRunning || u == UntilReady || u == UntilCompleted
}

// goal is what pods have to come to.
type goal struct {
	until Until
	// settle is how long a container must have run to count as running.
	settle time.Duration
}

// condition is what a pod's status says about its goal.
type condition struct {
	// outcome is Running, Ready, Succeeded or Failed; empty while the pod is on its way.
	outcome Outcome
	// ended says that nothing will change the outcome any more.
	ended bool
	// reason and message tell what failed or, on the way, what is waited for.
	reason  string
	message string
	// again is when to look again although nothing changes; 0 for never.
	again time.Duration
}

// of returns the goal of one pod: a completed run waits for the end of the pods that can
// end, and for the others to be ready.
func (g goal) of(pod *v1.Pod) Until {
	if g.until == UntilCompleted && cmp.Or(pod.Spec.RestartPolicy, v1.RestartPolicyAlways) == v1.RestartPolicyAlways {
		return UntilReady
	}
	return g.until
}

// judge judges a pod by its status.
func (g goal) judge(pod *v1.Pod, st v1.PodStatus, now time.Time) condition {
	switch st.Phase {
	case v1.PodSucceeded:
		return condition{outcome: Succeeded, ended: true, reason: st.Reason, message: st.Message}
	case v1.PodFailed:
		return failedCondition(pod, st)
	case v1.PodPending, v1.PodRunning, v1.PodUnknown:
	}
	if v, dead := deadEnd(pod, st); dead && g.of(pod) != UntilCompleted {
		return v
	}
	if v, held := heldByInit(pod, st); held {
		return v
	}
	return g.containers(pod, st, now)
}

// containers judges the regular containers of a pod that has neither ended nor to be
// initialized.
func (g goal) containers(pod *v1.Pod, st v1.PodStatus, now time.Time) condition {
	until := g.of(pod)
	done := 0
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		cs := statusOf(st.ContainerStatuses, c.Name)
		if finished(pod, c, cs) {
			done++
			continue
		}
		if v, held := g.heldBy(st, cs, until, now); held {
			return v
		}
	}
	switch {
	case until == UntilCompleted:
		return condition{reason: "PodNotCompleted", message: runningMessage(st)}
	case done == len(pod.Spec.Containers):
		return condition{reason: "PodNotCompleted", message: "every container has exited with code 0; the pod has not ended yet"}
	case until == UntilReady && done == 0 && !ready(st):
		return notReady(st)
	case until == UntilReady:
		return condition{outcome: Ready}
	}
	return condition{outcome: Running}
}

// heldByInit finds the first init container that has not done its part.
func heldByInit(pod *v1.Pod, st v1.PodStatus) (condition, bool) {
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		cs := statusOf(st.InitContainerStatuses, c.Name)
		sidecar := podspec.IsSidecar(c)
		switch {
		case sidecar && cs.State.Running != nil && (cs.Started == nil || *cs.Started):
			continue
		case !sidecar && cs.State.Terminated != nil && cs.State.Terminated.ExitCode == 0:
			continue
		case !sidecar && laterInitSeen(pod, st, i):
			continue // its record may be gone once the next one has begun
		}
		otherwise := "has not ended yet"
		if sidecar {
			otherwise = "has not started up"
		}
		return waitingFor("init container", cs, otherwise, probeMessage(st)), true
	}
	return condition{}, false
}

// laterInitSeen says whether anything that starts after the i-th init container has.
func laterInitSeen(pod *v1.Pod, st v1.PodStatus, i int) bool {
	begun := func(cs v1.ContainerStatus) bool { return cs.State.Running != nil || cs.State.Terminated != nil }
	return slices.ContainsFunc(st.ContainerStatuses, begun) ||
		slices.ContainsFunc(pod.Spec.InitContainers[i+1:], func(c v1.Container) bool {
			return begun(statusOf(st.InitContainerStatuses, c.Name))
		})
}

// heldBy says whether the container keeps its pod from the goal.
func (g goal) heldBy(st v1.PodStatus, cs v1.ContainerStatus, until Until, now time.Time) (condition, bool) {
	if cs.State.Running == nil {
		return waitingFor("container", cs, "", probeMessage(st)), true
	}
	if left := g.settle - now.Sub(cs.State.Running.StartedAt.Time); left > 0 {
		return condition{
			reason: "Settling", message: fmt.Sprintf("container %q has run for less than %s", cs.Name, g.settle),
			again: min(left, g.settle),
		}, true
	}
	if until == UntilReady && !cs.Ready {
		return waitingFor("container", cs, "runs but is not ready", probeMessage(st)), true
	}
	return condition{}, false
}

// probeMessage is what the probes last said, with ": " before it, or empty: it follows the kubelet's
// words in the message of the condition, or is all of it where the kubelet has none.
func probeMessage(st v1.PodStatus) string {
	for _, c := range st.Conditions {
		if c.Type != v1.ContainersReady || c.Message == "" {
			continue
		}
		if c.Reason == "PodFailed" {
			return ": " + c.Message
		}
		if _, said, ok := strings.Cut(c.Message, "; "); ok {
			return ": " + said
		}
	}
	return ""
}

// waitingFor tells what a container that is not yet where it should be does instead, and
// what the probes said, if that can be why.
func waitingFor(kind string, cs v1.ContainerStatus, otherwise, said string) condition {
	reason := "ContainersNotReady"
	if kind == "init container" {
		reason = "PodInitializing"
	}
	name := fmt.Sprintf("%s %q", kind, cs.Name)
	switch {
	case cs.State.Running != nil && otherwise != "":
		return condition{reason: reason, message: name + " " + otherwise + said}
	case cs.State.Terminated != nil:
		t := cs.State.Terminated
		return condition{reason: cmp.Or(t.Reason, "Error"), message: name + " " + ending(t)}
	case cs.State.Waiting != nil && cs.State.Waiting.Reason != "":
		w := cs.State.Waiting
		text := fmt.Sprintf("%s waits: %s", name, w.Reason)
		if w.Message != "" {
			text += ": " + w.Message
		}
		if last := cs.LastTerminationState.Terminated; last != nil {
			text += "; before that it " + ending(last) + said
		}
		return condition{reason: w.Reason, message: text}
	}
	return condition{reason: "ContainerCreating", message: name + " has not been started"}
}

// failedCondition describes a pod that has failed by the container that failed it.
func failedCondition(pod *v1.Pod, st v1.PodStatus) condition {
	v := condition{outcome: Failed, ended: true, reason: st.Reason, message: st.Message}
	kind, cs := culprit(pod, st)
	if cs == nil {
		v.reason = cmp.Or(v.reason, "Error")
		return v
	}
	t := cs.State.Terminated
	v.reason = cmp.Or(v.reason, t.Reason, "Error")
	text := fmt.Sprintf("%s %q %s%s", kind, cs.Name, ending(t), probeMessage(st))
	if v.message != "" {
		text = v.message + "; " + text
	}
	v.message = text
	return v
}

// culprit returns the failed container that ended first, init containers before others.
func culprit(pod *v1.Pod, st v1.PodStatus) (kind string, cs *v1.ContainerStatus) {
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

// deadEnd finds a container that has failed for good while others of its pod still run:
// the pod cannot come to run as a whole any more. Where only its sidecars do, it is about to
// end by itself.
func deadEnd(pod *v1.Pod, st v1.PodStatus) (condition, bool) {
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

// finished says whether the container has exited 0 and stays so by its policy.
func finished(pod *v1.Pod, c *v1.Container, cs v1.ContainerStatus) bool {
	t := cs.State.Terminated
	return t != nil && t.ExitCode == 0 && !podspec.Restarts(pod, c, 0)
}

// ending says how an instance of a container ended.
func ending(t *v1.ContainerStateTerminated) string {
	text := fmt.Sprintf("exited with code %d", t.ExitCode)
	if t.Reason == "StartError" {
		return "could not be started: " + strings.TrimSpace(t.Message)
	}
	if t.Reason != "" && t.Reason != "Error" && t.Reason != "Completed" {
		text += " (" + t.Reason + ")"
	}
	if message := strings.TrimSpace(t.Message); message != "" {
		text += ": " + message
	}
	return text
}

func runningMessage(st v1.PodStatus) string {
	var names []string
	for _, cs := range st.ContainerStatuses {
		if cs.State.Running != nil {
			names = append(names, fmt.Sprintf("%q", cs.Name))
		}
	}
	if len(names) == 0 {
		return "the pod has not ended"
	}
	return "still running: " + strings.Join(names, ", ")
}

// notReady is for a pod all of whose containers are ready, but which is not.
func notReady(st v1.PodStatus) condition {
	v := condition{reason: "PodNotReady", message: "the pod is not ready"}
	for _, c := range st.Conditions {
		if c.Type == v1.PodReady {
			v.reason = cmp.Or(c.Reason, v.reason)
			v.message = cmp.Or(c.Message, v.message)
		}
	}
	return v
}

func ready(st v1.PodStatus) bool {
	return slices.ContainsFunc(st.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
	})
}

// statusOf finds the status of a container; one that has none is named and nothing else.
func statusOf(all []v1.ContainerStatus, name string) v1.ContainerStatus {
	for _, cs := range all {
		if cs.Name == name {
			return cs
		}
	}
	return v1.ContainerStatus{Name: name}
}
