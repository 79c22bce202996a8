package podstate

import (
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// counts are of containers by what they mean for the pod's phase.
type counts struct {
	waiting, running, stopped, succeeded int
}

// countContainers counts the containers and the sidecars.
func countContainers(pod *v1.Pod, s v1.PodStatus) counts {
	var n counts
	for _, c := range s.ContainerStatuses {
		end := podspec.LastTermination(c)
		switch {
		case c.State.Running != nil:
			n.running++
		case end == nil:
			n.waiting++
		default:
			n.stopped++
			if c.State.Terminated != nil && end.ExitCode == 0 {
				n.succeeded++
			}
		}
	}
	for i, c := range s.InitContainerStatuses {
		switch {
		case !podspec.IsSidecar(&pod.Spec.InitContainers[i]):
		case c.State.Running != nil:
			n.running++
		case podspec.LastTermination(c) == nil:
			n.waiting++
		}
	}
	return n
}

// phase follows getPhase of pkg/kubelet/kubelet_pods.go. initialized says that the
// containers of the pod have been started, or may be.
func phase(pod *v1.Pod, s v1.PodStatus, initialized bool) v1.PodPhase {
	pendingInit, failed := initPhase(pod, s.InitContainerStatuses)
	if failed {
		return v1.PodFailed
	}
	n := countContainers(pod, s)
	switch {
	case pendingInit && !initialized, n.waiting > 0:
		return v1.PodPending
	case n.running > 0:
		return v1.PodRunning
	case n.stopped > 0:
		return stoppedPhase(pod, s.ContainerStatuses, n)
	}
	return v1.PodPending
}

// initPhase says whether an init container has yet to complete, or has failed for good.
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
		case podspec.Failed(pod, def, end) && !podspec.Restarts(pod, def, end) && c.State.Terminated != nil:
			return true, true
		case podspec.Failed(pod, def, end):
			pending = true
		}
	}
	return pending, false
}

// stoppedPhase is the phase of a pod whose containers have all stopped.
func stoppedPhase(pod *v1.Pod, statuses []v1.ContainerStatus, n counts) v1.PodPhase {
	for i, s := range statuses {
		end := s.State.Terminated
		if end == nil || podspec.Restarts(pod, &pod.Spec.Containers[i], end) {
			return v1.PodRunning
		}
	}
	if n.stopped == n.succeeded {
		return v1.PodSucceeded
	}
	return v1.PodFailed
}
