package runtime

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/podstate"
	"github.com/runonce/runonce/runtime/record"
)

// cleanupTimeout bounds what is undone after an error or an interruption.
const cleanupTimeout = 30 * time.Second

// Sync brings the pod nearer to its spec and returns when the containers that can be
// started now have been. It is safe to repeat, after a crash of the process too. Its
// error is a *SyncError when containers, or what the pod needs before them, cannot be
// started; it wraps a *record.LostError when another process has stopped the pod.
func (p *Pods) Sync(ctx context.Context, pod *v1.Pod) error {
	lock, err := p.o.Records.Lock(ctx, pod.UID)
	if err != nil {
		return err
	}
	defer lock.Release()
	obs, err := p.observe(ctx, pod)
	if err != nil {
		return err
	}
	if err := p.o.Records.Owned(obs.Record); err != nil {
		p.forget(pod.UID)
		return err
	}
	first := false
	p.remember(pod.UID, func(m *memory) { first, m.synced = !m.synced, true })
	if first && obs.Sandbox != nil {
		if _, err := p.o.Sandboxes.Ensure(ctx, pod, lock); err != nil {
			return err
		}
	}
	defer p.remember(pod.UID, (*memory).dropUsedImages)
	todo := podstate.Decide(obs, time.Now())
	return p.act(ctx, lock, obs, todo)
}

// work is a pod while what was decided for it is carried out.
type work struct {
	pod     *v1.Pod
	lock    record.Lock
	sandbox engine.Sandbox
	record  *record.Pod
	// fresh says that the pod has no containers yet, so that what was prepared may be undone.
	fresh bool
	// running are the containers, by name, that run or have been started.
	running map[string]engine.Container
}

// act carries out what was decided.
func (p *Pods) act(ctx context.Context, lock record.Lock, obs *podstate.Observation, todo podstate.Actions) error {
	if todo.Discard {
		return p.restartAll(ctx, lock, obs, todo.Kill)
	}
	w := &work{
		pod: obs.Pod, lock: lock, record: obs.Record,
		fresh: len(obs.Containers) == 0, running: map[string]engine.Container{},
	}
	if obs.Sandbox != nil {
		w.sandbox = *obs.Sandbox
	}
	prepared := false
	p.remember(w.pod.UID, func(m *memory) {
		m.beforeKill(obs, todo)
		prepared = m.prepared
	})
	if err := p.clear(ctx, w, obs, todo); err != nil {
		return err
	}
	if todo.CreateSandbox && podstate.CountsInstances(w.pod) && !w.fresh {
		// The instances so far did not run in the next sandbox.
		if err := p.update(w.pod, func(r *record.Pod) { r.Sandboxed = obs.LastRun() }); err != nil {
			return err
		}
	}
	if todo.CreateSandbox || (len(todo.Start) > 0 && !prepared) {
		if err := p.prepare(ctx, w); err != nil {
			return p.prepareError(ctx, w, err)
		}
	}
	for name, c := range obs.Containers {
		if c.State == engine.StateRunning && !killed(todo, c) {
			w.running[name] = c
		}
	}
	err := p.startAll(ctx, w, todo)
	p.probeRunning(ctx, w)
	p.wakeAtDeadline(w)
	return err
}

// update changes the pod's record.
func (p *Pods) update(pod *v1.Pod, change func(*record.Pod)) error {
	_, err := p.o.Records.Update(pod.UID, func(r *record.Pod) error {
		change(r)
		return nil
	})
	return err
}

// restartAll ends all containers of the pod, so that all start again: init containers, sidecars
// and the others. Volumes and the sandbox stay.
func (p *Pods) restartAll(ctx context.Context, lock record.Lock, obs *podstate.Observation, kills []podstate.Kill) error {
	if err := p.killAll(ctx, obs.Pod, kills); err != nil {
		return err
	}
	attempts := obs.LastRun()
	err := p.update(obs.Pod, func(r *record.Pod) { r.Sandboxed, r.Discarded = attempts, attempts })
	if err != nil {
		return fmt.Errorf("restarting all containers of pod %q: %w", obs.Pod.Name, err)
	}
	if obs, err = p.observe(ctx, obs.Pod); err != nil {
		return err
	}
	return p.act(ctx, lock, obs, podstate.Decide(obs, time.Now()))
}

