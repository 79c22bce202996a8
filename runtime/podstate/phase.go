package podstate

import (
	"fmt"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"

	v1 "k8s.io/api/core/v1"
)

// tally counts container statuses by what they mean for the pod's phase.
type tally struct {
	waiting, running, stopped, succeeded int
}

// count counts the statuses of containers, and of the sidecars among the init containers.
func count(pod *v1.Pod, s v1.PodStatus) tally {
	var t tally
	for _, c := range s.ContainerStatuses {
		end := podspec.LastTermination(c)
		switch {
		case c.State.Running != nil:
			t.running++
		case end == nil:
			t.waiting++
		default:
			t.stopped++
			if c.State.Terminated != nil && end.ExitCode == 0 {
				t.succeeded++
			}
		}
	}
	for i, c := range s.InitContainerStatuses {
		switch {
		case !podspec.IsSidecar(&pod.Spec.InitContainers[i]):
		case c.State.Running != nil:
			t.running++
		case podspec.LastTermination(c) == nil:
			t.waiting++
		}
	}
	return t
}

// phase follows getPhase of pkg/kubelet/kubelet_pods.go. initialized says that the
// containers of the pod have been started, or may be.
func phase(pod *v1.Pod, s v1.PodStatus, initialized bool) v1.PodPhase {
	pendingInit, failed := initPhase(pod, s.InitContainerStatuses)
	if failed {
		return v1.PodFailed
	}
	t := count(pod, s)
	switch {
	case pendingInit && !initialized, t.waiting > 0:
		return v1.PodPending
	case t.running > 0:
		return v1.PodRunning
	case t.stopped > 0:
		return stoppedPhase(pod, s.ContainerStatuses, t)
	}
	return v1.PodPending
}

// initPhase says whether an init container has still to do its work, or failed for good.
func initPhase(pod *v1.Pod, statuses []v1.ContainerStatus) (pending, failed bool) {
	for i, c := range statuses {
		def := &pod.Spec.InitContainers[i]
		end := podspec.LastTermination(c)
		switch {
		case podspec.IsSidecar(def):
			running := c.State.Running != nil
			pending = pending || running && (c.Started == nil || !*c.Started) || !running && end == nil
		case c.State.Running != nil || end == nil:
			pending = true
		case end.ExitCode != 0 && !willRestart(pod, def, end) && c.State.Terminated != nil:
			return true, true
		case end.ExitCode != 0:
			pending = true
		}
	}
	return pending, false
}

// stoppedPhase is the phase of a pod none of whose containers runs.
func stoppedPhase(pod *v1.Pod, statuses []v1.ContainerStatus, t tally) v1.PodPhase {
	for i, s := range statuses {
		end := s.State.Terminated
		if end == nil || willRestart(pod, &pod.Spec.Containers[i], end) {
			return v1.PodRunning
		}
	}
	if t.stopped == t.succeeded {
		return v1.PodSucceeded
	}
	return v1.PodFailed
}

// willRestart says whether a container that ended so will run again.
func willRestart(pod *v1.Pod, def *v1.Container, end *v1.ContainerStateTerminated) bool {
	return restarts(pod, def, engine.Container{State: engine.StateExited, Exit: engine.Exit{ExitCode: end.ExitCode}})
}

// conditions follows pkg/kubelet/status/generate.go.
func conditions(pod *v1.Pod, s v1.PodStatus, initialized, sandbox bool) []v1.PodCondition {
	ready := condition(v1.ContainersReady, unready(pod, s))
	podReady := condition(v1.PodReady, unready(pod, s))
	init := v1.PodCondition{Type: v1.PodInitialized, Status: v1.ConditionTrue}
	if !initialized {
		init = condition(v1.PodInitialized, incomplete(pod, s))
	}
	switch s.Phase {
	case v1.PodSucceeded:
		init = v1.PodCondition{Type: v1.PodInitialized, Status: v1.ConditionTrue, Reason: "PodCompleted"}
		ready = v1.PodCondition{Type: v1.ContainersReady, Status: v1.ConditionFalse, Reason: "PodCompleted"}
		podReady = v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionFalse, Reason: "PodCompleted"}
	case v1.PodFailed:
		ready = v1.PodCondition{Type: v1.ContainersReady, Status: v1.ConditionFalse, Reason: "PodFailed"}
		podReady = v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionFalse, Reason: "PodFailed"}
	case v1.PodPending, v1.PodRunning, v1.PodUnknown:
	}
	started := v1.PodCondition{Type: v1.PodReadyToStartContainers, Status: v1.ConditionFalse}
	if sandbox {
		started.Status = v1.ConditionTrue
	}
	scheduled := v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionTrue}
	return []v1.PodCondition{started, init, podReady, ready, scheduled}
}

// The kubelet's words for a pod that starts anew in place (pkg/kubelet/kubelet_pods.go,
// pkg/kubelet/status/generate.go).
const (
	reasonRestarting   = "RestartingAllContainers"
	messageRestarting  = "The container is removed because RestartAllContainers in place"
	reasonAllStarted   = "RestartAllContainersStarted"
	messageAllRestarts = "container exited with restart policy rule"
)

func restartingState() v1.ContainerState {
	return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reasonRestarting, Message: messageRestarting}}
}

// restarting says whether all containers of the pod are to be restarted.
func restarting(triggered bool, phase v1.PodPhase) v1.PodCondition {
	c := v1.PodCondition{Type: v1.AllContainersRestarting, Status: v1.ConditionFalse}
	switch {
	case phase == v1.PodSucceeded:
		c.Reason = "PodCompleted"
	case phase == v1.PodFailed:
		c.Reason = "PodFailed"
	case triggered:
		c.Status, c.Reason, c.Message = v1.ConditionTrue, reasonAllStarted, messageAllRestarts
	}
	return c
}

// condition is True when no container is named.
func condition(kind v1.PodConditionType, names []string) v1.PodCondition {
	if len(names) == 0 {
		return v1.PodCondition{Type: kind, Status: v1.ConditionTrue}
	}
	reason, what := "ContainersNotReady", "unready"
	if kind == v1.PodInitialized {
		reason, what = "ContainersNotInitialized", "incomplete"
	}
	return v1.PodCondition{
		Type: kind, Status: v1.ConditionFalse, Reason: reason,
		Message: fmt.Sprintf("containers with %s status: %v", what, names),
	}
}

// unready names the containers, sidecars among them, that are not ready.
func unready(pod *v1.Pod, s v1.PodStatus) []string {
	var names []string
	for i, c := range s.InitContainerStatuses {
		if podspec.IsSidecar(&pod.Spec.InitContainers[i]) && !c.Ready {
			names = append(names, c.Name)
		}
	}
	for _, c := range s.ContainerStatuses {
		if !c.Ready {
			names = append(names, c.Name)
		}
	}
	return names
}

// incomplete names the init containers that have not done their work, and the sidecars
// that have not started.
func incomplete(pod *v1.Pod, s v1.PodStatus) []string {
	var names []string
	for i, c := range s.InitContainerStatuses {
		done := c.Ready
		if podspec.IsSidecar(&pod.Spec.InitContainers[i]) {
			done = c.Started != nil && *c.Started
		}
		if !done {
			names = append(names, c.Name)
		}
	}
	return names
}
