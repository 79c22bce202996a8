package podstate

import (
	"encoding/json"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/record"
)

// Status returns the pod's status, as the kubelet computes it (pkg/kubelet/kubelet_pods.go,
// generateAPIPodStatus). A pod that is absent is Pending.
func Status(o *Observation, now time.Time) v1.PodStatus {
	s := v1.PodStatus{QOSClass: podspec.QOS(o.Pod), StartTime: o.Record.StartTime(), HostIPs: hostIPs(o.HostIPs)}
	if len(o.HostIPs) > 0 {
		s.HostIP = o.HostIPs[0]
	}
	setPodIPs(&s, o.IPs)
	initialized := o.initialized()
	for i := range o.Pod.Spec.InitContainers {
		s.InitContainerStatuses = append(s.InitContainerStatuses, o.containerStatus(&o.Pod.Spec.InitContainers[i], ReasonInitializing))
	}
	otherwise := ReasonCreating
	if !initialized {
		otherwise = ReasonInitializing
	}
	for i := range o.Pod.Spec.Containers {
		s.ContainerStatuses = append(s.ContainerStatuses, o.containerStatus(&o.Pod.Spec.Containers[i], otherwise))
	}
	s.Phase = phase(o.Pod, s, initialized)
	o.failure(&s, now)
	s.Conditions = conditions(o.Pod, s, initialized, o.Sandbox != nil)
	if couldRestartAll(o.Pod) {
		s.Conditions = append(s.Conditions, restarting(o.restartsAll(), s.Phase))
	}
	o.explain(s.Conditions)
	o.setTransitionTimes(&s)
	shorten(s.InitContainerStatuses, s.ContainerStatuses)
	return s
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

// failedByDeadline reports whether the pod was active past its deadline. One that had ended
// before, well or not, was not, and one that ended well because it was stopped was.
func (o *Observation) failedByDeadline(s *v1.PodStatus, now time.Time) bool {
	if !o.overdue(now) {
		return false
	}
	if s.Phase != v1.PodSucceeded && s.Phase != v1.PodFailed {
		return true
	}
	deadline, _ := Deadline(o.Pod, o.Record)
	return slices.ContainsFunc(s.ContainerStatuses, func(cs v1.ContainerStatus) bool {
		return cs.State.Terminated != nil && !cs.State.Terminated.FinishedAt.Time.Before(deadline)
	})
}

// initialized says whether every init container has done its work.
func (o *Observation) initialized() bool {
	done, _ := o.decideInit(&Actions{}, time.Time{})
	return done
}

// PodFailure returns why a pod that has never had containers could not be prepared for them.
// The kubelet tells that by events, which nobody keeps here.
func PodFailure(o *Observation, s v1.PodStatus) (record.Failure, bool) {
	begun := func(cs v1.ContainerStatus) bool { return cs.ContainerID != "" }
	if s.Phase != v1.PodPending || slices.ContainsFunc(slices.Concat(s.InitContainerStatuses, s.ContainerStatuses), begun) {
		return record.Failure{}, false
	}
	f, ok := o.Record.Failures[record.PodFailure]
	return f, ok
}

// waiting returns why the container waits, as it was recorded, unless the container has been
// started since.
func (o *Observation) waiting(name string) (record.Failure, bool) {
	f, failed := o.Record.Failures[name]
	c, ok := o.Containers[name]
	switch {
	case !failed, !ok:
		return f, failed
	case c.Attempt == f.Attempt:
		return f, c.State == engine.StateCreated || c.Exit.Reason == ReasonStartError || f.Reason == ReasonPostStartHook
	}
	return f, c.Attempt < f.Attempt
}

func hostIPs(ips []string) []v1.HostIP {
	all := make([]v1.HostIP, 0, len(ips))
	for _, ip := range ips {
		all = append(all, v1.HostIP{IP: ip})
	}
	return all
}

func setPodIPs(status *v1.PodStatus, ips []string) {
	for i, ip := range ips {
		if i == 0 {
			status.PodIP = ip
		}
		status.PodIPs = append(status.PodIPs, v1.PodIP{IP: ip})
	}
}

func (o *Observation) containerStatus(c *v1.Container, otherwise string) v1.ContainerStatus {
	s := v1.ContainerStatus{Name: c.Name, Image: c.Image, VolumeMounts: volumeMounts(o.Pod, c, o.RecursiveReadOnly)}
	w, waits := o.waiting(c.Name)
	if !waits {
		w = record.Failure{Reason: otherwise}
	}
	toWait := v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: w.Reason, Message: w.Message}}
	got, ok := o.Containers[c.Name]
	if !ok {
		s.State = toWait
		return s
	}
	s.ContainerID = "containerd://" + got.ID
	s.ImageID = got.ImageID
	s.RestartCount = int32(got.Attempt)
	s.StopSignal, s.User = effectiveStopSignal(got), statusUser(got)
	s.Resources, s.AllocatedResources = c.Resources.DeepCopy(), c.Resources.Requests.DeepCopy()
	if got.Last != nil {
		s.LastTerminationState = v1.ContainerState{Terminated: terminated(got.Last)}
	}
	if o.Record.IsDiscarded(got) {
		s.State, s.LastTerminationState = restartingState(), v1.ContainerState{Terminated: terminated(Ended(got))}
		s.Started = new(bool)
		return s
	}
	switch got.State {
	case engine.StateRunning:
		s.State = v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(got.StartedAt)}}
		started, ready := o.probed(c, got)
		s.Started, s.Ready = &started, ready && !isPlainInit(o.Pod, c.Name)
		return s
	case engine.StateCreated:
		s.State = toWait
	case engine.StateExited, engine.StateUnknown:
		end := terminated(Ended(got))
		if got.State == engine.StateUnknown {
			end.Reason = "ContainerStatusUnknown"
		}
		s.State = v1.ContainerState{Terminated: end}
		if waits && restarts(o.Pod, c, got) {
			s.State, s.LastTerminationState = toWait, v1.ContainerState{Terminated: end}
		}
	}
	s.Started = new(bool)
	// An init container that has done its work is ready, for good.
	s.Ready = got.State == engine.StateExited && got.Exit.ExitCode == 0 && isPlainInit(o.Pod, c.Name)
	return s
}

