package runtime

import (
	"slices"
	"time"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/image"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/probe"
)

// snapshot is what Sync decides on: the pod's containers, newest instance of each name,
// and whether its sandbox stands.
type snapshot struct {
	containers map[string]engine.Container
	stale      []string // IDs of older instances and of containers no longer in the spec
	sandbox    bool
	pause      engine.Container        // of a pod that shares its processes
	crashes    map[string]int          // consecutive quick crashes seen by this process
	probes     map[string]probe.Status // of containers that run and have probes, by ID
	reset      reset
}

// start is one container to start.
type start struct {
	container *v1.Container
	attempt   int
	last      *engine.Exit
	old       string // ID of the instance that this one follows
	delay     time.Duration
}

// actions is what has to be done to bring a pod nearer to its spec. It mirrors
// podActions of kuberuntime_manager.go.
type actions struct {
	restartAll    bool // end every container, and decide again
	killPod       bool // stop every container and remove the sandbox
	createSandbox bool
	kill          []engine.Container
	remove        []string
	start         []start
	wait          []start // to be started, but in back-off for delay
}

// decide follows computePodActions (pkg/kubelet/kuberuntime/kuberuntime_manager.go). It
// is pure.
func decide(pod *v1.Pod, s snapshot, now time.Time) actions {
	if s.restartsAll(pod) {
		return actions{restartAll: true}
	}
	a := actions{remove: s.stale}
	if !s.sandbox {
		decideWithoutSandbox(pod, s, &a)
		return a
	}
	initialized, failed := decideInit(pod, s, &a, now)
	if failed {
		return actions{remove: s.stale, killPod: true}
	}
	if !initialized {
		return a
	}
	kept := 0
	before := len(a.start) + len(a.wait)
	for i := range pod.Spec.Containers {
		if decideContainer(pod, s, &pod.Spec.Containers[i], &a, now) {
			kept++
		}
	}
	if kept == 0 && len(a.start)+len(a.wait) == before {
		// Sidecars alone keep no pod alive.
		return actions{remove: s.stale, killPod: true}
	}
	return a
}

// decideWithoutSandbox handles a pod that is new, or that lost its namespaces: after a
// reboot, say. What still runs then runs in namespaces that nobody can reach any more.
func decideWithoutSandbox(pod *v1.Pod, s snapshot, a *actions) {
	a.killPod = len(s.containers) > 0
	if pod.Spec.RestartPolicy == v1.RestartPolicyNever && len(s.containers) > 0 && !s.onlyCreated() {
		return
	}
	var wanted []*v1.Container
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if old, ok := s.containers[c.Name]; ok && !s.reset.gone(old) && !restarts(pod, c, old) {
			continue
		}
		wanted = append(wanted, c)
	}
	if len(wanted) == 0 {
		return
	}
	a.createSandbox = true
	if len(pod.Spec.InitContainers) > 0 {
		wanted = []*v1.Container{&pod.Spec.InitContainers[0]}
	}
	for _, c := range wanted {
		a.start = append(a.start, s.next(c))
	}
}

// onlyCreated says that no container of the pod ever ran.
func (s snapshot) onlyCreated() bool {
	for _, c := range s.containers {
		if c.State != engine.StateCreated && !s.reset.gone(c) {
			return false
		}
	}
	return true
}

// active returns the newest instance of a container that the present sandbox has seen.
func (s snapshot) active(name string) (engine.Container, bool) {
	c, ok := s.containers[name]
	return c, ok && !s.reset.before(c)
}

// anyActive says that the containers of the pod have been started in this sandbox.
func (s snapshot) anyActive(cs []v1.Container) bool {
	return slices.ContainsFunc(cs, func(c v1.Container) bool {
		_, ok := s.active(c.Name)
		return ok
	})
}

// decideContainer decides on a regular container and reports whether it stays as it is
// and runs.
func decideContainer(pod *v1.Pod, s snapshot, c *v1.Container, a *actions, now time.Time) bool {
	old, ok := s.containers[c.Name]
	switch {
	case !ok, old.State == engine.StateCreated, s.reset.gone(old):
		a.schedule(s, c, now)
	case old.State == engine.StateRunning && imageChanged(old, c):
		// It is replaced whatever the restart policy says.
		a.restart(s, c, old)
	case old.State == engine.StateRunning && s.probes[old.ID].Failed != "":
		a.kill = append(a.kill, old)
		if podspec.RestartPolicy(pod, c) != v1.RestartPolicyNever {
			a.again(s, c, now)
		}
	case old.State == engine.StateRunning:
		return true
	case restarts(pod, c, old):
		a.schedule(s, c, now)
	}
	return false
}

// restart stops a running container and starts its next instance.
func (a *actions) restart(s snapshot, c *v1.Container, old engine.Container) {
	a.kill = append(a.kill, old)
	a.start = append(a.start, s.next(c))
}

// again starts the next instance of a container that a probe had killed, at once when it has
// run for longer than the back-off since the end of the instance before it, and else after
// that back-off: kuberuntime's doBackOff knows only that instance when the probe has failed.
func (a *actions) again(s snapshot, c *v1.Container, now time.Time) {
	next, before := s.next(c), s.containers[c.Name].Last
	delay := crashDelay(s.crashes[c.Name])
	if before != nil && now.Before(before.FinishedAt.Add(delay)) {
		next.delay = delay
		a.wait = append(a.wait, next)
		return
	}
	a.start = append(a.start, next)
}

// schedule puts the container in start, or in wait while its crash back-off lasts.
func (a *actions) schedule(s snapshot, c *v1.Container, now time.Time) {
	next := s.next(c)
	if next.last != nil && !s.reset.gone(s.containers[c.Name]) {
		ready := next.last.FinishedAt.Add(crashDelay(s.crashes[c.Name]))
		next.delay = max(0, ready.Sub(now))
	}
	if next.delay > 0 {
		a.wait = append(a.wait, next)
		return
	}
	a.start = append(a.start, next)
}

// next describes the instance that follows the newest one of the container.
func (s snapshot) next(c *v1.Container) start {
	old, ok := s.containers[c.Name]
	switch {
	case !ok:
		return start{container: c}
	case old.State == engine.StateCreated:
		return start{container: c, attempt: old.Attempt, last: old.Last}
	}
	return start{container: c, attempt: old.Attempt + 1, last: ended(old), old: old.ID}
}

// unknownExitCode is reported for a process whose exit nobody saw, as the kubelet does
// (reason ContainerStatusUnknown).
const unknownExitCode = 137

// ended returns how the instance ended.
func ended(c engine.Container) *engine.Exit {
	if c.State == engine.StateExited {
		t := c.Exit
		t.ContainerID, t.Attempt = c.ID, c.Attempt
		return &t
	}
	return &engine.Exit{
		ContainerID: c.ID, Attempt: c.Attempt, ExitCode: unknownExitCode, StartedAt: c.StartedAt,
		Message: "The container could not be located when the pod was synced",
	}
}

// imageChanged says whether the container was made from another image than its definition
// now names: all that kuberuntime's HashContainer looks at beside the name.
func imageChanged(c engine.Container, def *v1.Container) bool {
	ref, err := image.Normalize(def.Image)
	return err == nil && ref != c.Image
}
