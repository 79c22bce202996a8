package podstate

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
)

// restarts says whether a container that does not run is started again.
func restarts(pod *v1.Pod, def *v1.Container, c engine.Container) bool {
	return c.State == engine.StateCreated || podspec.Restarts(pod, def, Ended(c).ExitCode)
}

// CrashReset is how long a container must have run to have recovered from earlier crashes.
const CrashReset = 10 * time.Minute

// The kubelet's crash back-off (pkg/kubelet/kubelet.go, flowcontrol.Backoff).
const (
	crashBase = 10 * time.Second
	crashMax  = 300 * time.Second
)

// crashDelay is the back-off of a container that has crashed n times since it last recovered:
// the first restart is immediate.
func crashDelay(n int) time.Duration {
	if n <= 1 {
		return 0
	}
	return min(crashBase<<min(n-2, 8), crashMax)
}

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
