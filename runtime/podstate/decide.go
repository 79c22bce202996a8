package podstate

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/image"
	"github.com/runonce/runonce/runtime/probe"
	"github.com/runonce/runonce/runtime/record"
)

// Actions are what has to be done to bring a pod nearer to its spec, in the order of the
// fields (podActions of kuberuntime_manager.go).
type Actions struct {
	// Fail is to be recorded first: the pod has ended for good.
	Fail *record.Failure
	Kill []Kill
	// Discard says that after Kill no instance counts any more: all containers of the pod start
	// again, by the next decision.
	Discard bool
	Remove  []string // IDs of containers
	// KillPod says that the sandbox is removed too.
	KillPod       bool
	CreateSandbox bool
	// Ephemeral are ephemeral containers that were never started. Whether they start says nothing of the pod.
	Ephemeral []Start
	// PostStart are containers that run and whose postStart hook has not passed: it is run again.
	// They have not started yet, so those that have to wait for them do.
	PostStart []engine.Container
	Start     []Start
	Wait      []Start // to be started, but in back-off for Delay
	// Refused are containers that would be started if they had not been restarted as often as they may
	// be. Then nothing is started.
	Refused []Start
}

// None says whether there is nothing to do, now or later, while the pod stays as it is.
func (a Actions) None() bool {
	containers := len(a.Kill) + len(a.Remove) + len(a.Ephemeral) + len(a.PostStart) + len(a.Start) + len(a.Wait) + len(a.Refused)
	return containers == 0 && a.Fail == nil && !a.Discard && !a.KillPod && !a.CreateSandbox
}

// Kill is a running container to be stopped.
type Kill struct {
	engine.Container
	Grace  time.Duration
	Reason string // in the kubelet's words, for the event
}

// Stopping is the end of a container for no reason of its own.
func Stopping(c engine.Container, grace time.Duration) Kill {
	return Kill{c, grace, "Stopping container " + c.Name}
}

// Start is a container to be started.
type Start struct {
	Container *v1.Container
	Attempt   int
	Last      *engine.Exit
	Old       string        // ID of the instance that this one follows
	LogPath   string        // of this instance if it was created but never ran; it may be used again
	Delay     time.Duration // what is left of the back-off
	Reason    string        // why it is started, or why it waits
}

// evictionGrace is the kubelet's grace period for a pod that is evicted for a limit of its own
// (eviction.immediateEvictionGracePeriodSeconds).
const evictionGrace = time.Second

// Decide follows SyncPod and computePodActions (pkg/kubelet/kuberuntime/kuberuntime_manager.go).
// A pod that has failed for good, or was active past its deadline, is ended; one that exceeds
// its limits on local storage is evicted.
func Decide(o *Observation, now time.Time) Actions { return o.withinLimits(o.decide(now)) }

func (o *Observation) decide(now time.Time) Actions {
	switch {
	case o.Record.Failed != nil, o.Overdue(now):
		return o.killPod(podspec.TerminationGrace(o.Pod))
	case o.Exceeded != "":
		a := o.killPod(evictionGrace)
		a.Fail = &record.Failure{Reason: ReasonEvicted, Message: o.Exceeded}
		return a
	case o.restartsAll():
		// No grace period: without hooks. Volumes and the sandbox stay.
		return Actions{Kill: o.running(podspec.Containers(o.Pod), 0), Discard: true}
	}
	a := Actions{Remove: o.Stale}
	if o.Sandbox == nil {
		o.decideWithoutSandbox(&a)
		return a
	}
	a.Ephemeral = o.Ephemeral()
	initialized, failed := o.decideInit(&a, now)
	if failed {
		return o.killPod(podspec.GracePeriod(o.Pod))
	}
	if !initialized {
		return a
	}
	kept := 0
	before := len(a.Start) + len(a.Wait)
	for i := range o.Pod.Spec.Containers {
		if o.decideContainer(&o.Pod.Spec.Containers[i], &a, now) {
			kept++
		}
	}
	if kept == 0 && len(a.Start)+len(a.Wait) == before {
		// Sidecars alone keep no pod alive.
		end := o.killPod(podspec.GracePeriod(o.Pod))
		for i, k := range end.Kill {
			// The kubelet forgets the probe's grace period here.
			end.Kill[i].Grace = o.probeGrace(podspec.Container(o.Pod, k.Name), k.Container)
		}
		return end
	}
	return a
}

// Ephemeral returns the ephemeral containers of which no instance has run: those are never restarted. They start
// whatever the other containers do.
func (o *Observation) Ephemeral() (all []Start) {
	for _, c := range podspec.Ephemeral(o.Pod) {
		if known, ok := o.Containers[c.Name]; !ok || known.State == engine.StateCreated {
			all = append(all, o.next(c))
		}
	}
	return all
}

