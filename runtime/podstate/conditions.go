package podstate

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// The kubelet's reasons and messages (pkg/kubelet/kubelet_pods.go, pkg/kubelet/status/generate.go).
const (
	reasonNotReady       = "ContainersNotReady"
	reasonNotInitialized = "ContainersNotInitialized"
	reasonCompleted      = "PodCompleted"
	reasonFailed         = "PodFailed"
	reasonRestarting     = "RestartingAllContainers"
	messageRestarting    = "The container is removed because RestartAllContainers in place"
	reasonAllStarted     = "RestartAllContainersStarted"
	messageAllRestarts   = "container exited with restart policy rule"
)

// conditions follows pkg/kubelet/status/generate.go.
func conditions(pod *v1.Pod, s v1.PodStatus, initialized, sandbox bool) []v1.PodCondition {
	names := unready(pod, s)
	ready, podReady := condition(v1.ContainersReady, names), condition(v1.PodReady, names)
	init := v1.PodCondition{Type: v1.PodInitialized, Status: v1.ConditionTrue}
	if !initialized {
		init = condition(v1.PodInitialized, incomplete(pod, s))
	}
	if reason := endedReason(s.Phase); reason != "" {
		ready = v1.PodCondition{Type: v1.ContainersReady, Status: v1.ConditionFalse, Reason: reason}
		podReady = v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionFalse, Reason: reason}
	}
	if s.Phase == v1.PodSucceeded {
		init = v1.PodCondition{Type: v1.PodInitialized, Status: v1.ConditionTrue, Reason: reasonCompleted}
	}
	started := v1.PodCondition{Type: v1.PodReadyToStartContainers, Status: v1.ConditionFalse}
	if sandbox {
		started.Status = v1.ConditionTrue
	}
	scheduled := v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionTrue}
	return []v1.PodCondition{started, init, podReady, ready, scheduled}
}

// endedReason is the reason of the conditions of a pod that has ended, empty for another one.
func endedReason(phase v1.PodPhase) string {
	switch phase {
	case v1.PodSucceeded:
		return reasonCompleted
	case v1.PodFailed:
		return reasonFailed
	default:
		return ""
	}
}

// restarting says whether all containers of the pod are to be restarted.
func restarting(triggered bool, phase v1.PodPhase) v1.PodCondition {
	c := v1.PodCondition{Type: v1.AllContainersRestarting, Status: v1.ConditionFalse, Reason: endedReason(phase)}
	if triggered && c.Reason == "" {
		c.Status, c.Reason, c.Message = v1.ConditionTrue, reasonAllStarted, messageAllRestarts
	}
	return c
}

// condition is true when it names no containers.
func condition(kind v1.PodConditionType, names []string) v1.PodCondition {
	if len(names) == 0 {
		return v1.PodCondition{Type: kind, Status: v1.ConditionTrue}
	}
	reason, what := reasonNotReady, "unready"
	if kind == v1.PodInitialized {
		reason, what = reasonNotInitialized, "incomplete"
	}
	return v1.PodCondition{
		Type: kind, Status: v1.ConditionFalse, Reason: reason,
		Message: fmt.Sprintf("containers with %s status: %v", what, names),
	}
}

// unready names the containers and sidecars that are not ready.
func unready(pod *v1.Pod, s v1.PodStatus) []string {
	var names []string
	for _, c := range lasting(pod, s) {
		if !c.Ready {
			names = append(names, c.Name)
		}
	}
	return names
}

// incomplete names the init containers that have not completed, and the sidecars that have not
// started.
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
