package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/podstate"
	"github.com/runonce/runonce/runtime/record"
)

// minimumGrace is the least time that a container gets between its stop signal and
// SIGKILL (minimumGracePeriodInSeconds of pkg/kubelet/kuberuntime).
const minimumGrace = 2 * time.Second

// stopReserve is what is left of a deadline, after the grace period, to kill containers and to
// remove what belongs to the pod.
const stopReserve = 5 * time.Second

// Stop stops the pod's containers gracefully, then removes all that belongs to the pod:
// containers, network, volumes, cgroup and record. Its logs stay. While a container still runs,
// what it uses stays too, until a later Stop. After other errors Stop continues, so that as little
// as possible is left, and returns all errors. A deadline of ctx shortens the grace period.
func (p *Pods) Stop(ctx context.Context, pod *v1.Pod) error {
	lock, err := p.o.Records.Lock(ctx, pod.UID)
	if err != nil {
		return err
	}
	if err := p.stop(ctx, pod, lock); err != nil {
		lock.Release()
		return fmt.Errorf("stopping pod %q: %w", pod.Name, err)
	}
	lock.Discard()
	return nil
}

// graceWithin returns the grace period, or what the deadline of ctx leaves of it.
func graceWithin(ctx context.Context, grace time.Duration) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		grace = max(0, min(grace, time.Until(deadline)-stopReserve))
	}
	return grace
}

