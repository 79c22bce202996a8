package podstate

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
)

// succeeded says whether a container has ended well.
func succeeded(pod *v1.Pod, def *v1.Container, c engine.Container) bool {
	return c.State == engine.StateExited && !podspec.Failed(pod, def, terminated(Ended(c)))
}

// restarts says whether a container that does not run is started again: by its policy, or since
// that was decided when it was killed, whatever it has exited with then. A kubelet that cannot start
// the next instance at once forgets the latter.
func (o *Observation) restarts(def *v1.Container, c engine.Container) bool {
	if c.State == engine.StateCreated || podspec.Restarts(o.Pod, def, terminated(Ended(c))) {
		return true
	}
	next, waits := o.Record.Failures[def.Name]
	return waits && c.Attempt < next.Attempt && !isPlainInit(o.Pod, def.Name)
}

// withinLimits starts nothing if a container would have to be started that has been restarted as
// often as it may be. It does not ask why the instance before has ended, except that an init
// container that has done its work has not crashed.
func (o *Observation) withinLimits(a Actions) Actions {
	for _, next := range o.upcoming(a) {
		most, limited := o.MostRestarts[next.Container.Name]
		done := isPlainInit(o.Pod, next.Container.Name) && next.Last != nil && !podspec.Failed(o.Pod, next.Container, terminated(next.Last))
		if limited && next.Attempt > most && !done {
			next.Reason = "not started again: no restart was left"
			a.Refused = append(a.Refused, next)
		}
	}
	if len(a.Refused) > 0 {
		a.CreateSandbox, a.Start, a.Wait = false, nil, nil
	}
	return a
}

// upcoming returns what is started now, or after its back-off, and the containers that start again when
// the init containers have run again.
func (o *Observation) upcoming(a Actions) []Start {
	all := slices.Concat(a.Start, a.Wait)
	isInit := func(next Start) bool {
		return slices.ContainsFunc(o.Pod.Spec.InitContainers, func(c v1.Container) bool { return c.Name == next.Container.Name })
	}
	if !slices.ContainsFunc(all, isInit) {
		return all
	}
	for i := range o.Pod.Spec.Containers {
		c := &o.Pod.Spec.Containers[i]
		old, ok := o.Containers[c.Name]
		goesOn := old.State == engine.StateRunning && !slices.ContainsFunc(a.Kill, func(k Kill) bool { return k.ID == old.ID })
		if ok && !goesOn && (o.Record.IsDiscarded(old) || o.restarts(c, old)) {
			all = append(all, o.next(c))
		}
	}
	return all
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
