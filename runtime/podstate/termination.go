package podstate

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/probe"
)

// StopsAfter names the containers that stop before the given one: none, unless it is a
// sidecar (pkg/kubelet/kuberuntime/kuberuntime_termination_order.go).
func StopsAfter(pod *v1.Pod, name string) []string {
	i := slices.IndexFunc(pod.Spec.InitContainers, func(c v1.Container) bool { return c.Name == name && podspec.IsSidecar(&c) })
	if i < 0 {
		return nil
	}
	var names []string
	for _, c := range podspec.Containers(pod)[i+1:] {
		names = append(names, c.Name)
	}
	return names
}

// probeGrace is the grace period of the probe that the container has failed, if it has one,
// else the pod's (pkg/kubelet/kuberuntime.setTerminationGracePeriod).
func (o *Observation) probeGrace(def *v1.Container, c engine.Container) time.Duration {
	by := map[probe.Kind]*v1.Probe{probe.Liveness: def.LivenessProbe, probe.Startup: def.StartupProbe}
	if p := by[o.Probes[c.ID].Failed]; p != nil && p.TerminationGracePeriodSeconds != nil {
		return time.Duration(*p.TerminationGracePeriodSeconds) * time.Second
	}
	return podspec.GracePeriod(o.Pod)
}