func (p *Pods) stop(ctx context.Context, pod *v1.Pod, lock record.Lock) error {
	if known, err := p.o.Records.Load(pod.UID); err == nil {
		pod = known.Pod // with the hooks and the grace period that it was started with
	}
	p.probes.keepOnly(pod.UID, nil)
	all, err := p.o.Engine.Containers(ctx, string(pod.UID))
	if err != nil {
		return fmt.Errorf("listing its containers: %w", err)
	}
	others, pause := withoutPause(all)
	killed := p.killAll(ctx, pod, kills(others, graceWithin(ctx, podspec.TerminationGrace(pod))))
	if killed != nil && ctx.Err() != nil {
		// To remove the containers now would cut their grace period short.
		if err := p.stillRun(ctx, pod, killed); err != nil {
			return err
		}
	}
	// Any number of pods may use up their grace periods at the same time, but not more than a
	// few are removed: what that takes is bounded by deadlines.
	leave, err := enter(ctx, p.removals)
	if err != nil {
		return errors.Join(killed, err)
	}
	defer leave()
	remove := func(c engine.Container) error { return p.o.Engine.Remove(ctx, c.ID) }
	removed := errors.Join(killed, p.killLost(ctx, pod, others), each(others, remove))
	if removed != nil {
		if err := p.stillRun(ctx, pod, removed); err != nil {
			return err
		}
	}
	err = errors.Join(
		removed,
		each(pause, remove),
		p.o.Sandboxes.Remove(ctx, pod, lock),
		p.o.Volumes.Teardown(ctx, pod),
		p.releaseImages(ctx, pod),
		p.o.Cgroups.Remove(ctx, pod),
	)
	if err == nil {
		err = p.o.Records.Remove(pod.UID)
	}
	if err != nil {
		return err
	}
	if err := p.closeLogs(pod, all); err != nil {
		p.o.Log.WarnContext(ctx, "cannot tidy the logs of the removed pod", "pod", pod.Namespace+"/"+pod.Name, "error", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.memories, pod.UID)
	return nil
}

// withoutPause returns the containers of a pod and its pause process, which has to go last: all
// processes of the pod end with it.
func withoutPause(all []engine.Container) (others, pause []engine.Container) {
	for _, c := range all {
		if c.Name == podstate.PauseName {
			pause = append(pause, c)
		} else {
			others = append(others, c)
		}
	}
	return others, pause
}

// kills says to stop those containers that run.
func kills(all []engine.Container, grace time.Duration) (running []podstate.Kill) {
	for _, c := range all {
		if c.State == engine.StateRunning {
			running = append(running, podstate.Kill{Container: c, Grace: grace})
		}
	}
	return running
}

// stillRun returns err with what Stop leaves because of it: containers of the pod that still run,
// and so all that they use. It returns nil if none of them runs.
func (p *Pods) stillRun(ctx context.Context, pod *v1.Pod, err error) error {
	all, lerr := p.o.Engine.Containers(context.WithoutCancel(ctx), string(pod.UID))
	if lerr != nil {
		return errors.Join(err, lerr)
	}
	others, _ := withoutPause(all)
	var left []string
	for _, k := range kills(others, 0) {
		left = append(left, strconv.Quote(k.Name))
	}
	if len(left) == 0 {
		return nil
	}
	return &leftError{err, "its network, volumes and files were not removed because these containers still run: " + strings.Join(left, ", ")}
}

// leftError is the error of a Stop that leaves containers and what they use.
type leftError struct {
	error
	left string
}

func (e *leftError) Error() string { return e.error.Error() + "; " + e.left }
func (e *leftError) Unwrap() error { return e.error }

// Left says what is left.
func (e *leftError) Left() string { return e.left }

// Fail makes the pod fail for good, whatever its restart policy says: its containers are
// stopped gracefully and not started again, and from now on its status is Failed with the
// given reason and message, in later processes too. What belongs to the pod stays until Stop,
// except for its namespaces.
func (p *Pods) Fail(ctx context.Context, pod *v1.Pod, reason, message string) error {
	lock, err := p.o.Records.Lock(ctx, pod.UID)
	if err != nil {
		return err
	}
	defer lock.Release()
	err = p.update(pod, func(r *record.Pod) {
		if r.Started.IsZero() {
			r.Start(pod) // without devices: there may be none, and it needs none any more
		}
		r.Failed = &record.Failure{Reason: reason, Message: message}
	})
	if err != nil {
		return err
	}
	obs, err := p.observe(ctx, pod)
	if err != nil {
		return err
	}
	if err := p.act(ctx, lock, obs, podstate.Decide(obs, time.Now())); err != nil {
		return fmt.Errorf("ending pod %q: %w", pod.Name, err)
	}
	return nil
}

// killAll stops running containers in parallel, except that a sidecar waits until the
// containers of the pod, and the sidecars after it, have stopped
// (pkg/kubelet/kuberuntime/kuberuntime_termination_order.go).
func (p *Pods) killAll(ctx context.Context, pod *v1.Pod, kills []podstate.Kill) error {
	all := make([]ending, 0, len(kills))
	for _, k := range kills {
		all = append(all, ending{k, make(chan struct{})})
	}
	return each(all, func(e ending) error {
		defer close(e.done)
		first := podstate.StopsAfter(pod, e.Name)
		return p.kill(ctx, pod, e.Kill, func(grace time.Duration) { awaitAll(ctx, grace, all, first) })
	})
}

// ending is a container that is being stopped.
type ending struct {
	podstate.Kill
	done chan struct{} // closed when it has stopped
}

// awaitAll waits, for the grace period at most, until the named containers have stopped.
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

// killLost kills what may be left of containers of which the engine does not know what has become, as
// when the state directory was deleted: kuberuntime always tries that before a restart, so that a
// container does not run twice.
func (p *Pods) killLost(ctx context.Context, pod *v1.Pod, all []engine.Container) error {
	return each(all, func(c engine.Container) error {
		if c.State != engine.StateUnknown {
			return nil
		}
		return errors.Join(p.o.Engine.Stop(ctx, c.ID, syscall.SIGKILL, 0), p.o.Cgroups.Kill(ctx, pod, c.ID))
	})
}

// kill stops one container as killContainer of pkg/kubelet/kuberuntime does: the preStop
// hook, and awaitTurn, which waits for other containers to stop, use up the grace period, of
// which two seconds are left in any case.
func (p *Pods) kill(ctx context.Context, pod *v1.Pod, k podstate.Kill, awaitTurn func(grace time.Duration)) error {
	c, grace := k.Container, k.Grace
	p.event(pod, eventKilling, "Stopping container %s", c.Name)
	begin := time.Now()
	if def := podspec.Container(pod, c.Name); grace > 0 && def != nil && def.Lifecycle != nil && def.Lifecycle.PreStop != nil {
		limited, cancel := context.WithTimeout(ctx, grace)
		err := p.runHook(limited, pod, c, def.Lifecycle.PreStop)
		cancel()
		if err != nil {
			p.event(pod, eventFailedPreStopHook, "PreStop hook of container %s: %v", c.Name, err)
			p.o.Log.WarnContext(ctx, "preStop hook failed", "pod", pod.Name, "container", c.Name, "error", err)
		}
	}
	awaitTurn(grace - time.Since(begin))
	grace -= time.Since(begin).Truncate(time.Second)
	if err := p.o.Engine.Stop(ctx, c.ID, podstate.StopSignal(c), max(grace, minimumGrace)); err != nil {
		return fmt.Errorf("stopping container %q: %w", c.Name, err)
	}
	return nil
}
