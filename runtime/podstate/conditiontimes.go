package podstate

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// setTransitionTimes sets since when each condition has its value. The kubelet compares with
// the status that it wrote last (status_manager.go, updateLastTransitionTime). No status is kept
// here, so the time is derived from what the condition depends on: when the pod was first
// started, when containers started and ended, and when readiness changed.
func (o *Observation) setTransitionTimes(s *v1.PodStatus) {
	if s.StartTime == nil {
		return
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		since := *s.StartTime
		for _, at := range o.transitions(c, s) {
			if since.Before(&at) {
				since = at
			}
		}
		c.LastTransitionTime = since
	}
}

// transitions are the times that can have given the condition its value.
func (o *Observation) transitions(c *v1.PodCondition, s *v1.PodStatus) []metav1.Time {
	isTrue := c.Status == v1.ConditionTrue
	plainInits, sidecars := splitInits(o.Pod, *s)
	lasting := lasting(o.Pod, *s)
	switch {
	case c.Type == v1.PodInitialized && isTrue:
		return append(ends(plainInits), starts(sidecars)...)
	case c.Type == v1.ContainersReady || c.Type == v1.PodReady:
		if isTrue {
			return append(starts(lasting), o.readinessChanges(lasting)...)
		}
		return append(ends(lasting), o.readinessChanges(lasting)...)
	case c.Type == v1.PodReadyToStartContainers && !isTrue, c.Type == v1.AllContainersRestarting && isTrue:
		return append(ends(s.InitContainerStatuses), ends(s.ContainerStatuses)...)
	}
	return nil
}

// splitInits returns the statuses of the init containers that have to end, and of the sidecars.
func splitInits(pod *v1.Pod, s v1.PodStatus) (plain, sidecars []v1.ContainerStatus) {
	for i, cs := range s.InitContainerStatuses {
		if podspec.IsSidecar(&pod.Spec.InitContainers[i]) {
			sidecars = append(sidecars, cs)
		} else {
			plain = append(plain, cs)
		}
	}
	return plain, sidecars
}

// lasting returns the statuses of the sidecars and the containers.
func lasting(pod *v1.Pod, s v1.PodStatus) []v1.ContainerStatus {
	_, sidecars := splitInits(pod, s)
	return append(sidecars, s.ContainerStatuses...)
}

// readinessChanges are when probes last changed the readiness of the containers.
func (o *Observation) readinessChanges(all []v1.ContainerStatus) []metav1.Time {
	var times []metav1.Time
	for _, cs := range all {
		if p, ok := o.Probes[o.Containers[cs.Name].ID]; ok {
			times = append(times, metav1.NewTime(p.Since))
		}
	}
	return times
}

func starts(all []v1.ContainerStatus) []metav1.Time {
	var times []metav1.Time
	for _, cs := range all {
		if cs.State.Running != nil {
			times = append(times, cs.State.Running.StartedAt)
		}
	}
	return times
}

func ends(all []v1.ContainerStatus) []metav1.Time {
	var times []metav1.Time
	for _, cs := range all {
		if end := podspec.LastTermination(cs); end != nil {
			times = append(times, end.FinishedAt)
		}
	}
	return times
}
