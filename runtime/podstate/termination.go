package podstate

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/probe"
)

// StopsAfter names the containers that stop before the given one: none, unless it is a
// sidecar (pkg/kubelet/kuberuntime/kuberuntime_termination_order.go).
func StopsAfter(pod *v1.Pod, name string) []string {
	i := slices.IndexFunc(pod.Spec.InitContainers, func(c v1.Container) bool { return c.Name == name && sidecar(&c) })
	if i < 0 {
		return nil
	}
	var names []string
	for _, c := range Containers(pod)[i+1:] {
		names = append(names, c.Name)
	}
	return names
}

// probeGrace gives a container that a probe has failed the grace period of that probe, if it
// has one, and else the pod's (pkg/kubelet/kuberuntime.setTerminationGracePeriod).
func (o *Observation) probeGrace(def *v1.Container, c engine.Container) time.Duration {
	by := map[probe.Kind]*v1.Probe{probe.Liveness: def.LivenessProbe, probe.Startup: def.StartupProbe}
	if p := by[o.Probes[c.ID].Failed]; p != nil && p.TerminationGracePeriodSeconds != nil {
		return time.Duration(*p.TerminationGracePeriodSeconds) * time.Second
	}
	return GracePeriod(o.Pod)
}

// GracePeriod is the pod's own, 30 s when it has none (the API's default).
func GracePeriod(pod *v1.Pod) time.Duration {
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return v1.DefaultTerminationGracePeriodSeconds * time.Second
}

// Containers returns the pod's init containers, then its containers.
func Containers(pod *v1.Pod) []*v1.Container {
	all := make([]*v1.Container, 0, len(pod.Spec.InitContainers)+len(pod.Spec.Containers))
	for i := range pod.Spec.InitContainers {
		all = append(all, &pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		all = append(all, &pod.Spec.Containers[i])
	}
	return all
}