// probed says what the probes make of a container that runs. One that nobody has asked
// yet has neither started nor is it ready, if there is something to ask.
func (o *Observation) probed(c *v1.Container, got engine.Container) (started, ready bool) {
	if p, ok := o.Probes[got.ID]; ok {
		return p.Started, p.Ready
	}
	started = c.StartupProbe == nil
	return started, started && c.ReadinessProbe == nil
}

// isPlainInit says whether the name is that of an init container that has to end.
func isPlainInit(pod *v1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c v1.Container) bool { return c.Name == name && !podspec.IsSidecar(&c) })
}

// terminated gives the reasons that the CRI gives.
func terminated(t *engine.Exit) *v1.ContainerStateTerminated {
	reason := "Error"
	switch {
	case t.Reason != "":
		reason = t.Reason
	case t.OOMKilled:
		reason = "OOMKilled"
	case t.ExitCode == 0:
		reason = "Completed"
	}
	s := &v1.ContainerStateTerminated{
		ExitCode: t.ExitCode, Reason: reason, Message: t.Message, ContainerID: "containerd://" + t.ContainerID,
	}
	// The zero time of the API is "null", not the year 1.
	if !t.StartedAt.IsZero() {
		s.StartedAt = metav1.NewTime(t.StartedAt)
	}
	if !t.FinishedAt.IsZero() {
		s.FinishedAt = metav1.NewTime(t.FinishedAt)
	}
	return s
}

// statusUser is the user that the container was started with, nil when it is not known.
func statusUser(c engine.Container) *v1.ContainerUser {
	user := &v1.ContainerUser{Linux: &v1.LinuxContainerUser{}}
	if json.Unmarshal([]byte(c.Labels[engine.LabelUser]), user.Linux) != nil {
		return nil
	}
	return user
}
