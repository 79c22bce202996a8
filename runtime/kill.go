package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/podstate"
)

// minimumGrace is the least time that a container gets between its stop signal and
// SIGKILL (minimumGracePeriodInSeconds of pkg/kubelet/kuberuntime).
const minimumGrace = 2 * time.Second

// killAll stops running containers in parallel, except that a sidecar waits until the
// containers of the pod, and the sidecars after it, have stopped
// (pkg/kubelet/kuberuntime/kuberuntime_termination_order.go).
func (p *Pods) killAll(ctx context.Context, pod *v1.Pod, kills []podstate.Kill) error {
	if len(kills) > 0 {
		defer p.o.Cgroups.Stopping(ctx, pod)()
	}
	all := make([]ending, 0, len(kills))
	for _, k := range kills {
		all = append(all, ending{k, make(chan struct{})})
	}
	return each(all, func(e ending) error {
		defer close(e.done)
		first := podstate.StopsAfter(pod, e.Name)
		return p.kill(ctx, pod, e.Kill, func(grace time.Duration) error { return awaitAll(ctx, grace, all, first) })
	})
}

// ending is a container that is being stopped.
type ending struct {
	podstate.Kill
	done chan struct{} // closed when it has stopped
}

// awaitAll waits, for the grace period at most, until the named containers have stopped. Its error
// says that ctx was done before.
func awaitAll(ctx context.Context, grace time.Duration, all []ending, names []string) error {
	limited, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	for _, e := range all {
		if !slices.Contains(names, e.Name) {
			continue
		}
		select {
		case <-e.done:
		case <-limited.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// killUnknown kills what may be left of containers of which the engine does not know what has become, as
// when the state directory was deleted: kuberuntime always tries that before a restart, so that a
// container does not run twice.
func (p *Pods) killUnknown(ctx context.Context, pod *v1.Pod, all []engine.Container) error {
	return each(all, func(c engine.Container) error {
		if c.State != engine.StateUnknown {
			return nil
		}
		return errors.Join(p.o.Engine.Stop(ctx, c.ID, syscall.SIGKILL, 0), p.o.Cgroups.Kill(ctx, pod, c.ID))
	})
}

// kill stops one container as killContainer of pkg/kubelet/kuberuntime does: the preStop
// hook, and awaitTurn, which waits for other containers to stop, use up the grace period, of
// which two seconds are left in any case. If ctx is done before the container's turn has come, it
// gets no signal: a sidecar serves the others until they have ended.
func (p *Pods) kill(ctx context.Context, pod *v1.Pod, k podstate.Kill, awaitTurn func(grace time.Duration) error) error {
	c, grace := k.Container, k.Grace
	p.events.add(pod, c.Name, eventKilling, "%s", k.Reason)
	p.o.Log.DebugContext(ctx, "stopping container", "pod", podspec.FullName(pod), "container", c.Name, "grace", grace, "reason", k.Reason)
	begin := time.Now()
	if def := podspec.Container(pod, c.Name); grace > 0 && def != nil && def.Lifecycle != nil && def.Lifecycle.PreStop != nil {
		limited, cancel := context.WithTimeout(ctx, grace)
		err := p.runHook(limited, pod, c, def.Lifecycle.PreStop)
		cancel()
		if err != nil {
			p.events.add(pod, c.Name, eventFailedPreStopHook, "PreStop hook of container %s: %v", c.Name, err)
			p.o.Log.WarnContext(ctx, "preStop hook failed", "pod", pod.Name, "container", c.Name, "error", err)
		}
	}
	if err := awaitTurn(grace - time.Since(begin)); err != nil {
		return fmt.Errorf("stopping container %q: waiting for the containers that stop before it: %w", c.Name, err)
	}
	grace -= time.Since(begin).Truncate(time.Second)
	if err := p.o.Engine.Stop(ctx, c.ID, podstate.StopSignal(c), max(grace, minimumGrace)); err != nil {
		return fmt.Errorf("stopping container %q: %w", c.Name, err)
	}
	return nil
}
