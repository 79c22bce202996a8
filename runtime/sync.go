package runtime

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/podstate"
	"github.com/runonce/runonce/runtime/record"
)

// cleanupTimeout bounds what is undone after a failure or an interruption.
const cleanupTimeout = 30 * time.Second

// Sync brings the pod nearer to its spec and returns when the containers that can be
// started now have been. It is safe to repeat, after a crash of the process too. Its
// error is a *SyncError when containers, or what the pod needs before them, are at fault; it
// wraps a *record.LostError when another process has stopped the pod.
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
		return err
	}
	p.memoryOf(pod.UID).update(func(m *memory) { m.synced = true })
	todo := podstate.Decide(obs, time.Now())
	if todo.Discard {
		if err := p.discard(ctx, obs, todo); err != nil {
			return err
		}
		if obs, err = p.observe(ctx, pod); err != nil {
			return err
		}
		todo = podstate.Decide(obs, time.Now())
	}
	return p.act(ctx, lock, obs, todo)
}

// discard ends all containers of the pod, so that all start again: init containers, sidecars
// and the others. Volumes and the sandbox stay.
func (p *Pods) discard(ctx context.Context, obs *podstate.Observation, todo podstate.Actions) error {
	if err := p.killAll(ctx, obs.Pod, todo.Kill); err != nil {
		return err
	}
	attempts := attemptsOf(obs)
	_, err := p.o.Records.Update(obs.Pod.UID, func(r *record.Pod) error {
		r.Sandboxed, r.Discarded = attempts, attempts
		return nil
	})
	if err != nil {
		return fmt.Errorf("restarting all containers of pod %q: %w", obs.Pod.Name, err)
	}
	p.memoryOf(obs.Pod.UID).update(func(m *memory) { clear(m.waiting) })
	return nil
}

// attemptsOf returns the newest instance of each container.
func attemptsOf(obs *podstate.Observation) map[string]int {
	attempts := make(map[string]int, len(obs.Containers))
	for name, c := range obs.Containers {
		attempts[name] = c.Attempt
	}
	return attempts
}

// work is a pod while its containers are started.
type work struct {
	pod     *v1.Pod
	lock    record.Lock
	sandbox engine.Sandbox
	record  *record.Pod
	memory  *memory
	// fresh says that the pod has no containers yet, so that what was prepared may be undone.
	fresh bool
	// running are the containers, by name, that run or have been started.
	running map[string]engine.Container
}

