package podstate

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/record"
)

// Status returns the pod's status, as the kubelet computes it (pkg/kubelet/kubelet_pods.go,
// generateAPIPodStatus). A pod that is absent is Pending.
func Status(o *Observation, now time.Time) v1.PodStatus {
	s := v1.PodStatus{QOSClass: podspec.QOS(o.Pod)}
	if !o.Record.Started.IsZero() {
		s.StartTime = &metav1.Time{Time: o.Record.Started}
	}
	o.setIPs(&s)
	initialized := o.initialized()
	for i := range o.Pod.Spec.InitContainers {
		s.InitContainerStatuses = append(s.InitContainerStatuses, o.containerStatus(&o.Pod.Spec.InitContainers[i], ReasonInitializing, now))
	}
	reason := ReasonCreating
	if !initialized {
		reason = ReasonInitializing
	}
	for i := range o.Pod.Spec.Containers {
		s.ContainerStatuses = append(s.ContainerStatuses, o.containerStatus(&o.Pod.Spec.Containers[i], reason, now))
	}
	for _, c := range podspec.Ephemeral(o.Pod) {
		s.EphemeralContainerStatuses = append(s.EphemeralContainerStatuses, o.ephemeralStatus(c, reason, now))
	}
	s.Phase = phase(o.Pod, s, initialized)
	o.failure(&s, now)
	s.Conditions = conditions(o.Pod, s, initialized, o.Sandbox != nil)
	if couldRestartAll(o.Pod) {
		s.Conditions = append(s.Conditions, restarting(o.restartsAll(), s.Phase))
	}
	o.addProbeMessages(s.Conditions)
	o.setTransitionTimes(&s)
	truncateMessages(podspec.AllStatuses(s))
	return s
}

// Concluded reports whether the pod has no work left: it has ended, or only sidecars run, which are
// about to be stopped.
func Concluded(o *Observation, now time.Time) bool {
	s := Status(o, now)
	if podspec.Ended(s.Phase) {
		return true
	}
	n := countContainers(o.Pod, v1.PodStatus{ContainerStatuses: s.ContainerStatuses})
	return n.stopped == len(o.Pod.Spec.Containers) && podspec.Ended(stoppedPhase(o.Pod, s.ContainerStatuses, n))
}

// failure sets the phase of a pod that has failed whatever its containers say.
func (o *Observation) failure(s *v1.PodStatus, now time.Time) {
	switch {
	case o.Record.Failed != nil:
		s.Phase, s.Reason, s.Message = v1.PodFailed, o.Record.Failed.Reason, o.Record.Failed.Message
	case o.failedByDeadline(s, now):
		s.Phase, s.Reason = v1.PodFailed, "DeadlineExceeded"
		s.Message = "Pod was active on the node longer than the specified deadline"
	case o.Exceeded != "":
		s.Phase, s.Reason, s.Message = v1.PodFailed, ReasonEvicted, o.Exceeded
	}
}

// failedByDeadline reports whether the pod was active past its deadline: it has not ended, or
// a container ended only after the deadline, even if with success.
func (o *Observation) failedByDeadline(s *v1.PodStatus, now time.Time) bool {
	if !o.Overdue(now) {
		return false
	}
	if !podspec.Ended(s.Phase) {
		return true
	}
	deadline, _ := Deadline(o.Pod, o.Record)
	return slices.ContainsFunc(s.ContainerStatuses, func(cs v1.ContainerStatus) bool {
		return cs.State.Terminated != nil && !cs.State.Terminated.FinishedAt.Time.Before(deadline)
	})
}

// initialized says whether every init container has completed.
func (o *Observation) initialized() bool {
	done, _ := o.decideInit(&Actions{}, time.Time{})
	return done
}

// PodFailure returns why a pod that has never had containers could not be prepared for them.
// The kubelet reports that as an event alone.
func PodFailure(o *Observation, s v1.PodStatus) (record.Failure, bool) {
	created := func(cs v1.ContainerStatus) bool { return cs.ContainerID != "" }
	if s.Phase != v1.PodPending || slices.ContainsFunc(podspec.Statuses(s), created) {
		return record.Failure{}, false
	}
	f, ok := o.Record.Failures[record.PodFailure]
	return f, ok
}

func (o *Observation) setIPs(s *v1.PodStatus) {
	for _, ip := range o.HostIPs {
		s.HostIP = cmp.Or(s.HostIP, ip)
		s.HostIPs = append(s.HostIPs, v1.HostIP{IP: ip})
	}
	for _, ip := range o.IPs {
		s.PodIP = cmp.Or(s.PodIP, ip)
		s.PodIPs = append(s.PodIPs, v1.PodIP{IP: ip})
	}
}
