package podspec

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Ended says whether a pod of this phase has succeeded or failed.
func Ended(phase v1.PodPhase) bool { return phase == v1.PodSucceeded || phase == v1.PodFailed }

// Inactive says whether a pod of this status uses nothing of its node any more. One that has failed
// by its deadline may still run (filterOutInactivePods of pkg/kubelet).
func Inactive(st v1.PodStatus) bool {
	return Ended(st.Phase) && !Runs(st)
}

// Runs says whether a container of the pod runs, of those that say what becomes of it.
func Runs(st v1.PodStatus) bool { return slices.ContainsFunc(Statuses(st), IsRunning) }

// IsRunning says whether the container runs, also if it still waits for its postStart hook.
func IsRunning(cs v1.ContainerStatus) bool { return cs.State.Running != nil || AwaitsPostStart(cs) }

// MessagePostStart is the message of a container that runs, and whose postStart hook has not completed:
// in the kubelet's status it waits, but that does not say for what.
const MessagePostStart = "its postStart hook has not completed"

// AwaitsPostStart says whether the container waits only for its postStart hook.
func AwaitsPostStart(cs v1.ContainerStatus) bool {
	return cs.State.Waiting != nil && cs.State.Waiting.Message == MessagePostStart
}

// Statuses returns the statuses of the init containers, then of the containers: those that say what becomes of the pod.
func Statuses(st v1.PodStatus) []v1.ContainerStatus {
	return slices.Concat(st.InitContainerStatuses, st.ContainerStatuses)
}

// Condition returns the pod's condition of a type, zero if it has none.
func Condition(st v1.PodStatus, kind v1.PodConditionType) v1.PodCondition {
	for _, c := range st.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return v1.PodCondition{}
}

// LastTermination is how the container, or else its previous instance, ended; nil when neither
// has.
func LastTermination(cs v1.ContainerStatus) *v1.ContainerStateTerminated {
	if cs.State.Terminated != nil {
		return cs.State.Terminated
	}
	return cs.LastTerminationState.Terminated
}

// ContainerState returns the name of the container's state, and the exit code of its current or last
// termination, nil if it never ended.
func ContainerState(cs v1.ContainerStatus) (state string, exitCode *int32) {
	if t := LastTermination(cs); t != nil {
		exitCode = &t.ExitCode
	}
	switch {
	case cs.State.Running != nil:
		return "Running", exitCode
	case cs.State.Terminated != nil:
		return "Terminated", exitCode
	}
	return "Waiting", exitCode
}

// IsReady reports whether the pod is ready by its condition (podutil.IsPodReady).
func IsReady(st v1.PodStatus) bool {
	return slices.ContainsFunc(st.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodReady && c.Status == v1.ConditionTrue })
}