// killPod stops every container and removes the sandbox.
func (o *Observation) killPod(grace time.Duration) Actions {
	return Actions{Kill: o.running(podspec.AllContainers(o.Pod), grace), Remove: o.Stale, KillPod: true}
}

// running returns those of the containers that run.
func (o *Observation) running(containers []*v1.Container, grace time.Duration) []Kill {
	var all []Kill
	for _, def := range containers {
		if c := o.Containers[def.Name]; c.State == engine.StateRunning {
			all = append(all, Stopping(c, grace))
		}
	}
	return all
}

// decideWithoutSandbox handles a pod that is new, or that has lost its namespaces, for example
// in a reboot. What still runs is in namespaces that nothing can reach any more.
func (o *Observation) decideWithoutSandbox(a *Actions) {
	if len(o.Containers) > 0 {
		a.KillPod, a.Kill = true, o.running(podspec.AllContainers(o.Pod), podspec.GracePeriod(o.Pod))
	}
	if o.Pod.Spec.RestartPolicy == v1.RestartPolicyNever && len(o.Containers) > 0 && !o.onlyCreated() {
		// The kubelet leaves such a pod as it is for ever if a container has yet to run.
		if !o.initFailed() && o.unfinished() {
			a.Fail = &record.Failure{Reason: ReasonSandboxLost, Message: "the pod lost its sandbox before all of its containers exited, and is not restarted"}
		}
		return
	}
	var wanted []*v1.Container
	for i := range o.Pod.Spec.Containers {
		c := &o.Pod.Spec.Containers[i]
		if old, ok := o.Containers[c.Name]; ok && !o.Record.IsDiscarded(old) && !o.restarts(c, old) {
			continue
		}
		wanted = append(wanted, c)
	}
	if len(wanted) == 0 {
		return
	}
	a.CreateSandbox = true
	if len(o.Pod.Spec.InitContainers) > 0 {
		wanted = []*v1.Container{&o.Pod.Spec.InitContainers[0]}
	}
	for _, c := range wanted {
		a.Start = append(a.Start, o.next(c))
	}
}

// onlyCreated says that no container of the pod ever ran.
func (o *Observation) onlyCreated() bool {
	for _, c := range o.Containers {
		if c.State != engine.StateCreated && !o.Record.IsDiscarded(c) {
			return false
		}
	}
	return true
}

// initFailed says that an init container has ended, and its pod has failed with it.
func (o *Observation) initFailed() bool {
	return slices.ContainsFunc(o.Pod.Spec.InitContainers, func(c v1.Container) bool {
		known, ok := o.active(c.Name)
		return ok && !podspec.IsSidecar(&c) && known.State == engine.StateExited &&
			!succeeded(o.Pod, &c, known) && !o.restarts(&c, known)
	})
}

// unfinished says that a regular container of the pod has not run yet, or would run again.
func (o *Observation) unfinished() bool {
	return slices.ContainsFunc(o.Pod.Spec.Containers, func(c v1.Container) bool {
		known, ok := o.Containers[c.Name]
		return !ok || o.Record.IsDiscarded(known) || o.restarts(&c, known)
	})
}

// active returns the newest instance of a container if it ran in this sandbox. One that was created and
// never ran may have been so in an earlier one, before a loss of power for example, and says nothing of
// how far the pod is in this one.
func (o *Observation) active(name string) (engine.Container, bool) {
	c, ok := o.Containers[name]
	return c, ok && c.State != engine.StateCreated && !o.Record.IsSandboxed(c)
}

// anyActive says that containers of the pod have been started in this sandbox.
func (o *Observation) anyActive(cs []v1.Container) bool {
	return slices.ContainsFunc(cs, func(c v1.Container) bool {
		_, ok := o.active(c.Name)
		return ok
	})
}

// decideContainer decides on a regular container and reports whether the pod goes on with it.
func (o *Observation) decideContainer(c *v1.Container, a *Actions, now time.Time) bool {
	old, ok := o.Containers[c.Name]
	switch {
	case !ok, old.State == engine.StateCreated, o.Record.IsDiscarded(old):
		o.schedule(c, a, now)
	case old.State == engine.StateRunning && changed(old, c):
		// A container with another image is replaced whatever its restart policy says.
		o.restart(c, a, old, fmt.Sprintf("Container %s definition changed, will be restarted", c.Name))
	case old.State == engine.StateRunning && o.Record.AwaitsPostStart(c, old.ID):
		a.PostStart = append(a.PostStart, old)
		return true
	case old.State == engine.StateRunning && o.Probes[old.ID].Failed != "":
		reason := "Container " + o.failedProbe(old)
		if podspec.RestartPolicy(o.Pod, c) == v1.RestartPolicyNever {
			a.Kill = append(a.Kill, Kill{old, o.probeGrace(c, old), reason})
			// A rule may start it again: that depends on the exit code.
			return len(c.RestartPolicyRules) > 0
		}
		a.Kill = append(a.Kill, Kill{old, o.probeGrace(c, old), reason + ", will be restarted"})
		o.restartAfterProbe(c, a, now)
	case old.State == engine.StateRunning:
		return true
	case o.restarts(c, old):
		o.schedule(c, a, now)
	}
	return false
}

