package runtime

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/podstate"
	"github.com/runonce/runonce/runtime/record"
)

// StopReserve is what Stop leaves of a deadline, after the grace period, to kill containers and to
// remove what belongs to the pod.
const StopReserve = 5 * time.Second

// Stop stops the pod's containers gracefully, then removes all that belongs to the pod:
// containers, network, volumes, cgroup and record. Its logs stay. While a container still runs,
// what it uses stays too, until a later Stop. After other errors Stop continues, so that as little
// as possible is left, and returns all errors. A deadline of ctx shortens the grace period.
func (p *Pods) Stop(ctx context.Context, pod *v1.Pod) error {
	lock, err := p.o.Records.Lock(ctx, pod.UID)
	if err != nil {
		return err
	}
	defer p.events.flush(pod.UID)
	if err := p.stop(ctx, pod, lock, p.o.Records.Remove); err != nil {
		lock.Release()
		return fmt.Errorf("stopping pod %q: %w", pod.Name, err)
	}
	lock.Discard()
	return nil
}

// Reset is Stop for a pod that the run of this process starts again, and goes on owning. It is a
// *record.LostError if another process has stopped the pod, which is not for this one to start then.
func (p *Pods) Reset(ctx context.Context, pod *v1.Pod) error {
	lock, err := p.lockOwned(ctx, pod.UID)
	if err != nil {
		return err
	}
	defer lock.Release()
	return p.stop(ctx, pod, lock, p.o.Records.Reset)
}

// graceWithin returns the grace period, or what the deadline of ctx leaves of it.
func graceWithin(ctx context.Context, grace time.Duration) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		grace = max(0, min(grace, time.Until(deadline)-StopReserve))
	}
	return grace
}

// stop stops the pod and removes what belongs to it, the record last, with forget.
func (p *Pods) stop(ctx context.Context, pod *v1.Pod, lock record.Lock, forget func(types.UID) error) error {
	if known, err := p.known(pod.UID); err == nil {
		pod = known.Definition(pod)
	}
	p.probes.keepOnly(pod.UID, nil)
	all, err := p.o.Engine.Containers(ctx, string(pod.UID))
	if err != nil {
		return fmt.Errorf("listing its containers: %w", err)
	}
	others, pause := withoutPause(all)
	if obs, err := p.observe(ctx, pod); err != nil || !podstate.Concluded(obs, time.Now()) {
		p.recordStop(ctx, pod)
	}
	defer p.o.Cgroups.Stopping(ctx, pod)()
	killed := p.killAll(ctx, pod, endings(others, graceWithin(ctx, podspec.TerminationGrace(pod))))
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
	// Half of a pod is none, whatever its outcome was.
	p.recordStop(ctx, pod)
	remove := func(c engine.Container) error { return p.o.Engine.Remove(ctx, c.ID) }
	removed := errors.Join(killed, p.killUnknown(ctx, pod, others), each(others, remove))
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
		err = forget(pod.UID)
	}
	if err != nil {
		return err
	}
	p.retract(ctx, pod)
	if err := p.closeLogs(pod, all); err != nil {
		p.o.Log.WarnContext(ctx, "could not tidy the logs of the removed pod", "pod", pod.Namespace+"/"+pod.Name, "error", err)
	}
	p.images.forget(pod.UID)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.memories, pod.UID)
	return nil
}

// recordStop records, before the first signal and before anything is removed, that a pod that was started
// has failed: however its containers end from now on, no later process takes it for running or completed, and
// nobody reaches it through Services.
func (p *Pods) recordStop(ctx context.Context, pod *v1.Pod) {
	if known, err := p.known(pod.UID); err == nil && (known.Started.IsZero() || known.Failed != nil) {
		return
	}
	if err := p.o.Records.Stop(pod.UID); err != nil {
		// Who frees a full disk needs the stop more than its record.
		p.o.Log.WarnContext(ctx, "could not record that the pod is being stopped; if this is interrupted, its exit codes will count", "pod", podspec.FullName(pod), "error", err)
	}
	p.withdraw(ctx, pod)
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

// endings says to stop those containers that run.
func endings(all []engine.Container, grace time.Duration) (running []podstate.Kill) {
	for _, c := range all {
		if c.State == engine.StateRunning {
			running = append(running, podstate.Stopping(c, grace))
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
	for _, k := range endings(others, 0) {
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
	return p.fail(ctx, pod, reason, message, func(grace time.Duration) time.Duration { return grace })
}

// Terminate is Fail for a pod of which a deadline of ctx shortens the grace period, as for Stop.
func (p *Pods) Terminate(ctx context.Context, pod *v1.Pod, reason, message string) error {
	return p.fail(ctx, pod, reason, message, func(grace time.Duration) time.Duration { return graceWithin(ctx, grace) })
}

func (p *Pods) fail(ctx context.Context, pod *v1.Pod, reason, message string, within func(time.Duration) time.Duration) error {
	lock, err := p.o.Records.Lock(ctx, pod.UID)
	if err != nil {
		return err
	}
	defer lock.Release()
	err = p.update(pod, func(r *record.Pod) {
		if r.Started.IsZero() {
			r.Start(pod) // without devices: there may be none, and it needs none any more
			p.o.Records.Tie(r)
		} else {
			r.Define(pod)
		}
		r.Failed = &record.Failure{Reason: reason, Message: message}
	})
	if err != nil {
		return err
	}
	if reason != "" { // else somebody else has said why
		p.events.add(pod, "", reason, "%s", message)
	}
	obs, err := p.observe(ctx, pod)
	if err != nil {
		return err
	}
	todo := podstate.Decide(obs, time.Now())
	for i := range todo.Kill {
		todo.Kill[i].Grace = within(todo.Kill[i].Grace)
	}
	if err := p.act(ctx, lock, obs, todo); err != nil {
		return fmt.Errorf("ending pod %q: %w", pod.Name, err)
	}
	return nil
}
