package podstate

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// setTransitionTimes tells since when each condition is as it is. The kubelet keeps that with the status
// that it wrote last (status_manager.go, updateLastTransitionTime); nobody keeps one here,
// so it is found in what the condition follows from: when the pod was first started, when
// containers began and ended, and when a probe changed its mind.
func (o *Observation) setTransitionTimes(s *v1.PodStatus) {
	if s.StartTime == nil {
		return
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		since := *s.StartTime
		for _, at := range o.moments(c, s) {
			if since.Before(&at) {
				since = at
			}
		}
		c.LastTransitionTime = since
	}
}

// moments are the times that can have made the condition what it is.
func (o *Observation) moments(c *v1.PodCondition, s *v1.PodStatus) []metav1.Time {
	yes := c.Status == v1.ConditionTrue
	switch c.Type {
	case v1.PodInitialized:
		if yes {
			return append(ends(o.plainInits(s)), begins(o.sidecars(s))...)
		}
	case v1.ContainersReady, v1.PodReady:
		all := append(o.sidecars(s), s.ContainerStatuses...)
		if yes {
			return append(begins(all), o.readinessChanges(all)...)
		}
		return append(ends(all), o.readinessChanges(all)...)
	case v1.PodReadyToStartContainers:
		if !yes {
			return append(ends(s.InitContainerStatuses), ends(s.ContainerStatuses)...)
		}
	case v1.AllContainersRestarting:
		if yes {
			return append(ends(s.InitContainerStatuses), ends(s.ContainerStatuses)...)
		}
	case v1.PodScheduled, v1.DisruptionTarget, v1.PodResizePending, v1.PodResizeInProgress:
	}
	return nil
}

func (o *Observation) plainInits(s *v1.PodStatus) []v1.ContainerStatus { return o.inits(s, false) }

func (o *Observation) sidecars(s *v1.PodStatus) []v1.ContainerStatus { return o.inits(s, true) }

func (o *Observation) inits(s *v1.PodStatus, sidecars bool) []v1.ContainerStatus {
	var some []v1.ContainerStatus
	for i, cs := range s.InitContainerStatuses {
		if podspec.IsSidecar(&o.Pod.Spec.InitContainers[i]) == sidecars {
			some = append(some, cs)
		}
	}
	return some
}

// readinessChanges are when the probes of the containers last changed their minds on readiness.
func (o *Observation) readinessChanges(all []v1.ContainerStatus) []metav1.Time {
	var times []metav1.Time
	for _, cs := range all {
		if p, ok := o.Probes[o.Containers[cs.Name].ID]; ok {
			times = append(times, metav1.NewTime(p.Since))
		}
	}
	return times
}

func begins(all []v1.ContainerStatus) []metav1.Time {
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
