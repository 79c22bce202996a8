package runtime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/runtime/network"
	"github.com/runonce/runonce/runtime/probe"
)

// Status returns the pod's status, computed from what the engine knows as the kubelet
// computes it. A pod that is absent is Pending.
func (p *Pods) Status(ctx context.Context, pod *v1.Pod) (v1.PodStatus, error) {
	containers, _, err := p.instances(ctx, pod)
	if err != nil {
		return v1.PodStatus{}, err
	}
	evicted, err := p.enforceStorage(ctx, pod, containers)
	if err == nil && evicted {
		containers, _, err = p.instances(ctx, pod)
	}
	if err != nil {
		return v1.PodStatus{}, err
	}
	box, err := p.o.Sandboxes.Get(ctx, pod)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return v1.PodStatus{}, fmt.Errorf("looking at the sandbox of pod %q: %w", pod.Name, err)
	}
	st := p.of(pod.UID)
	s := snapshot{containers: containers, sandbox: err == nil}
	s.takePause(pod)
	view := podView{
		recursive: p.o.RecursiveReadOnly, pod: pod, containers: containers, sandbox: s.sandbox, waiting: p.waitingFor(st, pod.UID, containers),
		probes: p.probes.of(pod.UID), reset: st.wasReset(p.store, pod), killed: st.killedBy(),
	}
	status := view.status()
	status.HostIPs = hostIPs(p.o.Node.IPs)
	if len(p.o.Node.IPs) > 0 {
		status.HostIP = p.o.Node.IPs[0]
	}
	setPodIPs(&status, box)
	kept := st.recorded(p.store, pod)
	status.StartTime = kept.StartTime
	if st.overdue(p.store, pod, status) {
		status.Phase, status.Reason = v1.PodFailed, "DeadlineExceeded"
		status.Message = "Pod was active on the node longer than the specified deadline"
	}
	if kept.Phase == v1.PodFailed {
		status.Phase, status.Reason, status.Message = kept.Phase, kept.Reason, kept.Message
	}
	view.conditions(&status)
	view.stamp(&status)
	return status, nil
}

func (st *podState) waitingNow() map[string]waiting {
	st.memo.Lock()
	defer st.memo.Unlock()
	now := make(map[string]waiting, len(st.waiting))
	for name, w := range st.waiting {
		now[name] = w
	}
	return now
}

func hostIPs(ips []string) []v1.HostIP {
	all := make([]v1.HostIP, 0, len(ips))
	for _, ip := range ips {
		all = append(all, v1.HostIP{IP: ip})
	}
	return all
}

func setPodIPs(status *v1.PodStatus, box network.Sandbox) {
	for i, ip := range box.IPs {
		if i == 0 {
			status.PodIP = ip
		}
		status.PodIPs = append(status.PodIPs, v1.PodIP{IP: ip})
	}
}

// podView is what a pod's status is computed from.
type podView struct {
	recursive  func(*v1.Pod) bool // see Options.RecursiveReadOnly
	pod        *v1.Pod
	containers map[string]engine.Container
	sandbox    bool
	waiting    map[string]waiting
	probes     map[string]probe.Status // by container ID
	reset      reset
	killed     map[string]string // by container ID: what a probe said that had it killed
}

// status computes the pod's status. It is pure.
func (v podView) status() v1.PodStatus {
	s := v1.PodStatus{QOSClass: podspec.QOS(v.pod)}
	initialized := v.initialized()
	for i := range v.pod.Spec.InitContainers {
		s.InitContainerStatuses = append(s.InitContainerStatuses, v.containerStatus(&v.pod.Spec.InitContainers[i], ReasonInitializing))
	}
	otherwise := ReasonCreating
	if !initialized {
		otherwise = ReasonInitializing
	}
	for i := range v.pod.Spec.Containers {
		s.ContainerStatuses = append(s.ContainerStatuses, v.containerStatus(&v.pod.Spec.Containers[i], otherwise))
	}
	s.Phase = phase(v.pod, s, initialized)
	v.conditions(&s)
	shorten(s.InitContainerStatuses, s.ContainerStatuses)
	return s
}

// conditions sets the pod's conditions, which depend on its phase.
func (v podView) conditions(s *v1.PodStatus) {
	s.Conditions = conditions(v.pod, *s, v.initialized(), v.sandbox)
	if couldRestartAll(v.pod) {
		s.Conditions = append(s.Conditions, restarting(v.snapshot().restartsAll(v.pod), s.Phase))
	}
	v.explain(s.Conditions)
}

// initialized says whether every init container has done its work.
func (v podView) initialized() bool {
	done, _ := decideInit(v.pod, v.snapshot(), &actions{}, time.Time{})
	return done
}

func (v podView) snapshot() snapshot {
	return snapshot{containers: v.containers, probes: v.probes, reset: v.reset}
}

func (v podView) containerStatus(c *v1.Container, otherwise string) v1.ContainerStatus {
	s := v1.ContainerStatus{Name: c.Name, Image: c.Image, VolumeMounts: volumeMounts(v.pod, c, v.recursive)}
	w, waits := v.waiting[c.Name]
	if !waits {
		w = waiting{reason: otherwise}
	}
	toWait := v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: w.reason, Message: w.message}}
	got, ok := v.containers[c.Name]
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
	if v.reset.gone(got) {
		s.State, s.LastTerminationState = restartingState(), v1.ContainerState{Terminated: terminated(ended(got))}
		s.Started = new(bool)
		return s
	}
	switch got.State {
	case engine.StateRunning:
		s.State = v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(got.StartedAt)}}
		started, ready := v.probed(c, got)
		s.Started, s.Ready = &started, ready && !isPlainInit(v.pod, c.Name)
		return s
	case engine.StateCreated:
		s.State = toWait
	case engine.StateExited, engine.StateUnknown:
		end := terminated(ended(got))
		if got.State == engine.StateUnknown {
			end.Reason = "ContainerStatusUnknown"
		}
		s.State = v1.ContainerState{Terminated: end}
		if waits && restarts(v.pod, c, got) {
			s.State, s.LastTerminationState = toWait, v1.ContainerState{Terminated: end}
		}
	}
	s.Started = new(bool)
	// An init container that has done its work is ready, for good.
	s.Ready = got.State == engine.StateExited && got.Exit.ExitCode == 0 && isPlainInit(v.pod, c.Name)
	return s
}

// probed says what the probes make of a container that runs. One that nobody has asked
// yet has neither started nor is it ready, if there is something to ask.
func (v podView) probed(c *v1.Container, got engine.Container) (started, ready bool) {
	if p, ok := v.probes[got.ID]; ok {
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
