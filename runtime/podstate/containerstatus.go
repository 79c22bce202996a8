package podstate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/record"
)

// ContainerIDPrefix comes before the engine's ID of a container in its status.
const ContainerIDPrefix = "containerd://"

func (o *Observation) containerStatus(c *v1.Container, otherwise string, now time.Time) v1.ContainerStatus {
	s := v1.ContainerStatus{Name: c.Name, Image: c.Image, VolumeMounts: volumeMounts(o.Pod, c, o.RecursiveReadOnly)}
	w, waits := o.waiting(c.Name, now)
	if !waits {
		w = record.Failure{Reason: otherwise}
	}
	toWait := v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: w.Reason, Message: w.Message}}
	got, ok := o.Containers[c.Name]
	if !ok {
		s.State = toWait
		return s
	}
	s.ContainerID = ContainerIDPrefix + got.ID
	s.ImageID = got.ImageID
	s.RestartCount = int32(got.Attempt)
	s.StopSignal, s.User = effectiveStopSignal(got), statusUser(got)
	s.Resources, s.AllocatedResources = c.Resources.DeepCopy(), c.Resources.Requests.DeepCopy()
	if got.Last != nil {
		s.LastTerminationState.Terminated = terminated(got.Last)
	}
	if o.Record.IsDiscarded(got) {
		if s.State = toWait; !waits {
			s.State.Waiting = &v1.ContainerStateWaiting{Reason: reasonRestarting, Message: messageRestarting}
		}
		s.LastTerminationState.Terminated = terminated(Ended(got))
		s.Started = new(bool)
		return s
	}
	switch got.State {
	case engine.StateRunning:
		o.whileRunning(&s, c, got, otherwise, now)
		return s
	case engine.StateCreated:
		s.State = toWait
	case engine.StateExited, engine.StateUnknown:
		end := terminatedOf(got)
		s.State = v1.ContainerState{Terminated: end}
		if waits && o.startsAgain(c, got) {
			s.State, s.LastTerminationState = toWait, v1.ContainerState{Terminated: end}
		}
	}
	s.Started = new(bool)
	// An init container that has completed is ready.
	s.Ready = isPlainInit(o.Pod, c.Name) && succeeded(o.Pod, c, got)
	return s
}

// ephemeralStatus is the status of an ephemeral container, which the kubelet does not probe
// (UpdatePodStatus of pkg/kubelet/prober).
func (o *Observation) ephemeralStatus(c *v1.Container, otherwise string, now time.Time) v1.ContainerStatus {
	s := o.containerStatus(c, otherwise, now)
	s.Ready, s.Started = false, nil
	return s
}

// whileRunning sets the state of a container that runs. While its postStart hook runs, it waits in the
// kubelet's status.
func (o *Observation) whileRunning(s *v1.ContainerStatus, c *v1.Container, got engine.Container, otherwise string, now time.Time) {
	if o.Record.AwaitsPostStart(c, got.ID) && !o.failed(now) {
		s.State.Waiting = &v1.ContainerStateWaiting{Reason: otherwise, Message: podspec.MessagePostStart}
		s.Started = new(bool)
		return
	}
	s.State.Running = &v1.ContainerStateRunning{StartedAt: metav1.NewTime(got.StartedAt)}
	started, ready := o.probed(c, got)
	s.Started, s.Ready = &started, ready && !isPlainInit(o.Pod, c.Name)
}

// probed says whether a container that runs has started and is ready by its probes. One that
// has probes and was not probed yet is neither.
func (o *Observation) probed(c *v1.Container, got engine.Container) (started, ready bool) {
	if p, ok := o.Probes[got.ID]; ok {
		return p.Started, p.Ready
	}
	started = o.Record.HasStartedUp(c, got.ID)
	return started, started && WithHealthcheck(c, got).ReadinessProbe == nil
}

// isPlainInit says whether the name is that of an init container and not of a sidecar.
func isPlainInit(pod *v1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c v1.Container) bool { return c.Name == name && !podspec.IsSidecar(&c) })
}

