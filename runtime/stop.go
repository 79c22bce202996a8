package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/probe"
)

// minimumGrace is the least time that a container gets between its stop signal and
// SIGKILL (minimumGracePeriodInSeconds of pkg/kubelet/kuberuntime).
const minimumGrace = 2 * time.Second

// Stop ends the pod's containers gracefully, then removes all that belongs to the pod:
// containers, network, volumes, cgroup and record. Its logs stay. It goes on after an
// error, so that as little as possible is left, and returns all errors.
func (p *Pods) Stop(ctx context.Context, pod *v1.Pod) error {
	st := p.of(pod.UID)
	st.mu.Lock()
	defer st.mu.Unlock()
	if known, err := p.store.load(pod.UID); err == nil {
		pod = known // hooks and grace of the pod as it was started
	}
	p.probes.keep(pod.UID, nil)
	all, err := p.o.Engine.Containers(ctx, string(pod.UID))
	if err != nil {
		return fmt.Errorf("listing containers of pod %q: %w", pod.Name, err)
	}
	errs := []error{
		p.killAll(ctx, pod, all, podGrace(pod)),
		each(all, func(c engine.Container) error { return p.o.Engine.Remove(ctx, c.ID) }),
		p.o.Sandboxes.Remove(ctx, pod),
		p.o.Volumes.Teardown(ctx, pod),
		p.releaseImages(ctx, pod),
		p.o.Cgroups.Remove(ctx, pod),
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stopping pod %q: %w", pod.Name, err)
	}
	if err := p.store.remove(pod.UID); err != nil {
		return fmt.Errorf("stopping pod %q: %w", pod.Name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.state, pod.UID)
	return nil
}

// killAll stops the containers that run, all at once; only the sidecars wait for the
// containers of the pod, and for the sidecars after them, to have stopped
// (pkg/kubelet/kuberuntime/kuberuntime_termination_order.go).
func (p *Pods) killAll(ctx context.Context, pod *v1.Pod, cs []engine.Container, grace func(engine.Container) time.Duration) error {
	var all []ending
	for _, c := range cs {
		// The processes of the pod would all end with the pause process.
		if c.State == engine.StateRunning && c.Name != pauseName {
			all = append(all, ending{c, grace(c), make(chan struct{})})
		}
	}
	return each(all, func(e ending) error {
		defer close(e.done)
		first := stopsAfter(pod, e.Name)
		return p.kill(ctx, pod, e, func(grace time.Duration) { awaitAll(ctx, grace, all, first) })
	})
}

// ending is a container that is being stopped.
type ending struct {
	engine.Container
	grace time.Duration
	done  chan struct{} // closed when it has stopped
}

// stopsAfter names the containers that stop before the given one: none, unless it is a
// sidecar.
func stopsAfter(pod *v1.Pod, name string) []string {
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

// awaitAll waits for those of the names that are to stop, for the grace period at most.
func awaitAll(ctx context.Context, grace time.Duration, all []ending, names []string) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	for _, e := range all {
		if !slices.Contains(names, e.Name) {
			continue
		}
		select {
		case <-e.done:
		case <-ctx.Done():
			return
		}
	}
}

// kill stops one container as killContainer of pkg/kubelet/kuberuntime does: the preStop
// hook, and turn, which waits for the container's turn, use up the grace period, of which
// two seconds are left in any case.
func (p *Pods) kill(ctx context.Context, pod *v1.Pod, e ending, turn func(grace time.Duration)) error {
	c, grace := e.Container, e.grace
	begin := time.Now()
	if hook := preStop(pod, c.Name); hook != nil && grace > 0 {
		if err := p.runHook(ctx, hookCall{pod, c, hook, grace}); err != nil {
			p.o.Log.WarnContext(ctx, "preStop hook failed", "pod", pod.Name, "container", c.Name, "error", err)
		}
	}
	turn(grace - time.Since(begin))
	grace -= time.Since(begin).Truncate(time.Second)
	if err := p.o.Engine.Stop(ctx, c.ID, stopSignal(c), max(grace, minimumGrace)); err != nil {
		return fmt.Errorf("stopping container %q: %w", c.Name, err)
	}
	return nil
}

// podGrace gives every container the pod's grace period.
func podGrace(pod *v1.Pod) func(engine.Container) time.Duration {
	return func(engine.Container) time.Duration { return podspec.GracePeriod(pod) }
}

// probeGrace gives a container that a probe has failed the grace period of that probe, if it
// has one, and else the pod's (pkg/kubelet/kuberuntime.setTerminationGracePeriod).
func (s snapshot) probeGrace(pod *v1.Pod) func(engine.Container) time.Duration {
	return func(c engine.Container) time.Duration {
		for _, def := range podspec.Containers(pod) {
			if def.Name != c.Name {
				continue
			}
			by := map[probe.Kind]*v1.Probe{probe.Liveness: def.LivenessProbe, probe.Startup: def.StartupProbe}
			if p := by[s.probes[c.ID].Failed]; p != nil && p.TerminationGracePeriodSeconds != nil {
				return time.Duration(*p.TerminationGracePeriodSeconds) * time.Second
			}
		}
		return podspec.GracePeriod(pod)
	}
}