// act carries out what was decided.
func (p *Pods) act(ctx context.Context, lock record.Lock, obs *podstate.Observation, todo podstate.Actions) error {
	w := &work{
		pod: obs.Pod, lock: lock, record: obs.Record, memory: p.memoryOf(obs.Pod.UID),
		fresh: len(obs.Containers) == 0, running: map[string]engine.Container{},
	}
	if obs.Sandbox != nil {
		w.sandbox = *obs.Sandbox
	}
	w.memory.killing(obs, todo)
	if err := p.clear(ctx, w, todo); err != nil {
		return err
	}
	if todo.CreateSandbox && podstate.CountsInstances(w.pod) && !w.fresh {
		if err := p.leaveSandbox(obs); err != nil {
			return err
		}
	}
	if todo.CreateSandbox || (len(todo.Start) > 0 && !w.memory.isPrepared()) {
		if err := p.prepare(ctx, w); err != nil {
			p.recordPodFailure(ctx, w, err)
			return err
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

func killed(todo podstate.Actions, c engine.Container) bool {
	for _, k := range todo.Kill {
		if k.ID == c.ID {
			return true
		}
	}
	return false
}

// clear stops and removes what stands in the way of the next steps, and completes those by
// how the containers ended that were stopped to be restarted.
func (p *Pods) clear(ctx context.Context, w *work, todo podstate.Actions) error {
	pod := w.pod
	if todo.Fail != nil {
		_, err := p.o.Records.Update(pod.UID, func(r *record.Pod) error {
			r.Failed = todo.Fail
			return nil
		})
		if err != nil {
			return err
		}
	}
	if err := p.killAll(ctx, pod, todo.Kill); err != nil {
		return err
	}
	for _, id := range todo.Remove {
		if err := p.o.Engine.Remove(ctx, id); err != nil {
			return fmt.Errorf("removing old container %q: %w", id, err)
		}
	}
	if !todo.KillPod {
		return p.fillEnds(ctx, pod, todo)
	}
	if err := p.removePause(ctx, pod); err != nil {
		return fmt.Errorf("removing the process namespace of pod %q: %w", pod.Name, err)
	}
	if err := p.o.Sandboxes.Remove(ctx, pod, w.lock); err != nil {
		return fmt.Errorf("removing the sandbox of pod %q: %w", pod.Name, err)
	}
	return p.fillEnds(ctx, pod, todo)
}

// fillEnds fills in how the containers ended that were killed to be restarted.
func (p *Pods) fillEnds(ctx context.Context, pod *v1.Pod, todo podstate.Actions) error {
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

// leaveSandbox records that the instances of now tell nothing of what is done in the sandbox
// that is about to be made.
func (p *Pods) leaveSandbox(obs *podstate.Observation) error {
	_, err := p.o.Records.Update(obs.Pod.UID, func(r *record.Pod) error {
		r.Sandboxed = attemptsOf(obs)
		return nil
	})
	return err
}

// wakeAtDeadline wakes the waiters once the pod has been active for as long as it may.
func (p *Pods) wakeAtDeadline(w *work) {
	if at, limited := podstate.Deadline(w.pod, w.record); limited && w.memory.once(func(m *memory) *bool { return &m.timed }) {
		time.AfterFunc(time.Until(at), func() { p.watch.notify(string(w.pod.UID)) })
	}
}

// startAll starts the containers in spec order. One that fails does not keep the others
// from starting, as in kuberuntime's SyncPod.
func (p *Pods) startAll(ctx context.Context, w *work, todo podstate.Actions) error {
	var errs []*ContainerError
	if len(todo.Start) > 0 {
		p.pullUnmounted(ctx, w)
	}
	tried, failed := []string{record.PodFailure}, map[string]record.Failure{}
	for _, next := range todo.Start {
		name := next.Container.Name
		tried = append(tried, name)
		err := p.startContainer(ctx, w, next)
		if err == nil {
			w.memory.update(func(m *memory) { delete(m.waiting, name) })
			continue
		}
		e := containerError(name, err)
		w.memory.setWaiting(name, podstate.Waiting{Reason: e.Why, Message: e.Err.Error()})
		errs = append(errs, e)
		if ctx.Err() != nil {
			break
		}
		failed[name] = record.Failure{Reason: e.Why, Message: e.Err.Error(), Attempt: next.Attempt}
	}
	if len(todo.Start) > 0 {
		p.recordFailures(ctx, w, tried, failed)
	}
	for _, next := range todo.Wait {
		errs = append(errs, backOff(w, next))
	}
	return newSyncError(errs)
}

// containerError makes err an error of the container, if it is none yet.
func containerError(name string, err error) *ContainerError {
	var known *ContainerError
	if errors.As(err, &known) {
		return known
	}
	return &ContainerError{Container: name, Why: failure.Reason(err, failure.ReasonCreateError), Err: err}
}

func backOff(w *work, next podstate.Start) *ContainerError {
	name := next.Container.Name
	err := fmt.Errorf("back-off %s restarting failed container=%s pod=%s_%s(%s)", next.Delay.Round(time.Second),
		name, w.pod.Name, w.pod.Namespace, w.pod.UID)
	w.memory.setWaiting(name, podstate.Waiting{Reason: podstate.ReasonCrashLoopBackOff, Message: err.Error()})
	return &ContainerError{Container: name, Why: podstate.ReasonCrashLoopBackOff, Err: err, Wait: next.Delay}
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