// changed says whether the spec has changed, of which the kubelet compares the image
// (pkg/kubelet/container.HashContainer).
func changed(old engine.Container, c *v1.Container) bool {
	ref, err := image.Normalize(c.Image)
	return err == nil && old.Image != "" && old.Image != ref
}

// failedProbe says which probe the container has failed.
func (o *Observation) failedProbe(c engine.Container) string {
	return fmt.Sprintf("%s failed %s probe", c.Name, o.Probes[c.ID].Failed)
}

// restart stops a running container and starts its next instance.
func (o *Observation) restart(c *v1.Container, a *Actions, old engine.Container, reason string) {
	a.Kill = append(a.Kill, Kill{old, podspec.GracePeriod(o.Pod), reason})
	next := o.next(c)
	next.Reason = "its definition has changed"
	a.Start = append(a.Start, next)
}

// restartAfterProbe starts the next instance of a container that a probe has failed: at once if
// its back-off since the end of the instance before has passed, else after it. When a probe has
// failed, kuberuntime's doBackOff knows only that instance.
func (o *Observation) restartAfterProbe(c *v1.Container, a *Actions, now time.Time) {
	old, next := o.Containers[c.Name], o.next(c)
	delay := crashDelay(o.Crashes[c.Name])
	if old.Last != nil && remaining(old.Last, delay, now) > 0 {
		o.wait(a, next, delay, delay)
		return
	}
	next.Reason = o.failedProbe(old)
	a.Start = append(a.Start, next)
}

// wait starts the instance after what is left of its back-off.
func (o *Observation) wait(a *Actions, next Start, backOff, left time.Duration) {
	next.Delay = left
	next.Reason = fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)", backOff, next.Container.Name, o.Pod.Name, o.Pod.Namespace, o.Pod.UID)
	a.Wait = append(a.Wait, next)
}

// remaining returns what is left of a back-off since the end of an instance: nothing if that was later
// than now, since the clock was set back then, and nobody knows by how much.
func remaining(last *engine.Exit, backOff time.Duration, now time.Time) time.Duration {
	if last.FinishedAt.After(now) {
		return 0
	}
	return max(0, last.FinishedAt.Add(backOff).Sub(now))
}

// schedule adds the container to Start, or to Wait while it is in back-off.
func (o *Observation) schedule(c *v1.Container, a *Actions, now time.Time) {
	next := o.next(c)
	if next.Last != nil && !o.Record.IsDiscarded(o.Containers[c.Name]) {
		backOff := crashDelay(o.Crashes[c.Name])
		if left := remaining(next.Last, backOff, now); left > 0 {
			o.wait(a, next, backOff, left)
			return
		}
	}
	a.Start = append(a.Start, next)
}

// next describes the instance that follows the newest one of the container.
func (o *Observation) next(c *v1.Container) Start {
	old, ok := o.Containers[c.Name]
	switch {
	case !ok:
		return Start{Container: c, Reason: reasonFirst}
	case old.State == engine.StateCreated:
		return Start{Container: c, Attempt: old.Attempt, Last: old.Last, LogPath: old.LogPath, Reason: reasonFirst}
	}
	next := Start{Container: c, Attempt: old.Attempt + 1, Last: Ended(old), Old: old.ID}
	switch {
	case o.Record.IsDiscarded(old):
		next.Reason = "all containers of the pod are restarted"
	case old.State == engine.StateExited:
		next.Reason = fmt.Sprintf("the previous instance exited with code %d", old.Exit.ExitCode)
	default:
		next.Reason = "the instance before could not be located"
	}
	return next
}

// reasonFirst is why an instance is started that follows none.
const reasonFirst = "it has not run yet"

// unknownExitCode is the kubelet's for a process whose exit was not observed (reason
// ContainerStatusUnknown).
const unknownExitCode = 137

// Ended returns how the instance ended.
func Ended(c engine.Container) *engine.Exit {
	if c.State == engine.StateExited {
		t := c.Exit
		t.ContainerID, t.Attempt, t.LogPath = c.ID, c.Attempt, c.LogPath
		return &t
	}
	return &engine.Exit{
		ContainerID: c.ID, Attempt: c.Attempt, LogPath: c.LogPath, ExitCode: unknownExitCode, StartedAt: c.StartedAt,
		Message: "The container could not be located when the pod was synced",
	}
}

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
