package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/podstate"
	"github.com/runonce/runonce/runtime/record"
)

// Debug starts an ephemeral container, which has its defaults, in a pod that runs, and which another process may manage.
// It starts nothing else. If it fails, the pod is as it was, unless the container has ended without having run: then
// that is its status.
func (p *Pods) Debug(ctx context.Context, pod *v1.Pod, c v1.EphemeralContainer) error {
	obs, err := p.observe(ctx, pod)
	if err == nil {
		err = podstate.RefuseDebug(obs, &c, time.Now())
	}
	if err != nil {
		return err
	}
	defer p.events.flush(pod.UID)
	defer p.images.dropUsed(pod.UID)
	// Nobody else has to wait for the image.
	if err := p.pullForDebug(ctx, obs.Pod, &c); err != nil {
		return err
	}
	lock, err := p.o.Records.Lock(ctx, pod.UID)
	if err != nil {
		return err
	}
	defer lock.Release()
	if obs, err = p.observe(ctx, pod); err == nil {
		err = podstate.RefuseDebug(obs, &c, time.Now())
	}
	if err != nil {
		return err
	}
	obs.Record, err = p.o.Records.Update(pod.UID, func(r *record.Pod) error {
		r.SetEphemeral(append(slices.Clip(r.Pod.Spec.EphemeralContainers), c))
		return nil
	})
	if err != nil {
		return err
	}
	obs.Pod = obs.Record.Pod
	w := &work{pod: obs.Pod, lock: lock, record: obs.Record, sandbox: *obs.Sandbox, running: staying(obs, podstate.Actions{})}
	starts := slices.DeleteFunc(obs.Ephemeral(), func(s podstate.Start) bool { return s.Container.Name != c.Name })
	if err := p.startAll(ctx, w, podstate.Actions{Start: starts}); err != nil {
		return errors.Join(err, p.undoDebug(ctx, obs.Pod, c.Name))
	}
	return nil
}

// pullForDebug pulls the image of an ephemeral container if its pull policy says so. The next start uses what it has
// found.
func (p *Pods) pullForDebug(ctx context.Context, pod *v1.Pod, c *v1.EphemeralContainer) error {
	ref := imageRef{c.Image, c.ImagePullPolicy}
	for _, missing := range p.images.missing(ctx, pod, []imageRef{ref}) {
		p.images.pullAhead(ctx, pod, missing)
	}
	if _, _, err := p.images.ensure(ctx, pod, ref); err != nil {
		reason := failure.Reason(err, failure.ReasonErrImagePull)
		if ctx.Err() == nil {
			p.failureEvent(pod, c.Name, reason, err)
		}
		return containerError(c.Name, reason, err)
	}
	return nil
}

// undoDebug takes an ephemeral container from the pod that was not started, unless it is one that has ended.
func (p *Pods) undoDebug(ctx context.Context, pod *v1.Pod, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	obs, err := p.observe(ctx, pod)
	if err != nil {
		return err
	}
	if known, ok := obs.Containers[name]; ok && known.State != engine.StateCreated {
		return nil
	}
	err = p.update(pod, func(r *record.Pod) {
		r.SetEphemeral(slices.DeleteFunc(slices.Clone(r.Pod.Spec.EphemeralContainers), func(c v1.EphemeralContainer) bool { return c.Name == name }))
		delete(r.Failures, name)
	})
	if err != nil {
		return fmt.Errorf("removing container %q from the record of pod %q: %w", name, pod.Name, err)
	}
	return nil
}