// terminated has the reasons of CRI runtimes.
func terminated(t *engine.Exit) *v1.ContainerStateTerminated {
	reason := "Error"
	switch {
	case t.Reason != "":
		reason = t.Reason
	case t.OOMKilled:
		reason = podspec.ReasonOOMKilled
	case t.ExitCode == 0:
		reason = "Completed"
	}
	s := &v1.ContainerStateTerminated{
		ExitCode: t.ExitCode, Reason: reason, Message: t.Message, ContainerID: ContainerIDPrefix + t.ContainerID,
	}
	// The API's zero time is null, not the year 1.
	if !t.StartedAt.IsZero() {
		s.StartedAt = metav1.NewTime(t.StartedAt)
	}
	if !t.FinishedAt.IsZero() {
		s.FinishedAt = metav1.NewTime(t.FinishedAt)
	}
	return s
}

// terminatedOf is how the newest instance of a container has ended.
func terminatedOf(c engine.Container) *v1.ContainerStateTerminated {
	end := terminated(Ended(c))
	if c.State == engine.StateUnknown {
		end.Reason = "ContainerStatusUnknown"
	}
	if p := c.Labels[engine.LabelPlatform]; p != "" && end.ExitCode != 0 && end.Message == "" {
		end.Message = fmt.Sprintf("its image is for %s, not for this machine's platform", p)
	}
	return end
}

// statusUser is the user that the container was started as, nil when it is not known.
func statusUser(c engine.Container) *v1.ContainerUser {
	user := &v1.ContainerUser{Linux: &v1.LinuxContainerUser{}}
	if json.Unmarshal([]byte(c.Labels[engine.LabelUser]), user.Linux) != nil {
		return nil
	}
	return user
}

// startsAgain says whether another instance follows one that has ended: by the restart policy, or
// because an init container runs again in a new sandbox.
func (o *Observation) startsAgain(c *v1.Container, ended engine.Container) bool {
	return o.restarts(c, ended) || o.Record.IsSandboxed(ended)
}

// waiting returns the recorded reason why the container waits, unless it has been started since.
func (o *Observation) waiting(name string, now time.Time) (record.Failure, bool) {
	f, failed := o.Record.Failures[name]
	c, ok := o.Containers[name]
	switch {
	case !failed, !ok:
		return f, failed
	case o.failed(now):
		return f, false
	case c.Attempt == f.Attempt:
		return f, c.State == engine.StateCreated || c.Exit.Reason == ReasonStartError || f.Reason == ReasonPostStartHook
	}
	return f, c.Attempt < f.Attempt
}

// failed says whether the pod has failed whatever its containers say: it starts nothing again.
func (o *Observation) failed(now time.Time) bool {
	return o.Record.Failed != nil || o.Overdue(now) || o.Exceeded != ""
}

// volumeMounts are the container's in the form of its status, with the resolved modes of
// read-only mounts (pkg/kubelet/kubelet_pods.go, resolveRecursiveReadOnly). recursive says
// whether the machine has recursively read-only mounts.
func volumeMounts(pod *v1.Pod, c *v1.Container, recursive func(*v1.Pod) bool) []v1.VolumeMountStatus {
	all := make([]v1.VolumeMountStatus, 0, len(c.VolumeMounts))
	for _, vm := range c.VolumeMounts {
		s := v1.VolumeMountStatus{Name: vm.Name, MountPath: vm.MountPath, ReadOnly: vm.ReadOnly}
		if vm.ReadOnly {
			mode := v1.RecursiveReadOnlyDisabled
			asked := vm.RecursiveReadOnly != nil && *vm.RecursiveReadOnly != v1.RecursiveReadOnlyDisabled
			if asked && recursive != nil && recursive(pod) {
				mode = v1.RecursiveReadOnlyEnabled
			}
			s.RecursiveReadOnly = &mode
		}
		all = append(all, s)
	}
	return all
}

// maxMessages bounds the termination messages of a pod together, in bytes
// (MaxPodTerminationMessageLogLength of pkg/kubelet/container).
const maxMessages = 12 << 10

// truncateMessages gives the messages of each container an equal share of maxMessages
// (normalizeStatus of pkg/kubelet/status).
func truncateMessages(all []v1.ContainerStatus) {
	for _, cs := range all {
		for _, t := range []*v1.ContainerStateTerminated{cs.State.Terminated, cs.LastTerminationState.Terminated} {
			if most := maxMessages / len(all); t != nil && len(t.Message) > most {
				t.Message = strings.ToValidUTF8(t.Message[:most], "")
			}
		}
	}
}