func killed(todo podstate.Actions, c engine.Container) bool {
	return slices.ContainsFunc(todo.Kill, func(k podstate.Kill) bool { return k.ID == c.ID })
}

// clear stops and removes what stands in the way of the next steps, and completes those by
// how the containers ended that were stopped to be restarted.
func (p *Pods) clear(ctx context.Context, w *work, obs *podstate.Observation, todo podstate.Actions) error {
	pod := w.pod
	if todo.Fail != nil {
		if err := p.update(pod, func(r *record.Pod) { r.Failed = todo.Fail }); err != nil {
			return err
		}
		p.event(pod, todo.Fail.Reason, "%s", todo.Fail.Message)
	}
	if err := errors.Join(p.killAll(ctx, pod, todo.Kill), p.killLost(ctx, pod, slices.Collect(maps.Values(obs.Containers)))); err != nil {
		return err
	}
	for _, id := range todo.Remove {
		if err := p.o.Engine.Remove(ctx, id); err != nil {
			return fmt.Errorf("removing old container %q: %w", id, err)
		}
	}
	if todo.KillPod {
		if err := p.removePause(ctx, pod); err != nil {
			return fmt.Errorf("removing the process namespace of pod %q: %w", pod.Name, err)
		}
		if err := p.o.Sandboxes.Remove(ctx, pod, w.lock); err != nil {
			return fmt.Errorf("removing the sandbox of pod %q: %w", pod.Name, err)
		}
	}
	if len(todo.Kill) == 0 || len(todo.Start) == 0 {
		return nil
	}
	now, err := p.observe(ctx, pod)
	if err != nil {
		return err
	}
	for i, next := range todo.Start {
		if old, ok := now.Containers[next.Container.Name]; ok && old.ID == next.Old {
			todo.Start[i].Last = podstate.Ended(old)
		}
	}
	return nil
}

// wakeAtDeadline wakes the waiters once the pod has been active for as long as it may.
func (p *Pods) wakeAtDeadline(w *work) {
	if at, limited := podstate.Deadline(w.pod, w.record); limited && p.once(w.pod.UID, func(m *memory) *bool { return &m.timed }) {
		time.AfterFunc(time.Until(at), func() { p.watch.notify(string(w.pod.UID)) })
	}
}

// startAll starts the containers in spec order, and records why those wait that do not run
// then. One that fails does not keep the others from starting, as in kuberuntime's SyncPod.
func (p *Pods) startAll(ctx context.Context, w *work, todo podstate.Actions) error {
	var errs []*failure.Error
	failures := map[string]record.Failure{}
	maps.Copy(failures, w.record.Failures)
	delete(failures, record.PodFailure)
	if len(todo.Start) > 0 {
		p.pullUnmounted(ctx, w.pod)
	}
	for _, next := range todo.Start {
		name := next.Container.Name
		delete(failures, name)
		err := p.startContainer(ctx, w, next)
		if err == nil {
			continue
		}
		reason := failure.Reason(err, failure.ReasonCreateError)
		failures[name] = record.Failure{Reason: reason, Message: err.Error(), Attempt: next.Attempt}
		errs = append(errs, containerError(name, reason, err))
		if ctx.Err() != nil {
			break
		}
		p.failureEvent(w.pod, reason, err)
	}
	for _, next := range todo.Wait {
		name := next.Container.Name
		message := fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)", next.BackOff, name, w.pod.Name, w.pod.Namespace, w.pod.UID)
		p.event(w.pod, eventBackOff, "%s", message)
		failures[name] = record.Failure{Reason: podstate.ReasonCrashLoopBackOff, Message: message, Attempt: next.Attempt}
		e := containerError(name, podstate.ReasonCrashLoopBackOff, errors.New(message))
		e.Wait = next.Delay
		errs = append(errs, e)
	}
	p.recordFailures(ctx, w, failures)
	if len(errs) == 0 {
		return nil
	}
	return &SyncError{errs}
}

// each runs f for every element at once and returns all errors.
func each[T any](elements []T, f func(T) error) error {
	var wg sync.WaitGroup
	errs := make([]error, len(elements))
	for i, e := range elements {
		wg.Go(func() { errs[i] = f(e) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
