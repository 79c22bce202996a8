package runtime

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/podstate"
	"github.com/runonce/runonce/runtime/record"
)

// Sync brings the pod nearer to its spec and returns when the containers that can be
// started now have been. It is safe to repeat, after a crash of the process too. Its
// error is a *SyncError when containers, or what the pod needs before them, cannot be
// started; it wraps a *record.LostError when another process has stopped the pod. From then on the
// pod is what it was given here: what is known of it, and how it is stopped, goes by its record.
func (p *Pods) Sync(ctx context.Context, pod *v1.Pod) error {
	lock, err := p.lockOwned(ctx, pod.UID)
	if err != nil {
		if lost := new(record.LostError); errors.As(err, &lost) {
			p.forget(pod.UID)
		}
		return err
	}
	defer lock.Release()
	defer p.events.flush(pod.UID)
	if err := p.define(pod); err != nil {
		return err
	}
	obs, err := p.observe(ctx, pod)
	if err != nil {
		return err
	}
	first := false
	p.remember(pod.UID, func(m *memory) { first, m.synced, m.idle = !m.synced, true, syncedAs{} })
	if first && obs.Sandbox != nil {
		if _, err := p.o.Sandboxes.Ensure(ctx, obs.Pod, lock); err != nil {
			return err
		}
	}
	defer p.images.dropUsed(pod.UID)
	todo := podstate.Decide(obs, time.Now())
	err = p.act(ctx, lock, obs, todo)
	if err == nil && todo.None() {
		p.remember(pod.UID, func(m *memory) { m.idle = syncedAs{pod, obs.Record} })
	}
	return err
}

// Settled says whether Sync would do nothing, by what the last Status of the pod has found: the last Sync did nothing,
// neither the pod nor its record is another one since, and nothing has to be done.
func (p *Pods) Settled(pod *v1.Pod) (settled bool) {
	p.remember(pod.UID, func(m *memory) { settled = m.settled })
	return settled
}

// LimitRestarts says how often the containers of the pod may have been restarted in all, by name:
// from now on Sync of this process starts nothing that would go beyond, also not after it has killed a
// container for a probe or the pod has lost its sandbox. Containers without a number have no limit.
func (p *Pods) LimitRestarts(pod *v1.Pod, most map[string]int) {
	p.remember(pod.UID, func(m *memory) { m.limits = most })
}

// act carries out what was decided.
func (p *Pods) act(ctx context.Context, lock record.Lock, obs *podstate.Observation, todo podstate.Actions) error {
	if todo.Discard {
		return p.restartAll(ctx, lock, obs, todo.Kill)
	}
	w := &work{
		pod: obs.Pod, lock: lock, record: obs.Record,
		fresh: len(obs.Containers) == 0, running: staying(obs, todo),
	}
	if obs.Sandbox != nil {
		w.sandbox = *obs.Sandbox
	}
	p.explain(obs, todo)
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
	if todo.CreateSandbox || (len(todo.Start)+len(todo.Ephemeral) > 0 && !prepared) {
		if err := p.prepare(ctx, w); err != nil {
			return p.prepareError(ctx, w, err)
		}
	}
	if len(todo.Ephemeral) > 0 {
		if err := p.startAll(ctx, w, podstate.Actions{Start: todo.Ephemeral}); err != nil {
			p.o.Log.InfoContext(ctx, "could not start ephemeral containers", "pod", podspec.FullName(w.pod), "error", err)
		}
	}
	err := p.startAll(ctx, w, todo)
	p.probeRunning(ctx, w)
	p.wakeAtDeadline(w)
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

// staying returns the containers, by name, that have been started and run on.
func staying(obs *podstate.Observation, todo podstate.Actions) map[string]engine.Container {
	all := map[string]engine.Container{}
	for name, c := range obs.Containers {
		killed := slices.ContainsFunc(todo.Kill, func(k podstate.Kill) bool { return k.ID == c.ID })
		starting := slices.ContainsFunc(todo.PostStart, func(s engine.Container) bool { return s.ID == c.ID })
		if c.State == engine.StateRunning && !killed && !starting {
			all[name] = c
		}
	}
	return all
}

// clear stops and removes what stands in the way of the next steps, and completes those by
// how the containers ended that were stopped to be restarted.
func (p *Pods) clear(ctx context.Context, w *work, obs *podstate.Observation, todo podstate.Actions) error {
	pod := w.pod
	if todo.Fail != nil {
		if err := p.update(pod, func(r *record.Pod) { r.Failed = todo.Fail }); err != nil {
			return err
		}
		p.events.add(pod, "", todo.Fail.Reason, "%s", todo.Fail.Message)
	}
	if err := errors.Join(p.killAll(ctx, pod, todo.Kill), p.killUnknown(ctx, pod, slices.Collect(maps.Values(obs.Containers)))); err != nil {
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

// define records the definition of a pod that was started, if it is another one than before.
func (p *Pods) define(pod *v1.Pod) error {
	known, err := p.known(pod.UID)
	if err != nil || known.DefinedBy(pod) {
		return err
	}
	return p.update(pod, func(r *record.Pod) { r.Define(pod) })
}

// Update records another definition of the pod, with the same UID. The next Sync restarts the
// containers whose image has changed. The start time and the devices stay. A pod that was
// never started is left alone.
func (p *Pods) Update(_ context.Context, pod *v1.Pod) error {
	return p.update(pod, func(r *record.Pod) { r.Define(pod) })
}

// Refresh renews what has changed or expires of the files in the volumes of a running pod.
func (p *Pods) Refresh(ctx context.Context, pod *v1.Pod) error {
	lock, err := p.o.Records.Lock(ctx, pod.UID)
	if err != nil {
		return err
	}
	defer lock.Release()
	obs, err := p.observe(ctx, pod)
	if err != nil || podspec.Ended(podstate.Status(obs, time.Now()).Phase) {
		return err
	}
	err = p.o.Volumes.Refresh(ctx, obs.Pod)
	if err != nil && ctx.Err() == nil {
		p.events.add(obs.Pod, "", failure.ReasonFailedMount, "%v", err)
	}
	return err
}
