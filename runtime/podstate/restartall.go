package podstate

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
)

// CountsInstances says whether it matters for the pod in which sandbox an instance ran.
func CountsInstances(pod *v1.Pod) bool {
	return len(pod.Spec.InitContainers) > 0 || couldRestartAll(pod)
}

// couldRestartAll says whether a rule of the pod has the action RestartAllContainers
// (podutil.AllContainersCouldRestart).
func couldRestartAll(pod *v1.Pod) bool {
	return slices.ContainsFunc(podspec.Containers(pod), func(c *v1.Container) bool {
		return slices.ContainsFunc(c.RestartPolicyRules, func(r v1.ContainerRestartRule) bool {
			return r.Action == v1.ContainerRestartRuleActionRestartAllContainers
		})
	})
}

// restartsAll says whether a container has ended in a way that restarts all containers of
// the pod (pkg/kubelet/container.ShouldAllContainersRestart).
func (o *Observation) restartsAll() bool {
	return slices.ContainsFunc(podspec.Containers(o.Pod), func(def *v1.Container) bool {
		c, ok := o.Containers[def.Name]
		if !ok || c.State != engine.StateExited || o.Record.IsDiscarded(c) {
			return false
		}
		action, _ := podspec.RestartRule(def, c.Exit.ExitCode)
		return action == v1.ContainerRestartRuleActionRestartAllContainers
	})
}
