package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/ocispec"
	"github.com/runonce/runonce/runtime/podstate"
)

// ensurePause starts the pod's pause process unless it runs, and adds its namespace to the
// sandbox.
func (p *Pods) ensurePause(ctx context.Context, w *work) error {
	pause, err := p.pause(ctx, w.pod)
	if err == nil && pause.State != engine.StateRunning {
		if pause.ID != "" {
			err = p.o.Engine.Remove(ctx, pause.ID)
		}
		if err == nil {
			pause, err = p.startPause(ctx, w)
		}
	}
	w.sandbox.PIDNS = pidNamespace(pause)
	return err
}

func (p *Pods) startPause(ctx context.Context, w *work) (engine.Container, error) {
	cgroup, err := p.o.Cgroups.Ensure(ctx, w.pod)
	if err != nil {
		return engine.Container{}, err
	}
	// By its own start, since nobody counts pause processes.
	id := engine.ContainerID(string(w.pod.UID), podstate.PauseName, time.Now(), 0)
	in := ocispec.Input{Context: ocispec.Context{Pod: w.pod, Sandbox: w.sandbox, Node: p.o.Node}, Host: p.o.Host.Host}
	in.CgroupsPath = ocispec.CgroupsPath(cgroup, id)
	oci, err := ocispec.Pause(in)
	if err != nil {
		return engine.Container{}, err
	}
	err = p.o.Engine.Start(ctx, engine.ContainerConfig{
		ID: id, PodUID: string(w.pod.UID), Name: podstate.PauseName, Spec: oci, Pause: true,
		RuntimeHandler: w.pod.Annotations[podspec.AnnotationRuntimeHandler], Runtime: w.record.Runtime,
		Labels: labels(w.pod, &v1.Container{Name: podstate.PauseName}, engine.Image{}),
	})
	if err != nil {
		return engine.Container{}, err
	}
	pause, err := p.pause(ctx, w.pod)
	if err == nil && pause.State != engine.StateRunning {
		err = fmt.Errorf("the pause process exited with code %d", pause.Exit.ExitCode)
	}
	return pause, err
}

// pause returns the pod's pause process, a zero one when it has none.
func (p *Pods) pause(ctx context.Context, pod *v1.Pod) (engine.Container, error) {
	all, err := p.o.Engine.Containers(ctx, string(pod.UID))
	if err != nil {
		return engine.Container{}, fmt.Errorf("looking for the pause process: %w", err)
	}
	if i := slices.IndexFunc(all, func(c engine.Container) bool { return c.Name == podstate.PauseName }); i >= 0 {
		return all[i], nil
	}
	return engine.Container{}, nil
}

// removePause removes the pod's pause process, and with it the process namespace. A pod without
// one is no error.
func (p *Pods) removePause(ctx context.Context, pod *v1.Pod) error {
	if !podstate.SharesProcesses(pod) {
		return nil
	}
	pause, err := p.pause(ctx, pod)
	if err != nil || pause.ID == "" {
		return err
	}
	return errors.Join(p.killUnknown(ctx, pod, []engine.Container{pause}), p.o.Engine.Remove(ctx, pause.ID))
}
